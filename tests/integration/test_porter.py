"""The porter as a process: what it is told and how, its end, its parent's end, and how much memory it needs."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from tenure.artifacts.jobs import Collect, Discard, Ended, Fetch, Job, Promote, StagingPlace, Verify
from tenure.artifacts.opening import open_store
from tenure.artifacts.porter_link import PorterLink
from tenure.artifacts.porter_orders import PorterSettings
from tenure.clock import SystemClock
from tenure.protocol.artifact import Input
from tenure.testing import ManualClock
from tests.fixtures_artifacts import BUCKET, PLACE, S3Server, blob_of, launch_s3, noise
from tests.waiting import wait_until

STAGING = StagingPlace(site=PLACE.site, task_id=PLACE.task_id, fence=PLACE.fence, nonce=PLACE.nonce)
MIB = 1024 * 1024
BOUND = 150 * MIB
SECRET = "very-secret-value"

Start = Callable[..., PorterLink]


@pytest.fixture
def start() -> Iterator[Start]:
    """Makes links to porters."""
    links: list[PorterLink] = []

    def make(address: str, clock: ManualClock | SystemClock | None = None, **settings: object) -> PorterLink:
        chosen = PorterSettings.model_validate({"address": address, **settings})
        links.append(PorterLink(chosen, clock or SystemClock()))
        return links[-1]

    yield make
    for link in links:
        link.close()


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    server = launch_s3(tmp_path_factory.mktemp("s3"))
    yield server
    server.stop()


@pytest.fixture
def store(tmp_path: Path) -> Path:
    (tmp_path / "store").mkdir()
    return tmp_path / "store"


def ends(link: PorterLink, timeout_s: float = 50) -> list[Ended]:
    """The ends of all jobs, once none is outstanding."""
    found: list[Ended] = []

    def all_ended() -> bool:
        found.extend(link.ended())
        return not link.busy()

    wait_until(all_ended, "all jobs of the porter have ended", timeout_s)
    return sorted(found, key=lambda ended: ended.number)


def do(link: PorterLink, job: Job, timeout_s: float = 50) -> Ended:
    link.submit(job)
    (ended,) = ends(link, timeout_s)
    return ended


def collect(folder: Path, number: int = 1) -> Collect:
    return Collect(number=number, place=STAGING, folder=str(folder), most_files=100)


def outputs(folder: Path, raw: bytes = b"some bytes") -> Path:
    (folder / "outputs").mkdir()
    (folder / "outputs" / "a").write_bytes(raw)
    return folder / "outputs"


def endless(folder: Path, size: int = 1 << 40) -> Path:
    """A folder with a file that nobody has ever read to its end."""
    (folder / "outputs").mkdir()
    with (folder / "outputs" / "a").open("wb") as file:
        file.truncate(size)
    return folder / "outputs"


def peak_bytes(pid: int) -> int:
    """The most memory that the process has ever held."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    pytest.fail(f"the kernel tells nothing of process {pid}")


