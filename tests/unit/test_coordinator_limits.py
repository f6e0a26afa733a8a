"""A site that floods its inbox is held back, and nobody else is."""

from itertools import count

from tenure.broker.base import Backlog, Delivery, EntryId
from tenure.coordinator.limits import InboxLimits, SiteLimits

NUMBERS = count(1)
RULES = SiteLimits(
    units_per_s=1_000, burst=500, units_per_turn=100, most_waiting=50, most_waiting_bytes=100_000, kept_waiting=10
)


def limits() -> InboxLimits:
    return InboxLimits(RULES, free=("default",))


def entry(site: str, raw: bytes = b"{}", *, person: str = "") -> Delivery:
    return Delivery(EntryId(1, next(NUMBERS)), raw, site=site, person=person)


def taken(of: InboxLimits, now_ms: int = 0) -> list[Delivery]:
    return list(of.ration(now_ms))


def test_requests_and_sites_without_limits_pass_at_once() -> None:
    received = [entry("", person="ada"), entry("default"), entry("lab")]
    of = limits()
    assert of.arrived(received, 64, 0) == received[:2]
    assert taken(of) == received[2:]


def test_a_turn_takes_a_share_of_each_site_in_order_and_keeps_the_rest() -> None:
    of = limits()
    flood, other = [entry("lab") for _ in range(200)], [entry("desk")]
    of.arrived(flood + other, 64, 0)
    assert taken(of) == flood[:50] + other  # an entry is one unit, and one for its object
    assert taken(of, 1) == flood[50:100]
    assert of.shown("lab")["inbox_held_back"] == 100
    assert of.shown("lab")["inbox_turns_held_back"] == 2
    assert of.shown("desk")["inbox_turns_held_back"] == 0


def test_an_allowance_ends_and_comes_back_with_time() -> None:
    of = limits()
    of.arrived([entry("lab") for _ in range(400)], 64, 0)
    assert [len(taken(of)) for _ in range(6)] == [50] * 5 + [0]
    assert of.wait_ms(0) == 1
    assert len(taken(of, 20)) == 10  # two units each
    assert len(taken(of, 10_000)) == 50
    assert [len(taken(of, 10_000)) for _ in range(5)] == [50, 40, 0, 0, 0]  # never more than the burst


def test_a_large_entry_is_taken_whole_and_paid_for_later() -> None:
    of = limits()
    large, small = entry("lab", b"{" * 3_000), entry("lab")
    of.arrived([large, small], 64, 0)
    assert taken(of) == [large]
    assert taken(of, 1_000) == []
    assert of.wait_ms(1_000) == 1_503
    assert taken(of, 2_503) == [small]


def test_bytes_count_too() -> None:
    of = limits()
    of.arrived([entry("lab", bytes(2_048 * 60)), entry("lab"), entry("lab")], 64, 0)
    assert len(taken(of)) == 3
    of.arrived([entry("lab", bytes(2_048 * 110)), entry("lab")], 64, 10_000)
    assert len(taken(of, 10_000)) == 1


def test_what_cannot_be_read_ends_the_share_at_once() -> None:
    of = limits()
    received = [entry("lab", b"x" * 1_600) for _ in range(3)]
    of.arrived(received, 64, 0)
    for delivery in of.ration(0):
        of.charge_unreadable(delivery)
    assert of.shown("lab")["inbox_held_back"] == 2


def test_the_time_that_is_lost_to_an_entry_costs_what_its_site_may_have_of_it() -> None:
    of = limits()
    of.arrived([entry("lab"), entry("lab")], 64, 0)
    of.charge_unreadable(entry("lab"), 498)  # units, and one for the entry: one is left of the allowance
    assert len(taken(of)) == 1
    of.arrived([entry("desk")], 64, 0)
    of.charge_unreadable(entry("desk"), 3_600_000)
    assert of.wait_ms(0) == 2  # never more than the whole allowance


