"""docker-compose.yml for real: images built, a fleet in containers, parts of it killed, scaled, and taken down.

One fleet serves all tests, for making it takes minutes: this is for `make e2e`.
"""

import csv
import re
import subprocess
from collections import Counter
from collections.abc import Generator
from pathlib import Path

import pytest

import tenure
from tenure.client.client import Client
from tenure.client.options import ClientOptions
from tests.fixtures_compose import PARTS, PATIENCE_S, Composed, composed_fleet, secure, user_in, wait_patiently
from tests.fixtures_docker import compose_command, inspected, plain_environment
from tests.fixtures_e2e import ROOT
from tests.kubernetes_objects import read_yaml

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2400), pytest.mark.xdist_group("compose")]

POINTS = 28
PROGRAMS = 24
MARK = """
set -C
: > "/marks/$TENURE_TASK_ID.$TENURE_FENCE" || echo "$TENURE_TASK_ID.$TENURE_FENCE" >> /marks/twice
sleep 2
echo "$TENURE_FENCE"
"""


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Generator[Composed]:
    with composed_fleet(tmp_path_factory.mktemp("compose")) as fleet:
        yield fleet


@pytest.fixture
def client(fleet: Composed) -> Generator[Client]:
    with Client(fleet.url, options=ClientOptions(lost="wait", patience_ms=PATIENCE_S * 1_000)) as client:
        yield client


@pytest.mark.parametrize(("said", "files"), [("", {"broker.url"}), ("lab.url", {"broker.url", "lab.url"})])
def test_compose_itself_reads_the_file_and_takes_an_empty_name_for_none(said: str, files: set[str]) -> None:
    command = (*compose_command(), "-f", "docker-compose.yml", "config")
    variables = {**plain_environment(), "TENURE_WORKER_CREDENTIAL": said, "TENURE_CLI_CREDENTIAL": ""}
    done = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    (read,) = read_yaml(done.stdout)
    assert {Path(secret["file"]).name for secret in read["secrets"].values()} == files


def test_every_part_comes_up_healthy(fleet: Composed) -> None:
    fleet.scale()
    for part in PARTS:
        fleet.wait_until_healthy(part)
    workers = [*fleet.workers("default"), *fleet.workers("programs")]
    assert len({row["worker_id"] for row in workers}) == 4
    (broker,) = fleet.containers("broker")
    assert "Valkey server v=" in fleet.docker.run("exec", broker, "valkey-server", "--version")


def test_no_part_is_root_writes_its_image_or_shows_a_secret(fleet: Composed) -> None:
    password = re.search(r":([0-9a-f]{48})@", fleet.url)
    assert password is not None
    containers = fleet.containers()
    for facts in inspected(fleet.docker, *containers):
        assert password[1] not in str(facts)
    images = [str(fleet.settings[name]) for name in ("TENURE_IMAGE", "TENURE_BROKER_IMAGE")]
    assert password[1] not in str(inspected(fleet.docker, *images))
    for container in containers:
        assert fleet.docker.run("exec", container, "id", "-u").strip() in {"10001", "10002"}
        fleet.docker.run("exec", container, "sh", "-c", "! touch /etc/tenure-was-here 2>/dev/null")
        assert password[1] not in fleet.docker.run("exec", container, "sh", "-c", "cat /proc/[0-9]*/cmdline")
        assert password[1] not in fleet.docker.run("logs", container)


def test_each_part_works_with_a_credential_of_its_own(fleet: Composed, client: Client) -> None:
    """Whatever runs after this, in whichever order, runs on a fleet of that kind."""
    secure(fleet)
    users = {part: {user_in(fleet, container) for container in fleet.containers(part)} for part in PARTS}
    site = {"tenure.main.site.local"}
    assert users == {"broker": {""}, "coordinator": {"tenure.main.coordinator"}, "worker": site, "programs": site}
    for part in PARTS:
        fleet.wait_until_healthy(part)
    workers = [*fleet.workers("default"), *fleet.workers("programs")]
    assert {str(row["worker_id"]).partition(".")[0] for row in workers} == {"local"}
    handle = client.using(capability="programs").command(["echo", "as a site"])
    assert handle.result(timeout=PATIENCE_S) == "as a site\n"
    assert "programs" in fleet.compose("run", "--rm", "cli", "workers", "list")


