"""What a broker has been through, told by run id and marker, and which settings are refused."""

from dataclasses import replace

import pytest

from tenure.broker.base import BrokerState
from tenure.broker.incarnation import Incarnation, compare, require_safe
from tenure.errors import BrokerUnsafe

KNOWN = BrokerState(run_id="r1", marker="m1", version="valkey 9", eviction_policy="noeviction")


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (KNOWN, Incarnation.SAME),
        (replace(KNOWN, version="valkey 10"), Incarnation.SAME),
        (replace(KNOWN, run_id="r2"), Incarnation.RESTARTED_WITH_DATA),
        (replace(KNOWN, marker=""), Incarnation.LOST_DATA),
        (replace(KNOWN, marker="m0"), Incarnation.LOST_DATA),
        (replace(KNOWN, run_id="r2", marker=""), Incarnation.LOST_DATA),
    ],
)
def test_two_looks_are_compared(found: BrokerState, expected: Incarnation) -> None:
    assert compare(KNOWN, found) is expected


@pytest.mark.parametrize("known", [None, replace(KNOWN, marker="")])
def test_who_has_set_no_marker_counts_on_nothing(known: BrokerState | None) -> None:
    assert compare(known, replace(KNOWN, marker="")) is Incarnation.LOST_DATA


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl", ""])
def test_a_broker_that_may_evict_is_refused_with_the_remedy(policy: str) -> None:
    with pytest.raises(BrokerUnsafe) as caught:
        require_safe(replace(KNOWN, eviction_policy=policy))

    assert policy in caught.value.message
    assert "CONFIG SET maxmemory-policy noeviction" in caught.value.remedy


def test_a_broker_that_never_evicts_is_safe() -> None:
    require_safe(KNOWN)
