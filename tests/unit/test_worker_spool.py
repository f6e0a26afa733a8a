"""The spool: what an agent's death, a torn line and a full disk do to results."""

import errno
import logging
import os
from pathlib import Path

import pytest

from tenure.protocol.envelope import Scope
from tenure.protocol.worker_messages import Binding, Cause, Finished, Outcome, Released
from tenure.workers.spool import Spool

Report = Finished | Released


def report(fence: int, value: str = "1") -> Finished:
    binding = Binding(task_id=f"{fence:026d}", attempt=1, fence=fence, digest="a" * 64, nonce="b" * 32)
    return Finished(binding=binding, scope=Scope(world="w", run="r"), outcome=Outcome(value=value), duration_ms=1)


def entry(one: Report) -> tuple[tuple[str, int], bytes]:
    return (one.binding.task_id, one.binding.fence), one.model_dump_json().encode()


def reopened(path: Path) -> list[Report]:
    spool = Spool(path)
    reports = spool.load()
    spool.close()
    return reports


def test_reports_survive_the_agent(tmp_path: Path) -> None:
    path = tmp_path / "spool"
    spool = Spool(path)
    release = Released(binding=report(3).binding, cause=Cause.CANCELLED, started=True, tree_gone=True)
    spool.add([entry(report(1)), entry(report(2))], safely=False)
    spool.add([entry(release)], safely=True)
    spool.close()
    assert reopened(path) == [report(1), report(2), release]


def test_the_file_is_emptied_when_everything_is_answered(tmp_path: Path) -> None:
    path = tmp_path / "spool"
    spool = Spool(path)
    spool.add([entry(report(1)), entry(report(2))], safely=False)
    spool.forget(entry(report(1))[0])
    spool.tidy()
    assert path.stat().st_size > 0
    spool.forget(entry(report(2))[0])
    spool.tidy()
    assert path.stat().st_size == 0
    spool.add([entry(report(3))], safely=False)
    spool.close()
    assert reopened(path) == [report(3)]


def test_a_torn_last_line_is_skipped(tmp_path: Path) -> None:
    path = tmp_path / "spool"
    spool = Spool(path)
    spool.add([entry(report(1)), entry(report(2))], safely=False)
    spool.close()
    os.truncate(path, path.stat().st_size - 5)
    assert reopened(path) == [report(1)]
    assert reopened(path) == [report(1)]


def test_a_line_that_is_no_report_is_skipped_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "spool"
    path.write_bytes(b'{"kind":"nonsense"}\n' + entry(report(1))[1] + b"\n")
    with caplog.at_level(logging.WARNING):
        assert reopened(path) == [report(1)]
    assert "could not be read" in caplog.text


def test_a_long_file_is_written_anew_with_what_is_open(tmp_path: Path) -> None:
    path = tmp_path / "spool"
    spool = Spool(path)
    large = '"' + "x" * 200_000 + '"'
    for fence in range(1, 60):
        spool.add([entry(report(fence, large))], safely=False)
        if fence > 1:
            spool.forget(entry(report(fence))[0])
        spool.tidy()
    assert path.stat().st_size < 8 * 1024 * 1024
    spool.close()
    assert report(1, large) in reopened(path)


def test_a_full_disk_keeps_reports_in_memory_and_says_so_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "spool"
    spool = Spool(path)

    def refuse(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    caplog.set_level(logging.WARNING, logger="tenure")
    with monkeypatch.context() as full:
        full.setattr(os, "write", refuse)
        spool.add([entry(report(1))], safely=True)
        spool.add([entry(report(2))], safely=True)
    assert caplog.text.count("kept in memory") == 1
    spool.add([entry(report(3))], safely=False)
    assert "again" in caplog.text
    spool.close()
    assert reopened(path) == [report(1), report(2), report(3)]
