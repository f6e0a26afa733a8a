"""What is made to hold the coordinator up is refused without being read to its end."""

import pytest
from pydantic import ValidationError

from tenure.errors import MalformedMessage
from tenure.protocol.message import decode, describe
from tenure.protocol.principal_messages import GrantSite
from tenure.protocol.worker_messages import HEARTBEAT, MOST_EVENTS, REPORT, Binding, Cause, Failure, Released, Report

FRAME = '{"worker_id":"a","generation":1,"window":1,"events":[%s]}'
BEAT = '{"generation":1,"sequence":1,"window":1,"held":[%s]}'
HELLO = '{"kind":"hello","slots":1,"capabilities":["a"],"ttl_ms":10000,"held":[%s]}'


def fields(count: int) -> str:
    return "{" + ",".join(f'"{number}":1' for number in range(count)) + "}"


@pytest.mark.parametrize("text", [fields(5_000), FRAME % fields(5_000), BEAT % fields(5_000)])
def test_an_object_with_a_crowd_of_fields_is_not_complained_of_field_by_field(text: str) -> None:
    with pytest.raises(MalformedMessage, match="far more fields"):
        decode(REPORT, text.encode())


def test_a_full_report_with_long_texts_is_no_crowd() -> None:
    binding = Binding(task_id="0" * 26, attempt=1, fence=1, digest="0" * 64, nonce="0" * 16)
    event = Released(binding=binding, cause=Cause.REFUSED, started=False, tree_gone=True, detail=":" * 2_000)
    full = Report(worker_id="a", generation=1, window=1, events=(event,) * MOST_EVENTS)
    assert decode(REPORT, full.model_dump_json().encode()) == full


@pytest.mark.parametrize("text", [FRAME % ",".join(["{}"] * 200), FRAME % (HELLO % ",".join(["{}"] * 200))])
def test_the_first_event_or_hold_that_cannot_be_read_ends_the_reading(text: str) -> None:
    with pytest.raises(ValidationError) as refused:
        REPORT.validate_json(text)
    assert refused.value.error_count() <= 3


def test_the_first_hold_of_a_heartbeat_that_cannot_be_read_ends_the_reading() -> None:
    with pytest.raises(ValidationError) as refused:
        HEARTBEAT.validate_json(BEAT % ",".join(["{}"] * 200))
    assert refused.value.error_count() == 3


@pytest.mark.parametrize(
    ("event", "why"),
    [
        ('{"kind":"released",%s,"cause":"unstarted","started":true,"tree_gone":true}', "given back as unstarted"),
        ('{"kind":"released",%s,"cause":"refused","started":true,"tree_gone":true}', "given back as refused"),
        ('{"kind":"released",%s,"cause":"site_revoked","started":true,"tree_gone":true}', "coordinator's to say"),
        ('{"kind":"released",%s,"cause":"site_revoked","started":false,"tree_gone":true}', "coordinator's to say"),
        ('{"kind":"executor_gone",%s,"cause":"site_revoked","proved":true}', "coordinator's to say"),
    ],
)
def test_nobody_gives_a_reason_that_is_not_its_to_give(event: str, why: str) -> None:
    binding = (
        f'"binding":{Binding(task_id="0" * 26, attempt=1, fence=1, digest="0" * 64, nonce="0" * 16).model_dump_json()}'
    )
    with pytest.raises(MalformedMessage, match=why):
        decode(REPORT, (FRAME % (event % binding)).encode())


@pytest.mark.parametrize("code", [2**53, -(2**53), 10**4_000])
def test_an_exit_code_is_a_number_that_every_reader_takes(code: int) -> None:
    with pytest.raises(ValidationError, match="exit_code"):
        Failure.model_validate_json(f'{{"kind":"exit_code","message":"","exit_code":{code}}}')


def test_more_events_than_a_report_may_have_are_refused() -> None:
    text = FRAME % ",".join(['{"kind":"leaving","gone":false}'] * (MOST_EVENTS + 1))
    with pytest.raises(MalformedMessage, match="events"):
        decode(REPORT, text.encode())


@pytest.mark.parametrize(
    ("capabilities", "most_leases", "said"),
    [
        (
            ("a b",),
            None,
            "capabilities.0: a name has 1 to 64 letters, digits, _, - and ., and begins with none of the last two",
        ),
        ((), None, "capabilities: Tuple should have at least 1 item after validation, not 0"),
        (("cpu",), -1, "most_leases: it must be at least 0"),
        (("cpu",), 2**53, "most_leases: it must be at most 9007199254740991"),
    ],
    ids=["a name", "none", "too few", "too many"],
)
def test_each_mistake_is_told_once_and_plainly(capabilities: tuple[str, ...], most_leases: int, said: str) -> None:
    with pytest.raises(ValidationError) as refused:
        GrantSite(site="lab", capabilities=capabilities, most_leases=most_leases)
    assert describe(refused.value) == said
