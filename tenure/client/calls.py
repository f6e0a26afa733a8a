"""From a call to its envelope's bytes, quickly: the constant part is encoded once per function and options.

An envelope's canonical form has its keys in order, and calls of one function differ only in `work.arguments`; so the
text before and after it is cut out of one encoded envelope. A property test holds that this gives exactly the bytes
of `tenure.protocol.envelope.encode`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from json.encoder import encode_basestring
from typing import Any, Final, Literal, TypeAlias, final

from pydantic import ValidationError

from tenure.errors import PayloadTooLarge, UnknownHandler, UsageError
from tenure.handlers.arguments import Parameters
from tenure.handlers.json_text import NotJson, dump
from tenure.handlers.options import TaskDefaults
from tenure.handlers.resolve import reference_of
from tenure.handlers.results import Returns
from tenure.handlers.task import defaults_noted_on
from tenure.protocol.envelope import CallWork, CommandWork, Envelope, Requirements, Scope, Work, encode
from tenure.protocol.message import MAX_ENVELOPE_BYTES, describe

Form: TypeAlias = Literal["stdout", "folder", "lines"]
"""How a program gives its value: what it prints, the file `result.json`, or a line among JSON lines."""

NO_ARGUMENTS: Final[str] = CallWork.model_fields["arguments"].default
_GAP: Final = "\N{SYMBOL FOR NULL}gap\N{SYMBOL FOR NULL}"


@final
@dataclass(frozen=True, slots=True)
class Call:
    """One call for `Client.submit_many`. `key` is the task's idempotency key; "" lets the client make one."""

    function: Callable[..., Any] | str
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict[str, Any])
    key: str = ""


@final
class Function:
    """What is known of a function that is submitted, looked up once.

    Args:
        function: the function, or its reference "package.module:function", of which nothing is checked here.

    Raises:
        UnknownHandler: a worker could not import the function.
        InvalidArguments: its type hints cannot be resolved.
    """

    def __init__(self, function: Callable[..., Any] | str) -> None:
        known = None if isinstance(function, str) else function
        self.reference: Final = function if isinstance(function, str) else reference_of(function)
        self.parameters: Final = Parameters(known, self.reference)
        self.returns: Final = Returns(known)
        self.defaults: Final = defaults_noted_on(known)


@final
class CallTemplate:
    """The envelope of one function's calls under one set of options, all but the arguments.

    Args:
        reference: the handler's reference.
        options: how the tasks run.
        scope: the world and run that they belong to.

    Raises:
        UsageError: the reference or an option does not fit.
    """

    def __init__(self, reference: str, options: TaskDefaults, scope: Scope) -> None:
        gapped = envelope_text(_call_work(reference, _GAP, options), options, scope)
        self._before, self._after = gapped.rsplit(encode_basestring(_GAP), 1)
        self._without_arguments = envelope_text(_call_work(reference, NO_ARGUMENTS, options), options, scope)
        self._room_bytes = MAX_ENVELOPE_BYTES - len((self._before + self._after).encode())

    def envelope(self, arguments: str) -> str:
        """The envelope's exact text with these arguments. Raises PayloadTooLarge."""
        if arguments == NO_ARGUMENTS:
            return self._without_arguments
        quoted = encode_basestring(arguments)
        size_bytes = len(quoted) if quoted.isascii() else len(quoted.encode())
        if size_bytes > self._room_bytes:
            raise PayloadTooLarge(
                f"the task's envelope is {size_bytes - self._room_bytes} bytes over the limit of {MAX_ENVELOPE_BYTES}",
                "Pass a path or a reference instead of the data itself",
            )
        return self._before + quoted + self._after


@final
@dataclass(frozen=True, slots=True)
class Command:
    """One program run, as a caller gives it. See `Submitter.command`."""

    argv: Iterable[str]
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    stdin: str = ""
    form: Form = "stdout"
    parameters: object = None


def command_work(given: Command) -> CommandWork:
    """A program run as work. Raises UsageError when something does not fit."""
    if isinstance(given.argv, str):
        raise UsageError("argv is one text", 'Give the program and its arguments one by one: ["wc", "-w", path]')
    try:
        parameters = dump(given.parameters)
    except NotJson as error:
        raise UsageError(f"the parameters have no JSON form: {error}", "Give plain values") from None
    try:
        return CommandWork(
            argv=tuple(given.argv),
            env=tuple(sorted(given.env.items())),
            stdin=given.stdin,
            form=given.form,
            parameters=parameters,
        )
    except ValidationError as error:
        raise UsageError(f"the command does not fit: {describe(error)}") from None


def scope_of(world: str, run: str) -> Scope:
    """The world and run that tasks belong to. Raises UsageError when a name does not fit."""
    try:
        return Scope(world=world, run=run)
    except ValidationError as error:
        raise UsageError(f"namespace or run is no name: {describe(error)}", "Use letters, digits, _ - .") from None


def _call_work(reference: str, arguments: str, options: TaskDefaults) -> CallWork:
    try:
        return CallWork(handler=reference, arguments=arguments, files=options.files or False)
    except ValidationError:
        raise UnknownHandler(
            "the handler's reference is malformed", 'It must look like "package.module:function"'
        ) from None


def envelope_text(work: Work, options: TaskDefaults, scope: Scope) -> str:
    """The exact text of one task's envelope.

    Raises:
        UsageError: an option does not fit.
        PayloadTooLarge: it is over the limit.
    """
    said: dict[str, Any] = {
        "capability": options.capability,
        "lease_ttl_ms": options.lease_ttl_ms,
        "retry": options.retry,
        "start": options.start,
        "exclusive": options.exclusive,
        "timeout_ms": options.timeout_ms,
        "priority": options.priority,
        "delay_ms": options.delay_ms,
        "label": options.label,
        "inputs": options.inputs,
        "secrets": options.secrets,
        "limits": options.limits,
        "keep_folder": options.keep_folder,
    }
    # Only workers that know the secrets are asked for: anywhere else the task could but fail.
    labels = options.labels + tuple((f"secret:{name}", "yes") for name in options.secrets)
    try:
        requirements = Requirements(worker=options.worker, labels=labels, resources=options.resources)
        fields = {name: value for name, value in said.items() if value is not None}
        envelope = Envelope(work=work, scope=scope, requirements=requirements, **fields)
    except ValidationError as error:
        raise UsageError(f"the task's options do not fit: {describe(error)}") from None
    return encode(envelope).decode()
