"""What agent and child say to each other about calls. Loaded by the child, so it stays small.

A call is one packet, so that the kernel hands it either to the child or back to the agent, never half to each. Results
come back as frames: one letter, numbers, a line break, and a text that is passed on as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

MAX_PACKET_BYTES: Final = 160 * 1024
"""Over any envelope: a call's packet carries less than the envelope that it came in."""


class BrokenMessage(ValueError):
    """The bytes are no message of this kind; the child that sent them cannot be trusted with more."""


@final
@dataclass(frozen=True, slots=True)
class Call:
    """One call of a handler, by the agent's number for it."""

    call: int
    task_id: str
    attempt: int
    fence: int
    handler: str
    arguments: str
    files: str = ""
    """Of a call with files, the JSON text of `folder`, `checkpoint` (a path, or "") and `secrets` (paths by name)."""


@final
@dataclass(frozen=True, slots=True)
class Cancel:
    """Cancel that call, if it is async and still running."""

    call: int


def call_packet(call: int, head: tuple[str, int, int], handler: str, arguments: str) -> bytes:
    """The packet of a call; `head` is task id, attempt and fence."""
    task_id, attempt, fence = head
    return f"c{call} {task_id} {attempt} {fence} {handler}\n{arguments}".encode()


def files_packet(call: Call) -> bytes:
    """The packet of a call with files."""
    head = f"w{call.call} {call.task_id} {call.attempt} {call.fence} {call.handler}"
    return f"{head}\n{call.files}\n{call.arguments}".encode()


def cancel_packet(call: int) -> bytes:
    """The packet that cancels a call."""
    return b"x%d" % call


def read_packet(packet: bytes) -> Call | Cancel:
    """The message of a packet. Raises `BrokenMessage`."""
    try:
        if packet[:1] == b"x":
            return Cancel(int(packet[1:]))
        head, arguments = packet[1:].decode().split("\n", 1)
        call, task_id, attempt, fence, handler = head.split(" ")
        files, arguments = arguments.split("\n", 1) if packet[:1] == b"w" else ("", arguments)
        return Call(int(call), task_id, int(attempt), int(fence), handler, arguments, files)
    except ValueError as error:
        raise BrokenMessage("a call's packet could not be read") from error


def packet_call(packet: bytes) -> int | None:
    """The number of the call in a packet that was taken back; None when it is no call."""
    return int(packet[1 : packet.index(b" ")]) if packet[:1] in {b"c", b"w"} else None


@final
@dataclass(frozen=True, slots=True)
class Returned:
    """A call returned; `value` is JSON text."""

    call: int
    duration_ms: int
    value: str


@final
@dataclass(frozen=True, slots=True)
class Raised:
    """A call failed; `failure` is the JSON text of its kind, message and trace."""

    call: int
    duration_ms: int
    failure: str


@final
@dataclass(frozen=True, slots=True)
class Dropped:
    """A call was cancelled and has ended."""

    call: int
    duration_ms: int


@final
@dataclass(frozen=True, slots=True)
class Progress:
    """A running call tells how far it is; `metrics` is the JSON text of an object, or empty."""

    call: int
    fraction_ppm: int
    message: str
    metrics: str = ""


@final
@dataclass(frozen=True, slots=True)
class Printed:
    """A running call has printed; see `tenure.broker.base.LogChunk`."""

    call: int
    position: int
    stream: int
    text: str


@final
@dataclass(frozen=True, slots=True)
class Saved:
    """A running call says that its checkpoint of that name is whole."""

    call: int
    name: str


@final
@dataclass(frozen=True, slots=True)
class Imported:
    """A handler was imported."""

    handler: str
    is_async: bool


@final
@dataclass(frozen=True, slots=True)
class Ready:
    """The child has started and reads calls."""


Told = Returned | Raised | Dropped | Progress | Imported | Ready
FromChild = Told | Printed | Saved


def write_frame(message: FromChild) -> bytes:
    """The body of a frame."""
    match message:
        case Returned(call, duration_ms, value):
            return f"v{call} {duration_ms}\n{value}".encode()
        case Raised(call, duration_ms, failure):
            return f"f{call} {duration_ms}\n{failure}".encode()
        case Dropped(call, duration_ms):
            return f"d{call} {duration_ms}\n".encode()
        case _:
            return _write_remark(message)


def _write_remark(message: Progress | Printed | Saved | Ready | Imported) -> bytes:
    match message:
        case Progress(call, fraction_ppm, text, metrics):
            return f"p{call} {fraction_ppm}\n{metrics}\n{text}".encode(errors="replace")
        case Printed(call, position, stream, text):
            return f"o{call} {position}\n{stream}{text}".encode(errors="replace")
        case Saved(call, name):
            return f"k{call} 0\n{name}".encode()
        case Ready():
            return b"r0 0\n"
        case Imported(handler, is_async):
            return f"h0 {int(is_async)}\n{handler}".encode()


def read_frame(body: bytes) -> FromChild:
    """The message of a frame's body. Raises `BrokenMessage`."""
    try:
        head, text = body.decode().split("\n", 1)
        kind, (first, second) = head[0], head[1:].split(" ")
        call, number = int(first), int(second)
    except (ValueError, IndexError) as error:
        raise BrokenMessage("a child's message could not be read") from error
    match kind:
        case "v":
            return Returned(call, number, text)
        case "f":
            return Raised(call, number, text)
        case "d":
            return Dropped(call, number)
        case _:
            return _read_remark(kind, call, number, text)


def _read_remark(kind: str, call: int, number: int, text: str) -> FromChild:
    match kind:
        case "p":
            metrics, _, message = text.partition("\n")
            return Progress(call, min(max(number, 0), 1_000_000), message, metrics)
        case "o":
            return Printed(call, max(number, 0), 1 if text[:1] == "1" else 2, text[1:])
        case "k":
            return Saved(call, text)
        case "r":
            return Ready()
        case "h":
            return Imported(text, bool(number))
        case _:
            raise BrokenMessage("a child's message is of no known kind")
