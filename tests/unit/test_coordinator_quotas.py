"""A site can make the coordinator keep only so much for good."""

from tenure.coordinator.quotas import Quotas, SiteQuotas

DAY_MS = 86_400_000
LAB = frozenset({"lab"})
RULES = SiteQuotas(workers=9, executors=3, executors_per_s=1, records_per_day=20, evidence_bytes_per_day=5_000)


def quotas() -> Quotas:
    return Quotas(RULES, free=("default",))


def named(of: Quotas, name: str, now_ms: int = 0, *, present: int = 0, executor: bool = False) -> bool:
    return of.may_name("lab", name, present, now_ms, is_executor=executor)


def test_names_run_out_and_come_back_within_a_day() -> None:
    of = quotas()
    assert [named(of, f"lab.{number}") for number in range(7)] == [True] * 5 + [False] * 2
    assert not named(of, "lab.9", DAY_MS // 10 - 1)
    assert named(of, "lab.9", DAY_MS // 10)
    assert not named(of, "lab.10", DAY_MS // 10)


def test_names_of_executors_come_back_within_seconds_and_leave_the_others_alone() -> None:
    of = quotas()
    assert [named(of, f"lab.{number}", executor=True) for number in range(4)] == [True, True, True, False]
    assert not named(of, "lab.9", 999, executor=True)
    assert named(of, "lab.9", 1_000, executor=True)
    assert named(of, "lab.10", 1_000)


def test_a_name_that_was_told_before_uses_nothing() -> None:
    of = quotas()
    assert all(named(of, "lab.1") for _ in range(9))
    assert [named(of, f"lab.{number}") for number in range(2, 7)] == [True] * 4 + [False]


def test_the_name_of_an_executor_is_not_good_for_a_worker_that_stays() -> None:
    of = quotas()
    for number in range(3):
        assert named(of, f"lab.{number}", executor=True)
        assert named(of, f"lab.{number}")
    assert of.shown("lab", 0)["records_left"] == 14


def test_names_that_are_remembered_are_no_more_than_there_may_be_workers() -> None:
    of = quotas()
    for number in range(10):
        assert named(of, f"lab.{number}", number * 1_000, executor=True)
    assert named(of, "lab.9", 9_000, executor=True)
    assert of.may_name("lab", "lab.0", 0, 9_000, is_executor=True)  # forgotten, and paid for again
    assert [named(of, f"lab.{number}", 9_000, executor=True) for number in (20, 21)] == [True, False]


def kept(of: Quotas, size: int, now_ms: int, site: str = "lab") -> bool:
    may = of.may_keep(site, size, now_ms)
    if may:
        of.note_kept(site, size, now_ms)
    return may


def test_evidence_that_was_kept_before_uses_nothing() -> None:
    of = quotas()
    assert all(of.may_keep("lab", 3_000, 0) for _ in range(9))
    assert kept(of, 3_000, 0)
    assert not of.may_keep("lab", 3_000, 0)


def test_evidence_runs_out_and_comes_back_within_a_day_and_each_piece_costs_a_record_too() -> None:
    of = quotas()
    assert [kept(of, 1_000, 0) for _ in range(3)] == [True, True, False]
    assert not kept(of, 3_976, DAY_MS // 2)
    assert kept(of, 3_976, DAY_MS)
    assert not kept(of, 3_977, 9 * DAY_MS)


def test_events_of_workers_run_out() -> None:
    of = quotas()
    assert [of.may_record("lab", 0) for _ in range(12)] == [True] * 10 + [False] * 2
    assert of.may_record("lab", DAY_MS // 20)


def test_what_workers_do_leaves_half_of_the_records_to_offers() -> None:
    of = quotas()
    for number in range(99):
        of.may_record("lab", 0)
        named(of, f"lab.{number}")
    assert of.without_records(0) == frozenset()
    assert of.shown("lab", 0)["records_left"] == 10


def test_a_site_whose_offers_come_to_nothing_is_without_records_until_time_has_paid() -> None:
    of = quotas()
    for _ in range(5):
        assert of.without_records(0) == frozenset()
        of.note_undone("lab", 0)
    of.note_undone("lab", 0)
    assert of.without_records(0) == LAB
    assert of.compare(0) == (LAB, frozenset())
    assert of.is_first("lab", "offers")
    later_ms = DAY_MS * 8 // 20  # a debt of four, and four for the next offer
    assert of.without_records(later_ms - 1) == LAB
    assert of.compare(later_ms) == (frozenset(), LAB)
    of.note_undone("lab", later_ms)
    assert of.compare(later_ms) == (LAB, frozenset())
    assert not of.is_first("lab", "offers")


def test_what_is_refused_is_counted_and_the_first_is_told_apart() -> None:
    of = quotas()
    assert not of.is_first("lab", "evidence")
    firsts: list[bool] = []
    for _ in range(3):
        of.may_keep("lab", 10_000, 0)
        firsts.append(of.is_first("lab", "evidence"))
    assert firsts == [True, False, False]
    assert of.shown("lab", 0) == {
        "records_left": 20,
        "workers_not_answered": 0,
        "events_not_recorded": 0,
        "evidence_not_kept": 3,
    }


def test_each_site_has_quotas_of_its_own_and_the_free_one_none() -> None:
    of = quotas()
    assert kept(of, 3_000, 0)
    assert kept(of, 3_000, 0, "desk")
    for number in range(99):
        assert kept(of, 1_000_000, 0, "default")
        assert of.may_name("default", f"w{number}", 10_000, 0, is_executor=False)
        assert of.may_record("default", 0)
        of.note_undone("default", 0)
    assert of.without_records(0) == frozenset()
    assert of.shown("default", 0) == {}


def test_a_site_has_only_so_many_workers_at_once() -> None:
    of = quotas()
    assert named(of, "lab.1", present=8)
    assert not named(of, "lab.2", present=9)


def test_the_quotas_are_wide_enough_for_a_large_site_that_starts_anew_all_day() -> None:
    """A thousand workers, every half hour under new names, each giving back what it had in hand; here a fiftieth."""
    of = Quotas(SiteQuotas(records_per_day=SiteQuotas().records_per_day // 50), free=())
    for hour in range(48):
        now_ms = hour * 1_800_000
        for number in range(20):
            assert of.may_name("lab", f"lab.{hour}.{number}", 20, now_ms, is_executor=False)
            assert of.may_record("lab", now_ms)
            assert of.may_record("lab", now_ms)
            of.note_undone("lab", now_ms)
        assert of.without_records(now_ms) == frozenset()