def test_a_site_in_debt_or_with_something_held_is_not_read() -> None:
    of = limits()
    assert of.readable(("default", "lab", "desk"), 0) == (("default", "lab", "desk"), ())
    of.arrived([entry("lab", b"{" * 600)], 64, 0)
    assert of.readable(("default", "lab", "desk"), 0) == (("default", "desk"), ())
    taken(of)
    assert of.readable(("default", "lab", "desk"), 0) == (("default", "desk"), ())
    assert of.readable(("default", "lab", "desk"), 102) == (("default", "lab", "desk"), ())


def test_a_site_with_more_than_was_asked_for_is_read_by_itself_until_it_is_quiet() -> None:
    of = limits()
    of.arrived([entry("lab") for _ in range(4)], 4, 0)
    taken(of)
    assert of.readable(("lab", "desk"), 0) == (("desk",), ("lab",))
    assert of.wait_ms(0) == 0
    of.arrived([entry("lab")], 4, 0)
    of.quiet(("lab",))
    taken(of)
    assert of.readable(("lab", "desk"), 0) == (("lab", "desk"), ())
    assert of.wait_ms(0) is None


def test_a_site_that_was_read_by_itself_and_had_nothing_is_quiet() -> None:
    of = limits()
    of.arrived([entry("lab") for _ in range(4)], 4, 0)
    taken(of)
    of.quiet(("lab",))
    assert of.wait_ms(0) is None


def test_a_site_that_is_gone_is_waited_for_no_more() -> None:
    of = limits()
    of.arrived([entry("lab") for _ in range(99)], 4, 0)
    of.readable(("desk",), 0)
    assert of.wait_ms(0) is None
    assert taken(of) == []


def test_what_waits_is_dropped_when_it_is_about_to_come_again() -> None:
    of = limits()
    of.arrived([entry("lab"), entry("lab")], 64, 0)
    of.forget()
    assert taken(of) == []


def test_inboxes_beyond_all_measure_are_cut() -> None:
    of = limits()
    of.readable(("default", "lab", "desk"), 0)
    waiting = {"default": Backlog(10_000, 10**9), "lab": Backlog(51, 100_000), "desk": Backlog(50, 100_000)}
    assert of.floods(waiting) == {"lab": 10}
    assert of.was_cut("lab", 41)
    assert not of.was_cut("lab", 41)
    assert of.shown("lab") == {"inbox_waiting": 51, "inbox_held_back": 0, "inbox_turns_held_back": 0, "inbox_cut": 82}


def test_inboxes_that_weigh_much_are_cut_sooner() -> None:
    of = limits()
    of.readable(("lab",), 0)
    assert of.floods({"lab": Backlog(5, 100_000)}) == {}
    assert of.floods({"lab": Backlog(6, 120_000)}) == {"lab": 2}
    assert of.floods({"lab": Backlog(1, 100_001)}) == {"lab": 0}


def test_bytes_that_mean_nothing_cost_what_others_cost() -> None:
    of = limits()
    padded = Delivery(EntryId(1, next(NUMBERS)), b"{}", site="lab", size=2_048 * 110)
    of.arrived([padded, entry("lab")], 64, 0)
    assert len(taken(of)) == 1
    of.charge_unreadable(padded)
    assert (of.wait_ms(0) or 0) > 10_000


def test_what_is_too_dear_is_not_afforded_until_the_debt_is_paid() -> None:
    of = limits()
    assert of.afford("lab", 1_000, 0)
    assert not of.afford("lab", 1, 0)
    assert of.afford("desk", 1, 0)
    assert of.afford("lab", 1, 501)


def test_a_site_that_was_never_heard_has_nothing_to_show() -> None:
    assert limits().shown("lab") == {
        "inbox_waiting": 0,
        "inbox_held_back": 0,
        "inbox_turns_held_back": 0,
        "inbox_cut": 0,
    }
