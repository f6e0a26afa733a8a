"""What agent and runner say to each other, as JSON objects. Loaded by the runner, so it stays small.

Agent to runner, `op` is:

- `child`, `command`: start a tree. `run` numbers it, `argv`, `env`, `cwd`, `until`, `grace`; `descriptors` counts those
  sent along, whose numbers are appended to `argv`; a command also has `stdin` and `limit` (bytes of output kept).
- `until`: how long the tree of that `run` may run, in elapsed milliseconds (None: for ever), and the `grace` between
  SIGTERM and SIGKILL after it.
- `stop`: end the tree of that `run` with that `grace`.

Runner to agent, one per tree, when it is proved gone: `run`, `reason` (`exit`, `stop`, `deadline`, `agent`), `code`
(exit code, negative for a signal), `duration`, `error` (errno when it could not be started), `stdout`, `over`,
`stderr`, and `out_of_memory` (whether the kernel ended a process of the control group lately).
"""

from __future__ import annotations

import json
from typing import Any, cast

Fields = dict[str, Any]


def render(fields: Fields) -> bytes:
    """The message as bytes."""
    return json.dumps(fields, separators=(",", ":")).encode()


def parse(body: bytes) -> Fields:
    """The message of these bytes. Raises ValueError or TypeError."""
    fields = json.loads(body)
    if not isinstance(fields, dict):
        raise TypeError("a message must be an object")
    return cast("Fields", fields)