def test_a_sweep_comes_to_its_end_although_a_worker_the_broker_and_the_coordinator_are_killed(
    fleet: Composed, client: Client, tmp_path: Path
) -> None:
    fleet.scale()
    marked = client.using(run="marks", capability="programs", lease_ttl="10s", retry=tenure.Retry(lost=2))
    programs = [marked.command(["sh", "-c", MARK]) for _ in range(PROGRAMS)]
    sweep = fleet.start_sweep(POINTS, tmp_path / "lorenz.csv")
    try:
        wait_patiently(lambda: sum(each.done() for each in programs) >= 2, "some programs have ended")
        lost = {fleet.kill_a_busy("worker", "default"), fleet.kill_a_busy("programs", "programs")}
        fleet.strike("broker")
        fleet.strike("coordinator")
        values = [each.result(timeout=PATIENCE_S) for each in programs]
        out, _ = sweep.communicate(timeout=2 * PATIENCE_S)
    finally:
        sweep.kill()

    assert sweep.returncode == 0, out
    assert "rho = 28: 0.91" in out
    with (tmp_path / "lorenz.csv").open() as file:
        assert [float(row["rho"]) for row in csv.DictReader(file)] == [float(rho) for rho in range(1, POINTS + 1)]
    _assert_one_result_each(fleet, dict(zip([each.task_id for each in programs], values, strict=True)), lost)


def _assert_one_result_each(fleet: Composed, values: dict[str, str], lost: set[str]) -> None:
    tasks = [row for row in fleet.rows("tasks", "list", "--limit", "1000") if row["run"] in {"lorenz", "marks"}]
    assert len(tasks) == POINTS + PROGRAMS
    assert {row["state"] for row in tasks} == {"SUCCEEDED"}
    ids = {row["task_id"] for row in tasks}
    leases = [row for row in fleet.rows("leases", "list", "--limit", "10000") if row["task_id"] in ids]
    completed = {row["task_id"]: row["fence"] for row in leases if row["state"] == "COMPLETED"}
    assert Counter(row["task_id"] for row in leases if row["state"] == "COMPLETED") == Counter(completed.keys())
    assert len(completed) == POINTS + PROGRAMS
    again = {(row["task_id"], row["attempt"]) for row in leases if row["attempt"] > 1}
    decided = {(row["task_id"], row["next_attempt"]) for row in fleet.rows("directives", "list", "--limit", "1000")}
    assert again == decided
    assert lost <= {row["worker_id"] for row in leases if row["state"] == "EXPIRED"}
    # Marks are made by whoever begins to run under a fence; nobody may find his own there already.
    marks = {path.name for path in fleet.marks.iterdir()}
    assert "twice" not in marks
    known = {f"{row['task_id']}.{row['fence']}" for row in leases}
    assert marks <= known
    for task_id, value in values.items():
        assert int(value) == completed[task_id]
        assert f"{task_id}.{completed[task_id]}" in marks


def test_a_service_is_scaled_up_and_down_and_loses_nothing(fleet: Composed, client: Client) -> None:
    fleet.scale(worker=4)
    handles = [client.command(["sh", "-c", "sleep 20; echo done"]) for _ in range(4)]
    wait_patiently(lambda: sum(row["holding"] for row in fleet.workers("default")) == 4, "all are busy")
    fleet.scale(worker=1)
    assert [handle.result(timeout=PATIENCE_S) for handle in handles] == ["done\n"] * 4
    ids = {handle.task_id for handle in handles}
    leases = [row for row in fleet.rows("leases", "list", "--limit", "10000") if row["task_id"] in ids]
    assert [(row["attempt"], row["state"]) for row in leases] == [(1, "COMPLETED")] * 4


def test_a_part_that_dies_by_itself_comes_back_by_itself(fleet: Composed) -> None:
    (coordinator,) = fleet.containers("coordinator")
    before = _restarts(fleet, coordinator)
    fleet.docker.run("exec", coordinator, "sh", "-c", "kill -TERM 1")
    wait_patiently(lambda: _restarts(fleet, coordinator) == before + 1, "it was started again")
    assert fleet.workers("programs")


def _restarts(fleet: Composed, container: str) -> int:
    (facts,) = inspected(fleet.docker, container)
    return int(facts["RestartCount"])


def test_the_command_line_of_the_image_submits(fleet: Composed) -> None:
    submitted = ("submit", "--capability", "programs", "--wait", "--", "echo", "from inside")
    assert "from inside" in fleet.compose("run", "--rm", "cli", *submitted)


def test_an_image_that_is_derived_as_the_docs_say_has_its_packages(fleet: Composed, tmp_path: Path) -> None:
    """The recipe was one that failed: the image has no pip, and Debian's Python brings none."""
    found = re.search(r"```dockerfile\n(.*?)```", (ROOT / "docs" / "compose.md").read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    image = f"{fleet.project}-derived"
    recipe = found[1].replace("FROM tenure\n", f"FROM {fleet.settings['TENURE_IMAGE']}\n").replace("numpy", "tomli-w")
    (tmp_path / "Dockerfile").write_text(recipe)
    try:
        fleet.docker.run("build", "--network", "host", "--tag", image, str(tmp_path))
        python = ("run", "--rm", "--network", "none", "--entrypoint", "python3", image)
        said = fleet.docker.run(*python, "-c", "import os, tenure, tomli_w; print(os.getuid(), tenure.__version__)")
        assert said.split() == ["10001", tenure.__version__]
    finally:
        fleet.docker.run("image", "rm", "--force", image, check=False)
