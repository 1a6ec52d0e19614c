"""`tieline store migrate | stats | prune`: look after a store of tasks (carrying.py has export and import)."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

import click

from tieline.cli.amounts import read_seconds, read_size, seconds_of, told_size
from tieline.cli.notes import Notes
from tieline.cli.opened import named, opened, store_argument
from tieline.cli.options import PRESENTATION, Command, Group, settings_of
from tieline.cli.output import Output, open_output
from tieline.cli.progress import bar
from tieline.engine.clock import timestamp
from tieline.types import TaskState

if TYPE_CHECKING:
    from tieline.stores.base import Pruned, Retention

__all__ = ["migrate", "output_of", "prune", "stats", "store"]

store = Group(
    "store",
    {
        "migrate": ("tieline.cli.store", "migrate", "Make a store's tables, or bring them up to date."),
        "stats": ("tieline.cli.store", "stats", "Show what is in a store."),
        "prune": ("tieline.cli.store", "prune", "Drop old tasks, logs and outcomes of messages."),
        "export": ("tieline.cli.carrying", "export", "Write all tasks to a file."),
        "import": ("tieline.cli.carrying", "import_", "Put the tasks of a file in."),
    },
    help="Look after a store of tasks: sqlite:PATH, postgresql://... or redis://...",
)

_ENDS: Final = {state.value.removeprefix("TASK_STATE_"): state for state in TaskState if state.terminal}


class _Migrates(Protocol):
    """A store that outlives its processes."""

    async def migrate(self) -> tuple[int, int]: ...


def output_of(context: click.Context) -> Output:
    """stdout, as the settings have it."""
    settings = settings_of(context)
    settings.check_flags()
    return open_output(settings["output"], Notes(), stream=settings["stream"], verbose=settings["verbose"])


def _by_state(states: Mapping[TaskState, int]) -> Iterable[tuple[TaskState, int]]:
    """Those that there are, in the order of a task's life."""
    return [(state, states[state]) for state in TaskState if states.get(state)]


def _fields(states: Mapping[TaskState, int]) -> list[tuple[str, str]]:
    """`Input required: 3`, a state each."""
    return [
        (state.value.removeprefix("TASK_STATE_").replace("_", " ").capitalize(), str(count))
        for state, count in _by_state(states)
    ]


@click.command("migrate", cls=Command, settings=PRESENTATION, params=[store_argument()])
@click.pass_context
def migrate(context: click.Context, url: str | None) -> int:
    """Make the store's tables (its file, its keys), or bring them to this version's schema. Tasks stay.

    PostgreSQL needs it before its first server, PostgreSQL and Redis after an update that says so. Else a store is made
    ready by whoever opens it.
    """
    from tieline.stores import shown

    out = output_of(context)
    with named(context, url) as (runner, found):
        before, after = runner.run(cast(_Migrates, found).migrate())
        name = shown(url or "")
    was = "it was so already" if before == after else f"it was {before}" if before else "made now"
    out.document(
        {"store": name, "schemaBefore": before, "schema": after}, [("Store", name), ("Schema", f"{after} ({was})")]
    )
    return 0


@click.command("stats", cls=Command, settings=PRESENTATION, params=[store_argument()])
@click.pass_context
def stats(context: click.Context, url: str | None) -> int:
    """Show what is in a store: tasks by state, events, outcomes, webhooks, bytes, and how many servers use it."""
    from tieline.stores import shown

    out = output_of(context)
    with opened(context, url, made=False) as (runner, found):
        counted = runner.run(found.stats())
        replicas = counted.replicas if found.shared else 0
        name = shown(url or "")
    oldest = None if counted.oldest is None else timestamp(counted.oldest)
    tasks = sum(counted.states.values())
    out.document(
        {
            "store": name,
            "tasks": tasks,
            "states": dict(_by_state(counted.states)),
            "events": counted.events,
            "messages": counted.messages,
            "webhooks": counted.webhooks,
            "deadWebhooks": counted.dead_webhooks,
            "bytes": counted.bytes,
            "oldest": oldest,
            "replicas": replicas,
        },
        [
            ("Store", name),
            ("Tasks", str(tasks)),
            *_fields(counted.states),
            ("Events", str(counted.events)),
            ("Messages", str(counted.messages)),
            ("Webhooks", str(counted.webhooks)),
            ("Dead webhooks", str(counted.dead_webhooks)),
            ("Size", told_size(counted.bytes)),
            ("Oldest", oldest or "none"),
            ("Replicas", str(replicas)),
        ],
    )
    return 0


