"""What agent and runner say to each other, as JSON objects. Loaded by the runner, so it stays small.

Agent to runner, `op` is:

- `child`, `command`: start a tree. `run` numbers it, `argv`, `env`, `cwd`, `until`, `grace`; `descriptors` counts those
  sent along, whose numbers are appended to `argv`. A command also has `stdin`, `limit` (bytes of the value kept),
  `form`, `task` (the object for `task.json`), `limits` (`memory`, `disk`, `file`, `files`, `printed`; 0: none),
  `secrets` (pairs of name and source file) and `keep` (where to move its folder in the end; "": remove it). Its folder
  may hold `inputs/` and `checkpoint/` already.
- `clean`: the folder of the command of that `run` is not needed any more. A runner also cleans up before it starts
  something else, and when the agent is gone.
- `until`: how long the tree of that `run` may run, in elapsed milliseconds (None: for ever), and the `grace` between
  SIGTERM and SIGKILL after it.
- `stop`: end the tree of that `run` with that `grace`.

Runner to agent, while a command runs: `run` and `printed` (triples of stream, position and text, see
`tenure.broker.base.LogChunk`), or `run` and `lines` (whole lines of `progress.jsonl`, or those of standard output in
the form `lines` that begin with `{`, in order; other lines there are printed text).

Runner to agent, one per tree, when it is proved gone: `run`, `reason` (`exit`, `stop`, `deadline`, `agent`), `code`
(exit code, negative for a signal), `duration`, `error` (errno when it could not be started), `stdout`, `over`,
`stderr`, and `out_of_memory` (whether the kernel ended a process of the control group lately). Of a command also:
`breach` (which of the limits it broke, "" for none; the tree was ended for it), `left` (how many processes it left
behind, which were ended), `result` (the text of `result.json` in the form `folder`, None when there is none that can
be read), `forbidden` (what is wrong with `result.json`, such as being a link; "") and `damaged` (why it cannot be
read, "" when it can), `allowed` (the limit that it broke), `full` (whether it failed with a full disk), `secret` (the
name of one that is not there; then it was not started) and `left_out` (how many characters of what it printed and how
many lines were not passed on). In the form `lines`, `over` says that a line was longer than any result may be.
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
