"""The `tenure` command: the frame in which every command runs.

Nothing is imported here but what the interpreter has anyway: whoever presses Ctrl-C while the rest is being loaded is
answered as at any other time.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    import click

    from tenure.cli.desk import Session

_INTERRUPTED = 130


def main() -> None:
    """Run the command that the arguments name, and exit with its code.

    No process that this starts, and not this one, leaves a core: its memory holds the secret of a credential.
    """
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        _replace_closed()
        code = run(sys.argv[1:])
    except KeyboardInterrupt:
        code = _INTERRUPTED
    sys.exit(code)


def _replace_closed() -> None:
    """Let standard input and error that are closed be empty and go nowhere; no file of ours gets their numbers then."""
    if sys.stdin is None:
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: PTH123, SIM115 - for as long as the process lives
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115 - as above


def run(arguments: Sequence[str], session: Session | None = None) -> int:
    """Run one command line; answers the exit code. Errors become one line on standard error."""
    try:
        return _answered(arguments, session)
    except KeyboardInterrupt:
        return _INTERRUPTED


def _answered(arguments: Sequence[str], session: Session | None) -> int:
    import click

    from tenure.cli import failures

    try:
        if sys.stdout is None:
            raise failures.closed_stdout()  # noqa: TRY301 - told like every other error
        from tenure.cli.commands import tenure

        code = _invoke(tenure, arguments, session)
        sys.stdout.flush()
    except BrokenPipeError:
        failures.silence_stdout()
        return failures.NOBODY_READS
    except click.exceptions.Abort:
        return _INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the last resort: whatever it is, it must be said in one line
        return failures.report(error, as_json=failures.wants_json(arguments))
    return code


def _invoke(command: click.Command, arguments: Sequence[str], session: Session | None) -> int:
    from tenure.cli import failures

    try:
        code = command.main(args=list(arguments), prog_name="tenure", standalone_mode=False, obj=session)
    except SystemExit as ending:
        # click ends the process with 1 when help goes into a closed pipe; 1 is our code for a failed task.
        return failures.NOBODY_READS if ending.code == 1 else int(ending.code or 0)
    return code if isinstance(code, int) else 0
