"""The command line as a whole: the commands, `help`, and how a run ends."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence

import click

from tieline import __version__
from tieline.cli.errors import CliError, UsageFault, from_exception
from tieline.cli.notes import Notes
from tieline.cli.options import Group
from tieline.cli.output import TextOutput, lost_stdout, open_output
from tieline.cli.settings import Settings

__all__ = ["root", "run"]


def _version(context: click.Context, option: click.Parameter, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:
        click.echo(f"tieline {__version__}")
        context.exit()


root = Group(
    "tieline",
    {
        "send": ("tieline.cli.send", "send", "Send a message to start or continue an interaction."),
        "task": ("tieline.cli.task", "task", "Get, list, cancel, follow and download tasks."),
        "push": ("tieline.cli.push", "push", "Have a task's news sent to a webhook, and receive them."),
        "auth": ("tieline.cli.auth", "auth", "Sign in to agents, and out."),
        "card": ("tieline.cli.card", "card", "Look at an agent's card, sign and verify cards."),
        "init": ("tieline.cli.init", "init", "Begin an agent project."),
        "serve": ("tieline.cli.serve", "serve", "Publish an agent."),
        "token": ("tieline.cli.token", "token", "Say who may call a server of yours."),
        "store": ("tieline.cli.store", "store", "Look after a store of tasks."),
        "config": ("tieline.cli.config", "config", "Look at the configuration."),
        "completion": ("tieline.cli.completion", "completion", "Print a completion script for a shell."),
        "help": ("tieline.cli.root", "help_", "Show how to use the tool or a command."),
    },
    help="Talk to agents over A2A (Agent2Agent), and publish agents.",
)
root.params.append(
    click.Option(
        ["-v", "--version"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_version,
        help="Show the version and exit.",
    )
)


@click.command("help")
@click.argument("command", nargs=-1)
@click.pass_context
def help_(context: click.Context, command: tuple[str, ...]) -> int:
    """Show how to use the tool, or COMMAND."""
    found: click.Command = root
    parent = context.find_root()
    for name in command:
        inner = found.get_command(parent, name) if isinstance(found, click.Group) else None
        if inner is None:
            raise UsageFault(f"There is no command {' '.join(command)!r}.", hint="Commands are listed by: tieline help")
        parent = click.Context(inner, info_name=name, parent=parent)
        found = inner
    click.echo(found.get_help(parent))
    return 0


def run(arguments: Sequence[str]) -> int:
    """Run one command line; return its exit code (CLI specification §11.6)."""
    try:
        code = root.main(list(arguments), prog_name="tieline", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return 2
    except click.UsageError as error:
        where = error.ctx.command_path if error.ctx is not None else "tieline"
        stray = "unexpected extra argument" in error.message and _talks(error.ctx)
        hint = f"The agent is named with -a HOST, and a text of several words is one in quotes. See: {where} --help"
        return _report(UsageFault(error.format_message(), hint=hint if stray else f"See: {where} --help"), arguments)
    except (CliError, click.ClickException) as error:
        return _report(error, arguments)
    except click.Abort:
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # nobody reads stdout: the interpreter shall not complain of it
        return 141
    except OSError as error:
        return lost_stdout(Notes(), error)
    return code if isinstance(code, int) else 0


def _report(cause: Exception, arguments: Sequence[str]) -> int:
    """Report what failed before a command could: in the format that was asked for, as far as that can be told."""
    error = from_exception(cause)
    flags = _format_flags(arguments)
    log_format = flags.pop("log-format", None)
    try:
        format_ = Settings(flags)["output"]
    except CliError:
        format_ = "text"
    notes = Notes()
    if format_ == "text" and log_format == "json" and "serve" in arguments:
        from tieline.cli.operating import log_failure

        log_failure(error)
        return error.exit_code
    if sys.stdout is None:
        TextOutput(io.StringIO(), notes, verbose=False).error(error)
        return error.exit_code
    try:
        open_output(format_, notes, stream="--stream" in arguments, verbose=False).error(error)
    except BrokenPipeError:
        raise
    except OSError as lost:
        return lost_stdout(notes, lost)
    return error.exit_code


def _talks(context: click.Context | None) -> bool:
    """Whether a command is one that talks to an agent."""
    if context is None or "config" in context.command_path.split():
        return False
    return any(param.name == "setting_agent_card" for param in context.command.params)


def _format_flags(arguments: Sequence[str]) -> dict[str, str]:
    """--output, --config and --log-format of a command line that could not be parsed."""
    flags: dict[str, str] = {}
    for index, word in enumerate(arguments):
        following = arguments[index + 1] if index + 1 < len(arguments) else ""
        name, equals, value = word.partition("=")
        if name in ("--output", "--config", "--log-format"):
            flags[name[2:]] = value if equals else following
        elif word.startswith("-o"):
            flags["output"] = word[2:].removeprefix("=") if len(word) > 2 else following
    return flags
