"""The envelope: a task's immutable description, and its digest over the exact bytes.

The bytes are made once, at submission, from this float-free model; they are stored, published and run as they are and
never serialised again. Arguments travel inside as JSON *text*, so their floats are the submitter's own digits.
Durations, never instants, so that no two hosts' clocks are compared.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from typing import Annotated, Final, Literal, cast

from pydantic import Field, TypeAdapter, model_validator

from tenure.errors import PayloadTooLarge, UsageError
from tenure.protocol.artifact import Input
from tenure.protocol.message import MAX_ENVELOPE_BYTES, MAX_INT, Message, Milliseconds, Name, Text, decode
from tenure.protocol.texts import is_utf8
from tenure.protocol.timing import DEFAULT_LEASE_TTL_MS, MAX_LEASE_TTL_MS, MIN_LEASE_TTL_MS

Pairs = tuple[tuple[str, str], ...]
Amount = Annotated[int, Field(ge=1, le=MAX_INT)] | None
Amounts = tuple[tuple[Name, Annotated[int, Field(ge=1, le=MAX_INT)]], ...]


class CallWork(Message):
    """Call a Python function.

    `handler` is "package.module:function", `arguments` the JSON text `{"args": [...], "kwargs": {...}}`. `files` asks
    for a folder of its own, for outputs and checkpoints; inputs and secrets bring one, too.
    """

    kind: Literal["call"] = "call"
    handler: Annotated[str, Field(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_][\w.]*$", max_length=255)]
    arguments: str = '{"args":[],"kwargs":{}}'
    files: bool = False

    def summary(self) -> str:
        """What is called, for people."""
        return self.handler


class CommandWork(Message):
    """Run a program: `argv` as it is, no shell; `env` is added to an otherwise nearly empty environment.

    `form` says how the program gives its value (docs/task_folder.md): `stdout`, what it prints, up to the value limit;
    `folder`, the file `result.json`; `lines`, a line `{"result": ...}` among the JSON lines that it prints.
    `parameters` is JSON text that the program finds in `task.json`, or in the first line that it reads. `stdin` is text
    given to the program, unless it is of the form `lines`.
    """

    kind: Literal["command"] = "command"
    argv: Annotated[tuple[str, ...], Field(min_length=1, max_length=1000)]
    env: Pairs = ()
    stdin: str = ""
    form: Literal["stdout", "folder", "lines"] = "stdout"
    parameters: str = "null"

    def summary(self) -> str:
        """What is run, for people, in one line of at most 200 characters."""
        return shlex.join(self.argv)[:200].replace("\n", "\\n")


Work = Annotated[CallWork | CommandWork, Field(discriminator="kind")]


class Retry(Message):
    """What may follow a lost or failed attempt without asking a person. The default is nothing: hold.

    `lost` and `failed` are separate budgets (an expired lease is never a failure). The n-th further attempt waits
    `backoff_ms * 2**(n-1)`, at most `backoff_max_ms`.
    """

    lost: Annotated[int, Field(ge=0, le=1000)] = 0
    failed: Annotated[int, Field(ge=0, le=1000)] = 0
    backoff_ms: Milliseconds = 0
    backoff_max_ms: Milliseconds = 3_600_000


class Requirements(Message):
    """What a worker must be or have. Any requirement makes the assignment a directed one."""

    worker: Name | None = None
    labels: Pairs = ()
    resources: Amounts = ()

    @property
    def directed(self) -> bool:
        """Whether the coordinator must pick the worker."""
        return bool(self.worker or self.labels or self.resources)


class Limits(Message):
    """What one attempt may use; None: what the worker allows. More than the worker allows is cut down to that.

    `memory_bytes` of the whole process tree, `disk_bytes` of the task's folder, `file_bytes` of one file, `files` in
    the folder, `printed_bytes` of standard output and error together.
    """

    memory_bytes: Amount = None
    disk_bytes: Amount = None
    file_bytes: Amount = None
    files: Amount = None
    printed_bytes: Amount = None


class Scope(Message):
    """The world (a fleet's database) and run (a group of submissions) that a result must echo."""

    world: Name
    run: Name


class Envelope(Message):
    """One task's description. Everything the worker needs, nothing that changes."""

    v: Literal[1] = 1
    capability: Name = "default"
    work: Work
    scope: Scope
    start: Literal["granted", "claimed"] = "granted"
    exclusive: bool = False
    lease_ttl_ms: Annotated[int, Field(ge=MIN_LEASE_TTL_MS, le=MAX_LEASE_TTL_MS)] = DEFAULT_LEASE_TTL_MS
    timeout_ms: Annotated[int, Field(ge=1, le=MAX_INT)] | None = None
    retry: Retry = Retry()
    priority: Annotated[int, Field(ge=-1000, le=1000)] = 0
    delay_ms: Milliseconds = 0
    requirements: Requirements = Requirements()
    label: Text = ""
    inputs: Annotated[tuple[Input, ...], Field(max_length=256)] = ()
    secrets: Annotated[tuple[Name, ...], Field(max_length=64)] = ()
    """Names of secrets that the worker's host knows; their values are nowhere but there."""
    limits: Limits = Limits()
    keep_folder: bool = False
    """Whether the worker keeps the task's folder after the attempt, for a person to look at."""

    @model_validator(mode="after")
    def _exclusive_waits_for_a_grant(self) -> Envelope:
        if self.exclusive and self.start != "granted":
            message = "an exclusive task must start on a grant"
            raise ValueError(message)
        return self


ENVELOPE: Final = TypeAdapter(Envelope)


def encode(envelope: Envelope) -> bytes:
    """The envelope's canonical bytes: sorted keys, no spaces, defaults left out (RFC 8785 on float-free models).

    Raises:
        UsageError: a text in it cannot be written in UTF-8.
        PayloadTooLarge: the bytes are over `MAX_ENVELOPE_BYTES`.
    """
    fields = envelope.model_dump(mode="json", exclude_defaults=True)
    fields["work"]["kind"] = envelope.work.kind
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    try:
        raw = text.encode()
    except UnicodeEncodeError:
        message = f"the task cannot be sent: {_place_beyond_utf8(fields)} holds half of a surrogate pair"
        raise UsageError(message, "Give texts that are UTF-8") from None
    if len(raw) > MAX_ENVELOPE_BYTES:
        message = f"the task's envelope is {len(raw)} bytes, over the limit of {MAX_ENVELOPE_BYTES}"
        raise PayloadTooLarge(message, "Pass a path or a reference instead of the data itself")
    return raw


def _place_beyond_utf8(value: object, place: str = "") -> str:
    """Where the first text is that cannot be written in UTF-8, like "work.argv.1"; "" when there is none."""
    if isinstance(value, str):
        return "" if is_utf8(value) else place
    if isinstance(value, dict):
        parts = cast("dict[object, object]", value)
    elif isinstance(value, list):
        parts = dict[object, object](enumerate(cast("list[object]", value)))
    else:
        return ""
    found = (_place_beyond_utf8(part, f"{place}.{name}".lstrip(".")) for name, part in parts.items())
    return next(filter(None, found), "")


def digest(raw: bytes) -> str:
    """The sha256 of an envelope's exact bytes, in hexadecimal."""
    return hashlib.sha256(raw).hexdigest()


def open_envelope(raw: bytes) -> Envelope:
    """Parse an envelope's bytes. Raises `PayloadTooLarge` or `MalformedMessage`."""
    return decode(ENVELOPE, raw, MAX_ENVELOPE_BYTES)
