"""What a program tells in JSON lines: how far it is, checkpoints, its result, words for the log.

Programs are written in any language and by anybody, so that a bad line, or a bad field of a good one, is no reason to
end a task: it is left out, and `problem` says what was wrong with it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final, cast, final

from tenure.handlers.json_text import NotJson, dump, parse
from tenure.protocol.metrics import MAX_METRICS, read_metrics

_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
_MAX_MESSAGE: Final = 2_000
_MILLION: Final = 1_000_000
_LINES_ONLY: Final = ("state", "result", "log")


@final
@dataclass(slots=True)
class ProgramLine:
    """What one line says; None and "" for what it does not say."""

    fraction_ppm: int | None = None
    message: str | None = None
    metrics: str | None = None
    checkpoint: str = ""
    state: str | None = None
    result: str | None = None
    log: str = ""
    problem: str = ""

    @property
    def has_progress(self) -> bool:
        """Whether it says how far the program is."""
        return not (self.fraction_ppm is None and self.message is None and self.metrics is None)


def read_line(text: str, *, form: str) -> ProgramLine:
    """What a line says in that form of a program."""
    line = ProgramLine()
    try:
        fields = parse(text)
    except NotJson as error:
        line.problem = str(error)
        return line
    if not isinstance(fields, dict):
        line.problem = "it is no JSON object"
        return line
    _read_progress(line, cast("dict[str, Any]", fields))
    _read_rest(line, cast("dict[str, Any]", fields), form)
    return line


def _read_progress(line: ProgramLine, fields: dict[str, Any]) -> None:
    fraction, message, metrics = fields.get("fraction"), fields.get("message"), fields.get("metrics")
    if isinstance(fraction, int | float) and not isinstance(fraction, bool):
        line.fraction_ppm = round(min(max(fraction, 0.0), 1.0) * _MILLION)
    elif fraction is not None:
        line.problem = "its fraction is no number"
    if isinstance(message, str):
        line.message = _printable(message)[:_MAX_MESSAGE]
    elif message is not None:
        line.problem = "its message is no text"
    if isinstance(metrics, dict):
        _read_metrics(line, cast("dict[str, Any]", metrics))
    elif metrics is not None:
        line.problem = "its metrics are no JSON object"


def _read_metrics(line: ProgramLine, metrics: dict[str, Any]) -> None:
    text = _text_of(line, metrics)
    if text is not None and len(text) > MAX_METRICS:
        line.problem = f"its metrics are longer than {MAX_METRICS} characters"
        return
    try:
        read_metrics(text or "")
    except ValueError as error:
        line.problem = f"its {error}"
        return
    line.metrics = text


def _read_rest(line: ProgramLine, fields: dict[str, Any], form: str) -> None:
    name = fields.get("checkpoint")
    foreign = [key for key in _LINES_ONLY if key in fields]
    if foreign and form != "lines":
        line.problem = f"{foreign[0]!r} belongs to the form 'lines' only"
    if isinstance(name, str) and _NAME.fullmatch(name):
        line.checkpoint = name
    elif name is not None:
        line.problem = "its checkpoint is no name: up to 64 letters, digits, '.', '_' and '-'"
    if form == "lines":
        _read_lines_only(line, fields)


def _read_lines_only(line: ProgramLine, fields: dict[str, Any]) -> None:
    log = fields.get("log")
    if line.checkpoint and "state" in fields:
        line.state = _text_of(line, fields["state"])
        line.checkpoint = line.checkpoint if line.state is not None else ""
    if "result" in fields:
        line.result = _text_of(line, fields["result"])
    if isinstance(log, str):
        line.log = _printable(log)
    elif log is not None:
        line.problem = "its log is no text"


def _text_of(line: ProgramLine, value: object) -> str | None:
    try:
        return dump(value)
    except NotJson as error:
        line.problem = str(error)
        return None


def _printable(text: str) -> str:
    return text.encode(errors="replace").decode()
