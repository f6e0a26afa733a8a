"""The running task's context."""

import asyncio
import logging
from pathlib import Path
from threading import Thread

import pytest

import tenure
from tenure.handlers.context import NoRun, RunContext, running
from tests.fixtures_handlers import exponent


class Recorder:
    """A context that remembers what it was told."""

    task_id = "0" * 26
    attempt = 2
    fence = 9
    logger = logging.getLogger("recorder")

    def __init__(self) -> None:
        self.told: list[tuple[float, str]] = []

    folder = inputs = outputs = Path()
    checkpoint: Path | None = None

    def progress(self, fraction: float, message: str = "", **metrics: object) -> None:
        self.told.append((fraction, message))

    def cancelled(self) -> bool:
        return True

    def save_checkpoint(self, name: str) -> None:
        self.told.append((0, name))

    def secret(self, name: str) -> str:
        return name


def test_outside_a_fleet_the_double_does_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    run = tenure.current()
    run.progress(0.5, "half")
    assert (run.task_id, run.attempt, run.fence, run.cancelled()) == ("", 0, 0, False)
    assert run.logger.name == "tenure.task"
    assert capsys.readouterr() == ("", "")


def test_inside_a_fleet_a_handler_reaches_its_own_context() -> None:
    recorder: Recorder = Recorder()
    context: RunContext = recorder
    with running(context):
        assert exponent(1.0, 2) == 0.5
        assert tenure.current() is recorder
    assert recorder.told == [(0.5, "integrating")]
    assert isinstance(tenure.current(), NoRun)


def test_the_context_ends_with_its_block_even_when_that_raises() -> None:
    with pytest.raises(RuntimeError), running(Recorder()):
        raise RuntimeError
    assert isinstance(tenure.current(), NoRun)


def test_concurrent_coroutines_have_contexts_of_their_own() -> None:
    async def ask(context: Recorder) -> bool:
        with running(context):
            await asyncio.sleep(0)
            in_thread = await asyncio.to_thread(tenure.current)
            return tenure.current() is context and in_thread is context

    async def both() -> list[bool]:
        return list(await asyncio.gather(ask(Recorder()), ask(Recorder())))

    assert asyncio.run(both()) == [True, True]


def test_a_bare_thread_sees_no_context() -> None:
    seen: list[object] = []
    with running(Recorder()):
        thread = Thread(target=lambda: seen.append(tenure.current()))
        thread.start()
        thread.join()
    assert isinstance(seen[0], NoRun)
