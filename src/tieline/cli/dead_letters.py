"""`tieline push dead | replay`: webhooks that were given up, in the store of a server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

from tieline.cli.errors import CliError, UsageFault
from tieline.cli.opened import opened, store_argument
from tieline.cli.options import PRESENTATION, Command
from tieline.cli.store import output_of
from tieline.engine.clock import timestamp

if TYPE_CHECKING:
    from tieline.engine.dead import DeadLetter
    from tieline.stores import Store
    from tieline.stores.base import Webhook

__all__ = ["dead", "replay"]

# Ours: the CLI specification knows of no dead letters.
NOT_DEAD = "TIELINE_ERR_NO_DEAD_LETTER"

_ALL = 1_000_000


@click.command(
    "dead",
    cls=Command,
    settings=PRESENTATION,
    params=[
        store_argument(),
        click.Option(
            ["--limit"], type=click.IntRange(1), default=100, show_default=True, metavar="N", help="The last N."
        ),
    ],
)
@click.pass_context
def dead(context: click.Context, url: str | None, limit: int) -> int:
    """Show the webhooks that were given up, the last first. `tieline push replay` has them tried again.

    A SQLite file can be looked at while no server runs, PostgreSQL and Redis beside one.
    """
    from tieline.engine.dead import dead_letter
    from tieline.stores import shown

    out = output_of(context)
    with opened(context, url, made=False) as (runner, found):
        letters = [dead_letter(webhook) for webhook in runner.run(_dead(found, limit))]
        name = shown(url or "")
    fields = [("Store", name), ("Dead webhooks", str(len(letters)))]
    for letter in letters:
        fields += _fields(letter)
    out.document({"store": name, "dead": [_document(letter) for letter in letters]}, fields)
    return 0


async def _dead(store: Store, limit: int) -> Iterable[Webhook]:
    return await store.dead_webhooks("", limit)


def _document(letter: DeadLetter) -> dict[str, Any]:
    return {
        "taskId": letter.task_id,
        "id": letter.id,
        "url": letter.url,
        "after": letter.after,
        "failures": letter.failures,
        "reason": letter.reason,
        "at": timestamp(letter.at),
    }


def _fields(letter: DeadLetter) -> list[tuple[str, str]]:
    return [
        ("Task ID", letter.task_id),
        ("Webhook ID", letter.id),
        ("URL", letter.url),
        ("Behind event", str(letter.after)),
        ("Failures", str(letter.failures)),
        ("Reason", letter.reason),
        ("Given up", timestamp(letter.at)),
    ]


@click.command(
    "replay",
    cls=Command,
    settings=PRESENTATION,
    params=[
        store_argument(),
        click.Option(["--task"], metavar="ID", help="The dead webhooks of this task."),
        click.Option(["--id", "id_"], metavar="ID", help="Of these the one with this id."),
        click.Option(["every", "--all"], is_flag=True, help="All that are dead."),
    ],
)
@click.pass_context
def replay(context: click.Context, url: str | None, task: str | None, id_: str | None, every: bool) -> int:
    """Have webhooks that were given up told what they have missed, from where they were given up.

    A server on PostgreSQL or Redis takes them up within seconds; one on a SQLite file, which has to be stopped
    meanwhile, when it starts.
    """
    from tieline.stores import shown

    if (task is None) == (not every):
        raise UsageFault("Which webhooks? Give --task ID, or --all.")
    if id_ is not None and task is None:
        raise UsageFault("--id is that of a webhook of one task: give --task, too.")
    out = output_of(context)
    with opened(context, url, made=False) as (runner, found):
        revived = runner.run(_revive(found, task, id_))
        name = shown(url or "")
    if not revived and task is not None:
        raise CliError(NOT_DEAD, f"Task {task} has no dead webhook{'' if id_ is None else f' {id_}'}.")
    out.document(
        {"store": name, "replayed": [{"taskId": webhook.task_id, "id": webhook.id} for webhook in revived]},
        [("Store", name), ("Webhooks", str(len(revived)))],
    )
    return 0


async def _revive(store: Store, task: str | None, id_: str | None) -> list[Webhook]:
    revived = []
    for webhook in await store.dead_webhooks("", _ALL):
        await asyncio.sleep(0)  # so that Ctrl-C is heard
        wanted = task in (None, webhook.task_id) and id_ in (None, webhook.id)
        if wanted and await store.revive_webhook(webhook.scope, webhook.task_id, webhook.id):
            revived.append(webhook)
    return revived
