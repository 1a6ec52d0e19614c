"""`tieline completion SHELL`: a script that completes the command's names and options."""

from __future__ import annotations

import sys

import click
from click.shell_completion import get_completion_class

from tieline.cli.errors import INTERNAL, CliError
from tieline.cli.options import CONTEXT

__all__ = ["completion"]

_VARIABLE = "_TIELINE_COMPLETE"


@click.command("completion", context_settings=CONTEXT)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> int:
    """Print a completion script for SHELL.

    \b
    bash:  eval "$(tieline completion bash)"              in ~/.bashrc
    zsh:   eval "$(tieline completion zsh)"               in ~/.zshrc, behind compinit
    fish:  tieline completion fish > ~/.config/fish/completions/tieline.fish
    """
    from tieline.cli.root import root

    found = get_completion_class(shell)
    assert found is not None  # the choices are click's own
    script = found(root, {}, "tieline", _VARIABLE).source()
    if sys.stdout is None:
        raise CliError(INTERNAL, "There is nowhere to put the script: stdout is closed.")
    click.echo(script)
    return 0