def _keeps(context: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[TaskState, float | None]:
    """`failed=7d`, each."""
    found: dict[TaskState, float | None] = {}
    for value in values:
        name, equals, duration = value.partition("=")
        state = _ENDS.get(name.strip().upper().replace("-", "_").removeprefix("TASK_STATE_"))
        if state is None or not equals:
            names = ", ".join(name.lower() for name in _ENDS)
            raise click.BadParameter(f"{value!r} is not STATE=DURATION, such as failed=7d; states are {names}")
        try:
            found[state] = seconds_of(duration)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None
    return found


@click.command(
    "prune",
    cls=Command,
    settings=PRESENTATION,
    params=[
        store_argument(),
        click.Option(
            ["--ttl"],
            callback=read_seconds,
            metavar="DURATION",
            help="Drop ended tasks, with their logs, that are older: 30m, 24h, 7d; 0 is all.",
        ),
        click.Option(
            ["states", "--state"],
            multiple=True,
            callback=_keeps,
            metavar="STATE=DURATION",
            help="In place of --ttl for tasks that ended so: failed=7d, canceled=0, completed=none. Repeatable.",
        ),
        click.Option(
            ["--max-bytes"],
            callback=read_size,
            metavar="BYTES",
            help="Drop the oldest ended tasks until the store has no more: 500M, 4G.",
        ),
        click.Option(
            ["--logs"],
            callback=read_seconds,
            metavar="DURATION",
            help="Drop logs of ended tasks that are older: the tasks stay, their streams cannot be resumed.",
        ),
        click.Option(
            ["--messages"],
            callback=read_seconds,
            metavar="DURATION",
            help="Forget which older messages had which outcome: sent again they are new.",
        ),
    ],
)
@click.pass_context
def prune(context: click.Context, /, url: str | None, **given: Any) -> int:
    """Drop what is old. With options exactly what they say, without any what the kind of store says of itself.

    Tasks that have not ended stay, whatever their age. Webhooks go with their tasks, and after a day without one.
    """
    from tieline.stores import shown

    out = output_of(context)
    with opened(context, url, made=False) as (runner, found):
        if any(value is not None and value != {} for value in given.values()):
            found.retention = _retention(**given)
        with bar("Dropping") as said:
            pruned = runner.run(found.prune(time.time_ns() // 1000, lambda so_far: said(_steps(so_far), _told(so_far))))
        name = shown(url or "")
    out.document(
        {
            "store": name,
            "tasks": pruned.tasks,
            "states": dict(_by_state(pruned.states)),
            "logs": pruned.logs,
            "messages": pruned.messages,
            "webhooks": pruned.webhooks,
            "bytes": pruned.bytes,
        },
        [
            ("Store", name),
            ("Tasks dropped", str(pruned.tasks)),
            *_fields(pruned.states),
            ("Logs dropped", str(pruned.logs)),
            ("Messages forgotten", str(pruned.messages)),
            ("Webhooks dropped", str(pruned.webhooks)),
            ("Freed", told_size(pruned.bytes)),
        ],
    )
    return 0


def _retention(
    ttl: float | None,
    states: Mapping[TaskState, float | None],
    max_bytes: int | None,
    logs: float | None,
    messages: float | None,
) -> Retention:
    from tieline.stores.base import Keep, Retention

    return Retention(
        ttl, max_bytes, {state: Keep(seconds) for state, seconds in states.items()}, Keep(logs), Keep(messages)
    )


def _steps(pruned: Pruned) -> int:
    return pruned.tasks + pruned.logs + pruned.messages + pruned.webhooks


def _told(pruned: Pruned) -> str:
    return f"{pruned.tasks} tasks, {pruned.logs} logs, {pruned.messages} messages, {told_size(pruned.bytes)}"
