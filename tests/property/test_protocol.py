"""Statements about all envelopes, all bytes and all durations."""

import json
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from tenure.client.calls import NO_ARGUMENTS, CallTemplate, envelope_text
from tenure.errors import MalformedMessage, PayloadTooLarge
from tenure.handlers.arguments import Parameters
from tenure.handlers.json_text import dump, parse, to_json
from tenure.handlers.options import TaskDefaults
from tenure.protocol.client_messages import MAIL, REQUEST
from tenure.protocol.control_messages import CONTROL
from tenure.protocol.durations import duration_ms
from tenure.protocol.envelope import (
    ENVELOPE,
    CallWork,
    CommandWork,
    Envelope,
    Requirements,
    Retry,
    Scope,
    digest,
    encode,
    open_envelope,
)
from tenure.protocol.message import decode
from tenure.protocol.worker_messages import HEARTBEAT, REPORT


def options_of(fields: dict[str, Any]) -> TaskDefaults:
    return TaskDefaults(**fields)


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
names = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,20}", fullmatch=True)
references = st.from_regex(r"[a-z_]{1,8}(\.[a-z]{1,8})?:[A-Za-z_]{1,8}", fullmatch=True)
pairs = st.lists(st.tuples(texts, texts), max_size=3).map(tuple)
works = st.one_of(
    st.builds(CallWork, handler=references, arguments=texts),
    st.builds(CommandWork, argv=st.lists(texts, min_size=1, max_size=4).map(tuple), env=pairs, stdin=texts),
)
scopes = st.builds(Scope, world=names, run=names)
retries = st.builds(Retry, lost=st.integers(0, 5), failed=st.integers(0, 5), backoff_ms=st.integers(0, 2**53 - 1))
said = st.fixed_dictionaries(
    {},
    optional={
        "capability": names,
        "retry": retries,
        "start": st.sampled_from(["granted", "claimed"]),
        "timeout_ms": st.integers(1, 2**53 - 1),
        "lease_ttl_ms": st.integers(1_000, 10**9),
        "priority": st.integers(-1000, 1000),
        "delay_ms": st.integers(0, 2**53 - 1),
        "worker": names,
        "labels": pairs,
        "resources": st.lists(st.tuples(names, st.integers(1, 9)), max_size=2).map(tuple),
        "label": texts,
    },
).map(options_of)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=10,
)
adapters: st.SearchStrategy[TypeAdapter[Any]] = st.sampled_from([MAIL, REQUEST, CONTROL, REPORT, HEARTBEAT, ENVELOPE])


@given(work=works, options=said, scope=scopes)
def test_an_envelope_survives_its_bytes(work: Any, options: TaskDefaults, scope: Scope) -> None:
    raw = envelope_text(work, options, scope).encode()
    opened = open_envelope(raw)
    assert opened.work == work
    assert opened.scope == scope
    assert opened.requirements == Requirements(
        worker=options.worker, labels=options.labels, resources=options.resources
    )
    assert encode(opened) == raw
    assert digest(encode(opened)) == digest(raw)


@given(work=works, scope=scopes)
def test_the_bytes_are_canonical(work: Any, scope: Scope) -> None:
    raw = encode(Envelope(work=work, scope=scope))
    fields = json.loads(raw)
    assert raw == json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    assert len(fields) == 2


@given(reference=references, arguments=texts, options=said, scope=scopes)
@example("a:b", NO_ARGUMENTS, TaskDefaults(), Scope(world="w", run="r"))
@example("a:b", '{"args":["\\u2400gap\\u2400"]}', TaskDefaults(label="\u2400gap\u2400"), Scope(world="w", run="r"))
@example("a:b", "\u2400gap\u2400", TaskDefaults(), Scope(world="w", run="r"))
def test_the_quick_way_to_an_envelope_gives_the_same_bytes(
    reference: str, arguments: str, options: TaskDefaults, scope: Scope
) -> None:
    quick = CallTemplate(reference, options, scope).envelope(arguments)
    assert quick == envelope_text(CallWork(handler=reference, arguments=arguments), options, scope)


@given(adapter=adapters, raw=st.binary(max_size=300))
def test_any_bytes_are_a_message_or_are_refused(adapter: TypeAdapter[Any], raw: bytes) -> None:
    try:
        decode(adapter, raw)
    except (MalformedMessage, PayloadTooLarge) as error:
        assert len(str(error)) < 2_000  # noqa: PT017 - most bytes are refused, some are a message


@given(adapter=adapters, value=json_values, secret=st.from_regex(r"SECRET[a-z]{5}", fullmatch=True))
def test_any_json_is_a_message_or_is_refused_without_repeating_it(
    adapter: TypeAdapter[Any], value: Any, secret: str
) -> None:
    for raw in ({secret: value}, {"kind": secret}, {"epoch": secret, "ask": {"kind": secret, secret: value}}, [secret]):
        try:
            decode(adapter, json.dumps(raw).encode())
        except (MalformedMessage, PayloadTooLarge) as error:
            assert secret not in str(error)  # noqa: PT017 - either outcome is right


@given(value=json_values)
def test_plain_values_survive_json(value: Any) -> None:
    assert parse(dump(value)) == value
    assert to_json(value) == dump(value)


@settings(max_examples=50)
@given(
    args=st.lists(json_values, max_size=3),
    kwargs=st.dictionaries(st.from_regex("[a-z]{1,5}", fullmatch=True), json_values, max_size=3),
)
def test_arguments_survive_their_text(args: list[Any], kwargs: dict[str, Any]) -> None:
    def anything(*args: Any, **kwargs: Any) -> Any:
        return list(args), kwargs

    parameters = Parameters(anything, "anything")
    read = parameters.read(parameters.bind(args, kwargs))
    assert anything(*read.args, **read.kwargs) == (args, kwargs)


@given(st.integers(0, 99), st.integers(0, 59), st.integers(0, 59), st.integers(0, 999))
def test_durations_add_up(hours: int, minutes: int, seconds: int, milliseconds: int) -> None:
    total = ((hours * 60 + minutes) * 60 + seconds) * 1000 + milliseconds
    assert duration_ms(f"{hours}h{minutes}m{seconds}s{milliseconds}ms") == total
