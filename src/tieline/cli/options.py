"""The settings as click options, and commands and groups that take them in front of a command or behind it.

A group takes every setting, as something its commands may use; a command takes those that it uses.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

import click

from tieline.cli.errors import CliError
from tieline.cli.settings import SETTINGS, Setting, Settings, tell

__all__ = ["CONNECTION", "CONTEXT", "PRESENTATION", "Command", "Group", "give", "settings_of"]

CONNECTION: Final = (
    "agent-card",
    "a2a-version",
    "transport",
    "bearer",
    "api-key",
    "client-cert",
    "client-key",
    "trust",
    "svc-param",
    "insecure",
    "card-keys",
    "card-key-host",
    "require-signed-card",
    "timeout",
)
"""What a command uses that talks to an agent."""

PRESENTATION: Final = ("output", "stream", "verbose", "debug", "config")

CONTEXT: Final = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
"""What click is told of every command."""

_FLAGS: Final = "tieline.flags"  # in click's `meta`, which a command shares with the groups before it


def settings_of(context: click.Context) -> Settings:
    """The settings of this run, with the flags that have been read so far."""
    flags: dict[str, Any] = context.meta.setdefault(_FLAGS, {})
    return Settings(flags)


def give(context: click.Context, name: str, value: Any) -> None:
    """Set a setting as its flag would; what the flag gave of one that is repeatable stays in front."""
    flags: dict[str, Any] = context.meta.setdefault(_FLAGS, {})
    flags[name] = [*flags.get(name, ()), *value] if SETTINGS[name].many else value


class SettingOption(click.Option):
    """One setting as an option. Its help shows what holds now, and why (CLI specification §6.5)."""

    def __init__(self, setting: Setting, *, hidden: bool = False) -> None:
        self.setting = setting
        dashed = [f"--{name}" for name in (setting.name, *setting.aliases)]
        if setting.negative:
            dashed[0] += f"/--no-{setting.name}"
        names = [f"setting_{setting.name.replace('-', '_')}", *([setting.short] if setting.short else []), *dashed]
        super().__init__(
            names,
            help=setting.help,
            hidden=hidden,
            expose_value=False,
            callback=_remember,
            default=None,
            **({"is_flag": True} if setting.switch else {"type": str, "metavar": setting.metavar}),
            multiple=setting.many,
        )

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        record = super().get_help_record(ctx)
        if record is None:
            return None
        names, text = record
        effect = _effect(self.setting, settings_of(ctx))
        return names, f"{text}  [{effect}]" if effect else text


def _effect(setting: Setting, settings: Settings) -> str:
    """The default, and what holds in its place; "" where there is neither."""
    default = setting.unset or ("" if setting.default is None else _plain(setting.default))
    told = [f"default: {default}"] if default else []
    try:
        resolved = settings.resolve(setting.name)
    except CliError as error:
        return "; ".join([*told, str(error)])
    if resolved.rank < 4:
        told.append(f"now {tell(resolved)}, from {resolved.source}")
    return "; ".join(told)


def _plain(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:g}s" if isinstance(value, float) else str(value)


def _remember(context: click.Context, option: click.Parameter, value: Any) -> None:
    assert isinstance(option, SettingOption)
    given = option.name is not None and context.get_parameter_source(option.name)
    if given is click.core.ParameterSource.COMMANDLINE:
        context.meta.setdefault(_FLAGS, {})[option.setting.name] = value


class Command(click.Command):
    """A command that takes settings; they are listed below its own options.

    One that does not stream understands --stream, too, since the specification has it global, but does not list it.
    """

    def __init__(
        self,
        name: str | None,
        *,
        settings: Sequence[str],
        streams: bool = False,
        params: Sequence[click.Parameter] = (),
        **attrs: Any,
    ) -> None:
        shared = [SettingOption(SETTINGS[each], hidden=each == "stream" and not streams) for each in settings]
        super().__init__(name, params=[*params, *shared], context_settings=CONTEXT, **attrs)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        own: list[tuple[str, str]] = []
        shared: list[tuple[str, str]] = []
        for param in self.get_params(ctx):
            # What an argument is stands in the text above.
            record = param.get_help_record(ctx) if isinstance(param, click.Option) else None
            if record is not None:
                (shared if isinstance(param, SettingOption) else own).append(record)
        for title, records in (("Options", own), ("Settings", shared)):
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


class Group(click.Group):
    """Commands that are imported when they are run. `entries`: name to (module, attribute, one line of help)."""

    def __init__(self, name: str, entries: Mapping[str, tuple[str, str, str]], **attrs: Any) -> None:
        shared: list[click.Parameter] = [SettingOption(setting) for setting in SETTINGS.values()]
        super().__init__(name, params=shared, context_settings=CONTEXT, no_args_is_help=True, **attrs)
        self.entries = entries

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = self.entries.get(cmd_name)
        if entry is None:
            return None
        command: click.Command = getattr(importlib.import_module(entry[0]), entry[1])
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self.entries and not args[0].startswith("-"):
            near = difflib.get_close_matches(args[0], self.entries, n=1)
            meant = f" Did you mean {near[0]!r}?" if near else ""
            ctx.fail(f"There is no command {args[0]!r}.{meant}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry[2]) for name, entry in self.entries.items()])

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        records = [record for param in self.get_params(ctx) if (record := param.get_help_record(ctx)) is not None]
        self.format_commands(ctx, formatter)
        with formatter.section("Settings (before or behind a command)"):
            formatter.write_dl(records)