def is_alive(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_files_go_through_the_process_and_come_back(tmp_path: Path, store: Path, start: Start) -> None:
    link = start(str(store))
    assert (link.pid, link.fileno(), link.busy()) == (0, -1, False)
    raw = noise(3 * MIB)
    collected = do(link, collect(outputs(tmp_path, raw)))
    assert collected.bundle is not None
    assert do(link, Verify(number=2, place=STAGING, bundle=collected.bundle)).problem is None
    assert do(link, Promote(number=3, place=STAGING, bundle=collected.bundle, last=True)).problem is None
    wanted = (Input(path="in", content=collected.bundle),)
    assert do(link, Fetch(number=4, folder=str(tmp_path / "new"), wanted=wanted)).problem is None
    assert (tmp_path / "new" / "in" / "a").read_bytes() == raw
    assert link.fileno() >= 0


def test_settings_are_in_neither_argv_nor_environment(tmp_path: Path, store: Path, start: Start) -> None:
    link = start(
        str(store),
        options={"secret": SECRET},
        broker_url=f"redis://:{SECRET}@127.0.0.1:1",
        environment={"AWS_SECRET_ACCESS_KEY": SECRET},
    )
    assert do(link, collect(outputs(tmp_path))).problem is None
    process = Path(f"/proc/{link.pid}")
    assert str(store).encode() not in (process / "cmdline").read_bytes()
    assert SECRET.encode() not in (process / "cmdline").read_bytes() + (process / "environ").read_bytes()


def test_a_killed_porter_ends_its_jobs_and_the_next_job_starts_another(
    tmp_path: Path, store: Path, start: Start
) -> None:
    link = start(str(store))
    link.submit(collect(endless(tmp_path)))
    link.submit(collect(tmp_path / "outputs", number=2))
    first = link.pid
    os.kill(first, signal.SIGKILL)
    told = ends(link)
    assert [(ended.number, ended.problem and ended.problem.code) for ended in told] == [
        (1, "artifact"),
        (2, "artifact"),
    ]
    assert link.fileno() == -1
    assert do(link, Discard(number=3, place=STAGING)).problem is None
    assert link.pid not in {0, first}


def test_a_cancelled_job_ends_soon_and_others_go_on(tmp_path: Path, store: Path, start: Start) -> None:
    link = start(str(store))
    link.submit(collect(endless(tmp_path)))
    (tmp_path / "other").mkdir()
    link.submit(collect(outputs(tmp_path / "other"), number=2))
    told: list[Ended] = []

    def heard() -> list[Ended]:
        told.extend(link.ended())
        return told

    wait_until(heard, "the short job has ended", 30)
    assert [(ended.number, ended.problem) for ended in told] == [(2, None)]
    link.cancel(1)
    link.cancel(1)
    link.cancel(99)
    (ended,) = ends(link)
    assert ended.number == 1
    assert ended.problem is not None
    assert ended.problem.code == "cancelled"


def test_a_porter_that_does_not_answer_a_cancellation_is_ended(tmp_path: Path, store: Path, start: Start) -> None:
    clock = ManualClock()
    link = start(str(store), clock)
    link.submit(collect(endless(tmp_path)))
    os.kill(link.pid, signal.SIGSTOP)
    link.cancel(1)
    assert list(link.ended()) == []
    stuck = link.pid
    clock.advance_ms(60_000)
    (ended,) = link.ended()
    assert ended.problem is not None
    assert ended.problem.code == "artifact"
    assert not is_alive(stuck)


def test_closing_ends_the_process_whatever_it_is_at(tmp_path: Path, store: Path, start: Start) -> None:
    link = start(str(store))
    link.submit(collect(endless(tmp_path)))
    pid = link.pid
    link.close()
    assert not is_alive(pid)
    assert (link.busy(), link.fileno(), link.pid) == (False, -1, 0)


PARENT = """
import sys
from tenure.artifacts.jobs import Collect, StagingPlace
from tenure.artifacts.porter_link import PorterLink
from tenure.artifacts.porter_orders import PorterSettings
from tenure.clock import SystemClock
link = PorterLink(PorterSettings(address=sys.argv[1]), SystemClock())
place = StagingPlace(site="lab", task_id="0" * 26, fence=1, nonce="a" * 16)
link.submit(Collect(number=1, place=place, folder=sys.argv[2], most_files=10))
print(link.pid, flush=True)
sys.stdin.read()
"""


def test_a_porter_ends_with_its_parent(tmp_path: Path, store: Path) -> None:
    arguments = [sys.executable, "-c", PARENT, str(store), str(endless(tmp_path))]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert is_alive(pid)
        parent.kill()
    wait_until(lambda: not is_alive(pid), "the porter has ended with its parent")


def test_a_store_that_cannot_be_opened_is_said_by_the_job(tmp_path: Path, start: Start) -> None:
    link = start(str(tmp_path / "missing"))
    problem = do(link, collect(outputs(tmp_path))).problem
    assert problem is not None
    assert problem.code == "artifact_store_unreachable"
    (tmp_path / "missing").mkdir()
    assert do(link, collect(tmp_path / "outputs", number=2)).problem is None


def test_the_coordinators_porter_makes_the_folder(tmp_path: Path, start: Start) -> None:
    link = start(str(tmp_path / "made"), copies=str(tmp_path / "copies"))
    assert do(link, collect(outputs(tmp_path))).problem is None
    assert (tmp_path / "made" / "staging").is_dir()


def test_an_upload_that_was_killed_half_way_goes_on_and_leaves_no_half_object(
    tmp_path: Path, store: Path, start: Start
) -> None:
    folder, raw_size = endless(tmp_path, 600 * MIB), 600 * MIB
    link = start(str(store))
    link.submit(collect(folder))
    wait_until(lambda: any(path.stat().st_size for path in store.rglob("staging/*/*/*/*")), "something is staged", 30)
    os.kill(link.pid, signal.SIGKILL)
    (ended,) = ends(link)
    assert ended.problem is not None
    (partial,) = store.rglob("staging/*/*/*/*")
    assert 0 < partial.stat().st_size < raw_size
    assert list(open_store(str(store)).objects()) == []

    done = do(link, collect(folder, number=2))
    assert done.bundle is not None
    assert do(link, Promote(number=3, place=STAGING, bundle=done.bundle, last=True)).problem is None
    assert max(stored.blob.size for stored in open_store(str(store)).objects()) == raw_size


def carried(link: PorterLink, folder: Path, size: int, numbers: Iterator[int]) -> int:
    """The porter's peak memory when a file of that size was staged, verified, promoted and fetched."""
    (folder / "outputs").mkdir()
    with (folder / "outputs" / "large").open("wb") as file:
        for seed in range(size // (4 * MIB)):
            file.write(noise(64, seed) + bytes(4 * MIB - 64))
    bundle = do(link, collect(folder / "outputs", number=next(numbers)), 900).bundle
    assert bundle is not None
    for job in (
        Verify(number=next(numbers), place=STAGING, bundle=bundle),
        Promote(number=next(numbers), place=STAGING, bundle=bundle, last=True),
        Fetch(number=next(numbers), folder=str(folder / "new"), wanted=(Input(path="in", content=bundle),)),
    ):
        assert do(link, job, 900).problem is None
    assert (folder / "new" / "in" / "large").stat().st_size == size
    return peak_bytes(link.pid)


def test_a_large_file_needs_little_memory_in_a_folder_store(tmp_path: Path, store: Path, start: Start) -> None:
    assert carried(start(str(store)), tmp_path, 300 * MIB, count(1)) < BOUND


@pytest.mark.timeout(300)
def test_a_large_file_needs_little_memory_in_an_object_store(tmp_path: Path, s3: S3Server, start: Start) -> None:
    link = start(f"s3://{BUCKET}/large", options=s3.options)
    # Less than in a folder, because the server is slow; the memory depends on the parts and not on the size.
    assert carried(link, tmp_path, 100 * MIB, count(1)) < BOUND


@pytest.mark.slow
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("kind", ["folder", "s3"])
def test_two_gibibytes_need_little_memory(tmp_path: Path, store: Path, s3: S3Server, start: Start, kind: str) -> None:
    link = start(str(store)) if kind == "folder" else start(f"s3://{BUCKET}/huge", options=s3.options)
    assert carried(link, tmp_path, 2048 * MIB, count(1)) < BOUND


def test_variables_reach_the_library_without_the_environment_of_the_process(
    tmp_path: Path, s3: S3Server, start: Start
) -> None:
    environment = {
        "AWS_ACCESS_KEY_ID": "id",
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{s3.port}",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    link = start(f"s3://{BUCKET}/env", environment=environment)
    ended = do(link, collect(outputs(tmp_path)))
    assert ended.problem is None
    assert open_store(f"s3://{BUCKET}/env", s3.options).staged_bytes(PLACE, blob_of(b"some bytes")) == 10
