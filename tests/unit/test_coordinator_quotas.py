"""A site can make the coordinator keep only so much for good."""

from tenure.coordinator.quotas import Quotas, SiteQuotas

RULES = SiteQuotas(workers=9, names=3, names_per_s=1, evidence_bytes=1_000, evidence_bytes_per_s=100)


def quotas() -> Quotas:
    return Quotas(RULES, free=("default",))


def test_names_run_out_and_come_back_with_time() -> None:
    of = quotas()
    assert [of.may_name("lab", f"lab.{number}", 0, 0) for number in range(5)] == [True, True, True, False, False]
    assert not of.may_name("lab", "lab.9", 0, 999)
    assert of.may_name("lab", "lab.9", 0, 1_000)
    assert not of.may_name("lab", "lab.10", 0, 1_000)


def test_a_name_that_was_told_before_uses_nothing() -> None:
    of = quotas()
    assert all(of.may_name("lab", "lab.1", 0, 0) for _ in range(9))
    assert of.may_name("lab", "lab.2", 0, 0)
    assert of.may_name("lab", "lab.3", 0, 0)
    assert not of.may_name("lab", "lab.4", 0, 0)


def test_names_that_are_remembered_are_no_more_than_the_quota() -> None:
    of = quotas()
    for number in range(4):
        assert of.may_name("lab", f"lab.{number}", 0, number * 1_000)
    assert of.may_name("lab", "lab.3", 0, 3_000)
    assert of.may_name("lab", "lab.0", 0, 3_000)  # forgotten, and paid for again
    assert of.may_name("lab", "lab.5", 0, 3_000)
    assert not of.may_name("lab", "lab.6", 0, 3_000)


def test_evidence_runs_out_and_comes_back_with_time() -> None:
    of = quotas()
    assert [of.may_keep("lab", 400, 0) for _ in range(3)] == [True, True, False]
    assert of.may_keep("lab", 200, 0)
    assert not of.may_keep("lab", 400, 3_999)
    assert of.may_keep("lab", 400, 4_000)
    assert not of.may_keep("lab", 1_001, 10_000_000)


def test_each_site_has_quotas_of_its_own_and_the_free_one_none() -> None:
    of = quotas()
    assert of.may_keep("lab", 1_000, 0)
    assert of.may_keep("desk", 1_000, 0)
    assert all(of.may_keep("default", 1_000_000, 0) and of.may_name("default", f"w{n}", 10_000, 0) for n in range(99))


def test_a_site_has_only_so_many_workers_at_once() -> None:
    of = quotas()
    assert of.may_name("lab", "lab.1", 8, 0)
    assert not of.may_name("lab", "lab.2", 9, 0)
