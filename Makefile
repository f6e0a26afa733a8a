# Everything a contributor or a CI job runs. Targets make the environment themselves.

VENV        ?= .venv
PYTHON      ?= python3
JOBS        ?= 2
PYTEST_ARGS ?=
BENCH_ARGS  ?=
DEMO_ARGS   ?=
SEEDS       ?= 2000
BASE        ?=

BIN     := $(VENV)/bin
PYTEST  := $(BIN)/python -m pytest
UV      := $(shell command -v uv 2>/dev/null)
INSTALL := $(if $(UV),$(UV) pip install --quiet --python $(BIN)/python,$(BIN)/python -m pip install --quiet --disable-pip-version-check) --constraint constraints.txt
NEWVENV := $(if $(UV),$(UV) venv --quiet --seed --python $(PYTHON) $(VENV),$(PYTHON) -m venv $(VENV))

# Debian takes venv out of python3 and packages it apart; a bare machine lacks it.
ENSUREPIP := $(PYTHON) -c 'import ensurepip' 2>/dev/null || { \
  command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ] && echo "Installing Debian's python3-venv ..." && \
  { apt-get update -qq; DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends python3-venv; } >/dev/null; \
} || { echo "$(PYTHON) has no venv module. On Debian: sudo apt-get install python3-venv"; exit 1; }

# The levels that one `make test` runs; the rest of tests/ needs longer or is checked by `make types`.
LEVELS := $(wildcard tests/unit tests/contract tests/property tests/integration tests/fault tests/e2e)

# Hundreds of databases that are synced with each step: in memory that takes half the time. Small ones are those of containers.
IN_MEMORY := $(if $(shell df --output=avail -B1G /dev/shm 2>/dev/null | awk 'NR == 2 && $$1 >= 6'),PYTEST_DEBUG_TEMPROOT=/dev/shm)

# What is asked of launchers, alone and under a whole fleet; `make test` has a short form of it.
LAUNCHER_SUITES := $(wildcard tests/contract/test_launchers.py tests/integration/test_*_launcher.py tests/integration/test_executor.py \
  tests/integration/test_parent.py tests/e2e/test_launcher_parity.py tests/e2e/test_substrate_losses.py tests/e2e/test_kubernetes_pods.py)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test test-quick lint format types services simulate mutants fault launchers bench e2e docs lock build clean

help: ## Show this list
	@awk 'BEGIN {FS = ":.*## "} /^[a-z0-9-]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo
	@echo "  Variables: PYTHON=$(PYTHON) VENV=$(VENV) JOBS=$(JOBS) PYTEST_ARGS= BENCH_ARGS= DEMO_ARGS= SEEDS=$(SEEDS) BASE="

demo: $(VENV)/.demo-installed ## The retry-and-fence story on real processes, in under a minute
	@$(BIN)/tenure demo $(DEMO_ARGS)

test: lint types services ## All that CI needs: lint, types, imports, every level of tests, 2,000 simulated histories
	@$(MAKE) --no-print-directory simulate
	@$(IN_MEMORY) $(PYTEST) -n $(JOBS) --dist loadgroup -m "not slow" $(PYTEST_ARGS) $(LEVELS)

test-quick: $(VENV)/.dev-installed ## Unit and contract tests only
	@$(IN_MEMORY) $(PYTEST) -m "not slow" $(PYTEST_ARGS) $(wildcard tests/unit tests/contract)

lint: $(VENV)/.dev-installed ## ruff, its formatter, and the direction of imports
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --check --quiet . || { echo "Some files are not formatted; run: make format"; exit 1; }
	@$(BIN)/lint-imports

format: $(VENV)/.dev-installed ## Let ruff format and fix what it can
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format .

types: $(VENV)/.dev-installed ## mypy and pyright, both strict
	@$(BIN)/mypy
	@$(BIN)/pyright --pythonpath $(BIN)/python

services:
	@command -v redis-server >/dev/null || { \
	  echo "redis-server is not on PATH: tests on a real server are skipped (Debian: apt-get install redis-server)."; \
	  test "$$CI" != true || { echo "With CI=true a missing service is a failure."; exit 1; }; }

simulate: $(VENV)/.dev-installed ## Search SEEDS simulated histories for broken invariants, from BASE or a new seed
	@$(BIN)/python -m tests.simulation --processes $(JOBS) --seeds $(SEEDS) $(if $(BASE),--base $(BASE))

mutants: $(VENV)/.dev-installed ## Break each rule of the protocol in turn; the tests must notice every time
	@$(BIN)/python -m tests.mutants --jobs $(JOBS)

# Starved workers starve whatever runs beside them, so they come last and alone; the table at the end has all figures.
fault: $(VENV)/.dev-installed services ## Fault injection with the long runs; figures in build/faults.json
	@rm -f build/faults.json
	@FAULT_FIGURES=build/faults.json $(PYTEST) -n $(JOBS) --timeout 600 $(PYTEST_ARGS) --ignore tests/fault/test_real_starvation.py tests/fault
	@FAULT_FIGURES=build/faults.json $(PYTEST) --timeout 600 $(PYTEST_ARGS) tests/fault/test_real_starvation.py

e2e: $(VENV)/.dev-installed ## The installed command on real processes and in containers, with the long runs
	@$(PYTEST) --timeout 600 $(PYTEST_ARGS) tests/e2e

launchers: $(VENV)/.dev-installed services ## Every launcher on its substrate, with the long runs; the table at the end says what held
	@$(PYTEST) --timeout 600 $(PYTEST_ARGS) $(LAUNCHER_SUITES)

bench: $(VENV)/.dev-installed ## Measure throughput and latency on this machine
	@$(BIN)/python -m bench $(BENCH_ARGS)

docs: $(VENV)/.dev-installed ## Write again what the docs take from the code (diagrams, the number of mutants)
	@$(BIN)/python docs/generate.py

lock: ## Resolve the dependencies anew into constraints.txt (needs uv)
	@uv lock --quiet --upgrade && { sed -n '/^#/p' constraints.txt; uv export --quiet --extra dev --extra embedded --no-emit-project --no-hashes --no-annotate --no-header; } > constraints.new
	@mv constraints.new constraints.txt && rm -f uv.lock

build: $(VENV)/.dev-installed ## Build the wheel and the source archive into dist/
	@$(INSTALL) hatchling && $(BIN)/python -m hatchling build

clean: ## Remove the environments and everything that tools left
	@rm -rf .venv .venv-* build dist htmlcov .coverage .coverage.* .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A failed first step must not leave half an environment that the next call takes for a whole one.
$(BIN)/python:
	@command -v $(PYTHON) >/dev/null || { echo "Tenure needs Python 3.11 or newer, and $(PYTHON) was not found. Choose one: make PYTHON=/path/to/python3.11"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Tenure needs Python 3.11 or newer, and $(PYTHON) is %d.%d. Choose another: make PYTHON=/path/to/python3.11" % sys.version_info[:2])'
	@$(if $(UV),,$(ENSUREPIP))
	@$(NEWVENV) || { rm -rf $(VENV); exit 1; }

$(VENV)/.dev-installed: pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing the development tools into $(VENV) ..."
	@$(INSTALL) -e '.[dev,embedded]'
	@touch $@

$(VENV)/.demo-installed: pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing Tenure into $(VENV) ..."
	@$(INSTALL) -e '.[embedded]' 'matplotlib>=3.10'
	@touch $@
