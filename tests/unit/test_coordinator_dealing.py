"""Which site gets the next task when several could take it."""

from collections import Counter

from tenure.coordinator.dealing import Deal, Idle


def test_the_site_that_holds_least_is_first() -> None:
    deal = Deal({"a": 3, "b": 3}, {"a": 2, "b": 0}, ())

    assert [deal.next() for _ in range(6)] == ["b", "b", "a", "b", "a", "a"]


def test_a_site_that_says_it_has_endless_room_gets_no_more_than_others() -> None:
    deal = Deal({"boaster": 4_000, "honest": 5}, {}, ())

    assert Counter(deal.next() for _ in range(10)) == {"boaster": 5, "honest": 5}


def test_nobody_is_given_more_than_there_is_room_for() -> None:
    deal = Deal({"a": 1, "b": 2}, {}, ())

    assert deal.room == 3
    assert [deal.next() for _ in range(4)] == ["a", "b", "b", ""]


def test_a_site_that_lets_offers_lie_comes_last() -> None:
    deal = Deal({"a": 2, "b": 2}, {"b": 9}, {"a"})

    assert [deal.next() for _ in range(4)] == ["b", "b", "a", "a"]


def test_a_site_that_does_not_fit_keeps_its_turn() -> None:
    deal = Deal({"a": 1, "b": 1}, {}, ())

    assert deal.next(lambda site: site == "b") == "b"
    assert deal.next(lambda site: site == "b") == ""
    assert deal.next() == "a"


def test_a_site_without_room_is_not_in_the_deal() -> None:
    assert Deal({}, {"a": 1}, {"a"}).next() == ""


def test_a_site_is_idle_until_it_has_held_a_later_lease_for_long() -> None:
    idle = Idle()
    idle.add("a", 1_000)
    idle.note_hold("a", 900, 100_000)  # it had this one before
    idle.note_hold("a", 1_001, 61_000)
    idle.note_hold("b", 1_001, 61_001)
    assert list(idle) == ["a"]
    idle.note_hold("a", 1_001, 61_001)
    assert len(idle) == 0
    assert "a" not in idle
