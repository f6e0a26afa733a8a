"""`tenure completion`: the script that teaches a shell to complete this command."""

from __future__ import annotations

import click


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script of a shell.

    \b
    bash:  eval "$(tenure completion bash)"            in ~/.bashrc
    zsh:   eval "$(tenure completion zsh)"             in ~/.zshrc
    fish:  tenure completion fish > ~/.config/fish/completions/tenure.fish
    """  # noqa: D301 - click keeps the lines after a backspace as they are
    from click.shell_completion import get_completion_class

    from tenure.cli.commands import tenure

    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"no completion for {shell}")
    click.echo(kind(tenure, {}, "tenure", "_TENURE_COMPLETE").source())
