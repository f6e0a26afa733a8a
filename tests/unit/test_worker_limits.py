"""What a command uses is counted so that nothing in its tree counts twice."""

from collections.abc import Callable

from tenure.workers.limits import shared_out

MIB = 1024 * 1024


def readings(**shares: list[int]) -> Callable[[int], int]:
    """Answers each process's shares in MiB one after the other, as they are asked for."""
    left = {int(pid[1:]): iter(values) for pid, values in shares.items()}
    return lambda pid: next(left[pid]) * MIB


def test_what_processes_use_all_the_time_is_added_up() -> None:
    assert shared_out([1, 2], readings(p1=[60, 60], p2=[70, 70])) == 130 * MIB


def test_a_fork_between_two_readings_counts_nothing_twice() -> None:
    assert shared_out([1, 2, 3, 4], readings(p1=[60, 15], p2=[30, 15], p3=[20, 15], p4=[15, 15])) == 60 * MIB


def test_an_end_between_two_readings_counts_nothing_twice() -> None:
    assert shared_out([1, 2], readings(p1=[30, 60], p2=[30, 0])) == 30 * MIB
