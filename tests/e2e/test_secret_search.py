"""The search for secrets finds what is there, and does not stop unseen."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.secret_search import MARKER, ProcessWatch, found, found_below
from tests.waiting import wait_until


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """Three processes, of which one has ended between its being listed and its being read."""
    for number, words in {"12": "worker\0--label", "13": f"note={MARKER}"}.items():
        (tmp_path / number).mkdir()
        (tmp_path / number / "cmdline").write_text(words)
        (tmp_path / number / "environ").write_text("A=open")
    (tmp_path / "14").mkdir()
    (tmp_path / "meminfo").touch()
    return tmp_path


def test_a_word_is_found_where_it_is() -> None:
    assert found(b"a secret in a line", ["secret", "another"]) == {"secret"}
    assert found(f"and a {MARKER}".encode(), ["secret"]) == {MARKER}


def test_every_file_is_looked_at_but_those_where_it_may_be(tmp_path: Path) -> None:
    for name in ("fleet.db", "logs/w1.log", "credentials/lab.url"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("secret")

    seen = found_below(tmp_path, ["secret"], without=tmp_path / "credentials")

    assert seen == {"fleet.db": {"secret"}, "logs/w1.log": {"secret"}}


def test_what_a_process_was_started_with_is_found_also_after_its_end(proc: Path) -> None:
    with ProcessWatch(proc) as watch:
        wait_until(lambda: watch.rounds > 1, "it has looked twice")
        (proc / "13" / "cmdline").unlink()
        rounds = watch.rounds
        wait_until(lambda: watch.rounds > rounds + 1, "it goes on looking")

        assert watch.seen(["--label", "open", "closed"]) == {"cmdline": {"--label", MARKER}, "environ": {"open"}}


def test_a_watch_that_cannot_look_says_so(proc: Path) -> None:
    (proc / "14" / "cmdline").mkdir()

    with pytest.raises(IsADirectoryError), ProcessWatch(proc) as watch:
        wait_until(lambda: not watch.seen([]), "it is found out")
