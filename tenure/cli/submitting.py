"""What `tenure submit` and `tenure map` share: the options that say how tasks run, and a command after `--`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar, final

import click

from tenure.cli.arguments import require_utf8
from tenure.cli.records import amounts, pairs

if TYPE_CHECKING:
    from collections.abc import Callable

    from tenure.client.options import SubmitOptions
    from tenure.protocol.envelope import Limits

_F = TypeVar("_F", bound="Callable[..., Any]")
_ARGV: Final = "tenure.argv"


@final
@dataclass(frozen=True, slots=True)
class TaskForm:
    """How tasks run, as given on the command line; None and empty mean "not said": then the function's word holds."""

    capability: str | None
    retries: int | None
    retries_failed: int | None
    lease_ttl: str | None
    start: str | None
    exclusive: bool
    priority: int | None
    delay: str | None
    timeout: str | None
    on_worker: str | None
    label: tuple[str, ...]
    resource: tuple[str, ...]
    secret: tuple[str, ...]
    memory: str | None
    disk: str | None
    file_size: str | None
    file_count: int | None
    printed: str | None
    keep_folder: bool
    campaign: str | None
    cost: str | None

    def options(self) -> SubmitOptions:
        """What was said, as keyword arguments of `Client.using`. Raises `UsageError`."""
        from tenure.protocol.envelope import Retry

        said: dict[str, Any] = {
            "capability": self.capability,
            "lease_ttl": self.lease_ttl,
            "start": self.start,
            "exclusive": self.exclusive or None,
            "priority": self.priority,
            "delay": self.delay,
            "timeout": self.timeout,
            "worker": self.on_worker,
            "labels": dict(pairs(self.label, "--label")) or None,
            "resources": dict(amounts(self.resource, "--resource")) or None,
            "secrets": self.secret or None,
            "limits": self._limits(),
            "keep_folder": self.keep_folder or None,
            "campaign": self.campaign,
            "cost": self.cost,
        }
        if self.retries is not None or self.retries_failed is not None:
            said["retry"] = Retry(lost=self.retries or 0, failed=self.retries_failed or 0)
        options: SubmitOptions = {}
        options.update({name: value for name, value in said.items() if value is not None})  # type: ignore[typeddict-item]
        return options

    def _limits(self) -> Limits | None:
        from tenure.protocol.envelope import Limits
        from tenure.protocol.sizes import size_bytes

        said = (("memory", self.memory), ("disk", self.disk), ("file", self.file_size), ("printed", self.printed))
        names = {"file": "--file-size"}
        limits = {
            f"{name}_bytes": size_bytes(text, names.get(name, f"--{name}")) for name, text in said if text is not None
        }
        if self.file_count is not None:
            limits["files"] = self.file_count
        return Limits(**limits) if limits else None


_COUNT: Final = click.IntRange(0, 1000)
_OPTIONS: Final = (
    click.option("--capability", metavar="NAME", help="The kind of work; workers say what they take."),
    click.option("--retries", type=_COUNT, metavar="N", help="Repeat a lost attempt up to N times without asking."),
    click.option("--retries-failed", type=_COUNT, metavar="N", help="Repeat a failed attempt up to N times."),
    click.option(
        "--lease-ttl", metavar="DURATION", help="How long a silent worker keeps its right to run, such as 30s."
    ),
    click.option("--start", type=click.Choice(["granted", "claimed"]), help="Wait for the coordinator's word, or not."),
    click.option("--exclusive", is_flag=True, help="Never two holders, even when the broker is split in two."),
    click.option("--priority", type=click.IntRange(-1000, 1000), metavar="N", help="Higher goes first."),
    click.option("--delay", metavar="DURATION", help="Do not start before that long from now."),
    click.option("--timeout", metavar="DURATION", help="The longest that one attempt may run."),
    click.option("--on-worker", metavar="ID", help="Only on this worker."),
    click.option("--label", multiple=True, metavar="KEY=VALUE", help="Only on workers with this label; repeatable."),
    click.option("--resource", multiple=True, metavar="NAME=N", help="Needs that much free on the worker; repeatable."),
    click.option(
        "--secret", multiple=True, metavar="NAME", help="A secret of the worker's host, as a file; repeatable."
    ),
    click.option("--memory", metavar="SIZE", help="The most memory of all its processes, such as 2GiB."),
    click.option("--disk", metavar="SIZE", help="The most that its folder may hold."),
    click.option("--file-size", metavar="SIZE", help="The largest file that it may write."),
    click.option("--file-count", type=click.IntRange(1), metavar="N", help="The most files that its folder may hold."),
    click.option("--printed", metavar="SIZE", help="The most that it may print."),
    click.option("--keep-folder", is_flag=True, help="Leave its folder on the worker, for a person to look at."),
    click.option("--campaign", metavar="NAME", help="The budget that it counts against; '' for none."),
    click.option("--cost", metavar="AMOUNT", help="What it costs, in the unit of the campaign's budget, such as 0.25."),
)
_NAMES: Final = tuple(TaskForm.__dataclass_fields__)


def task_options(command: _F) -> _F:
    """Give a command the options that say how tasks run."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def split_form(options: dict[str, object]) -> tuple[dict[str, object], dict[str, object]]:
    """A command's options as those of `TaskForm` and the others."""
    return (
        {name: options[name] for name in _NAMES},
        {name: value for name, value in options.items() if name not in _NAMES},
    )


@final
class WithProgram(click.Command):
    """A command that takes a program with its arguments after `--`, untouched."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Set aside what follows `--`."""
        if "--" in args:
            place = args.index("--")
            ctx.meta[_ARGV] = tuple(args[place + 1 :])
            require_utf8("an argument of the program", ctx.meta[_ARGV])
            args = args[:place]
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """Show in the usage line that a program may follow."""
        return [*super().collect_usage_pieces(ctx), "[-- PROGRAM [ARGUMENT]...]"]


def program_given() -> tuple[str, ...]:
    """What followed `--` on the command line; empty when nothing did."""
    given: tuple[str, ...] = click.get_current_context().meta.get(_ARGV, ())
    return given
