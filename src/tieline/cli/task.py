"""`tieline task get | list | cancel | subscribe` (CLI specification §7.1, §9, §10.3, §10.4)."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

import click

from tieline.cli import errors
from tieline.cli.errors import CliError, UsageFault
from tieline.cli.options import CONNECTION, PRESENTATION, Command, Group, settings_of
from tieline.cli.session import Session, execute
from tieline.cli.waiting import follow, poll, settle
from tieline.client.following import rests
from tieline.client.peer import Peer
from tieline.errors import A2AError, TaskNotCancelable, UnsupportedOperation
from tieline.types import ListTasksResponse, Task, TaskState

__all__ = ["cancel", "get", "listing", "named_task", "subscribe", "task", "task_argument"]

task = Group(
    "task",
    {
        "get": ("tieline.cli.task", "get", "Retrieve a task's status and artifacts."),
        "list": ("tieline.cli.task", "listing", "List tasks, the last changed first."),
        "cancel": ("tieline.cli.task", "cancel", "Cancel an active task."),
        "subscribe": ("tieline.cli.task", "subscribe", "Follow a task's events until it ends or needs you."),
        "download": ("tieline.cli.download", "download", "Save a task's artifacts as files."),
        "push-config": ("tieline.cli.push", "push_config", "Manage the webhooks that a task's news are sent to."),
    },
    help="Act on tasks.",
)

_STATES: Final = {state.value.removeprefix("TASK_STATE_"): state for state in TaskState}


def task_argument() -> click.Argument:
    return click.Argument(["task_id"], required=False, metavar="TASK_ID")


def named_task(context: click.Context, task_id: str | None) -> str:
    """The task of the argument, else of --task-id. Raises UsageFault when there is none, or two."""
    settings = settings_of(context)
    flag: str | None = settings["task-id"]
    if task_id is None:
        if flag is None:
            raise UsageFault("Which task? Give its id.", hint="Ids are listed by: tieline task list")
        return flag
    if "task-id" in settings.flags and flag != task_id:
        raise UsageFault(f"Two tasks are named: {task_id} and --task-id {flag}.")
    if not task_id.strip():
        raise UsageFault("The task id is empty.")
    return task_id


def _history(context: click.Context, param: click.Parameter, value: int | None) -> int | None:
    if value is not None and value < 0:
        raise click.BadParameter("0 or more messages")
    return value


def history_option() -> click.Option:
    return click.Option(
        ["--history"],
        type=int,
        callback=_history,
        metavar="N",
        help="How many of the last messages to ask for: 0 is none.  [default: as many as the agent gives]",
    )


@click.command(
    "get",
    cls=Command,
    settings=(*CONNECTION, "task-id", "wait", "poll-interval", *PRESENTATION),
    params=[task_argument(), history_option()],
)
@click.pass_context
def get(context: click.Context, task_id: str | None, history: int | None) -> int:
    """Retrieve a task: its state, its artifacts, and its history. With --wait, poll until it ends or needs you."""
    wanted = named_task(context, task_id)

    async def work(session: Session) -> None:
        session.task_id = wanted
        async with session.connect() as peer:
            found = await peer.get(wanted, history_length=history)
            if session.settings["wait"] and not rests(found.state):
                found = await poll(session, peer, found, history_length=history)
            session.out.task(found, history=history is not None)
            session.conclude(found)

    return execute(context, work)


@click.command(
    "cancel",
    cls=Command,
    settings=(*CONNECTION, "task-id", "metadata", *PRESENTATION),
    params=[task_argument()],
)
@click.pass_context
def cancel(context: click.Context, task_id: str | None) -> int:
    """Cancel an active task, and report the state that it is in then."""
    wanted = named_task(context, task_id)

    async def work(session: Session) -> None:
        session.task_id = wanted
        async with session.connect() as peer:
            try:
                found = await peer.cancel(wanted, metadata=session.settings["metadata"])
            except TaskNotCancelable as error:
                found = await _already_canceled(peer, wanted, error)
            session.out.task(found)
            session.conclude(found)

    return execute(context, work)


async def _already_canceled(peer: Peer, task_id: str, error: TaskNotCancelable) -> Task:
    """The task, when it is CANCELED: cancelling twice is cancelling (§10.4). Raises `error` otherwise."""
    try:
        found = await peer.get(task_id)
    except A2AError:
        raise error from None
    if found.state is not TaskState.CANCELED:
        raise error
    return found


def _state(context: click.Context, param: click.Parameter, value: str | None) -> TaskState | None:
    if value is None:
        return None
    state = _STATES.get(value.upper().replace("-", "_").removeprefix("TASK_STATE_"))
    if state is None:
        raise click.BadParameter(f"{value!r} is not a task state: {', '.join(sorted(_STATES))}")
    return state


def _timestamp(context: click.Context, param: click.Parameter, value: str | None) -> str | None:
    if value is None:
        return None
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        raise click.BadParameter(f"{value!r} is not a timestamp such as 2026-08-17T12:00:00Z") from None
    return moment.astimezone().isoformat() if moment.tzinfo is None else value


@click.command(
    "list",
    cls=Command,
    streams=True,
    settings=(*CONNECTION, "context-id", *PRESENTATION),
    params=[
        click.Option(["--status"], callback=_state, metavar="STATE", help="Only tasks in this state, such as WORKING."),
        click.Option(
            ["--since"], callback=_timestamp, metavar="TIME", help="Only tasks that changed at TIME or later."
        ),
        click.Option(["--page-size"], type=click.IntRange(1, 100), metavar="N", help="Tasks on a page, at most 100."),
        click.Option(["--page-token"], metavar="TOKEN", help="Go on where another page ended."),
        click.Option(["--all"], is_flag=True, help="All pages."),
        click.Option(["--artifacts"], is_flag=True, help="With the tasks' artifacts."),
        history_option(),
    ],
)
@click.pass_context
def listing(context: click.Context, /, **filters: Any) -> int:
    """List your tasks at an agent, the last changed first. --context-id lists those of one context."""

    async def work(session: Session) -> None:
        async with session.connect() as peer:
            await _list(session, peer, filters)

    return execute(context, work)


async def _list(session: Session, peer: Peer, filters: dict[str, Any]) -> None:
    every = filters["all"]
    token: str | None = filters["page_token"]
    found: list[Task] = []
    while True:
        page = await peer.list(
            context_id=session.settings["context-id"],
            status=filters["status"],
            page_size=filters["page_size"],
            page_token=token,
            history_length=filters["history"],
            status_timestamp_after=filters["since"],
            include_artifacts=filters["artifacts"] or None,
        )
        more = page.next_page_token
        if not every or session.streams:
            session.out.tasks(page)
        else:
            found += page.tasks
        if not every or not more:
            break
        if more == token:
            raise CliError(errors.INTERNAL, "The agent gives the same page again: its pages have no end.")
        token = more
    if every and not session.streams:
        session.out.tasks(ListTasksResponse(tuple(found), "", len(found), page.total_size))
    if more and not every:
        command = session.command("task", "list", *_filters(session, filters), "--page-token", more)
        session.out.next("Next", command)
        if session.streams:
            session.notes.line(f"There are more: {command}")


def _filters(session: Session, filters: dict[str, Any]) -> list[str]:
    """The filters of this command line, for the one of the next page."""
    words: list[str] = []
    if "context-id" in session.settings.flags:
        words += ["--context-id", session.settings["context-id"]]
    for flag in ("status", "since", "page_size", "history"):
        if filters[flag] is not None:
            words += [f"--{flag.replace('_', '-')}", str(filters[flag])]
    return [*words, "--artifacts"] if filters["artifacts"] else words


@click.command(
    "subscribe",
    cls=Command,
    streams=True,
    settings=(*CONNECTION, "task-id", "poll-interval", *PRESENTATION),
    params=[task_argument()],
)
@click.pass_context
def subscribe(context: click.Context, task_id: str | None) -> int:
    """Follow a task until it ends or needs you. It begins with the task as it is, and takes up broken streams again."""
    wanted = named_task(context, task_id)

    async def work(session: Session) -> None:
        session.task_id = wanted
        async with session.connect() as peer:
            if not peer.card.capabilities.streaming:
                raise UnsupportedOperation(
                    f"{peer.card.name} offers no streaming, so that no task can be subscribed to."
                )
            await _subscribe(session, peer, wanted)

    return execute(context, work)


async def _subscribe(session: Session, peer: Peer, task_id: str) -> None:
    # People follow a task to see what happens; a program that wants to says --stream.
    session.live = session.streams or not session.as_json
    told = await follow(session, peer.subscribe(task_id), snapshot_rests=True)
    answer = await settle(session, peer, told)
    if not isinstance(answer, Task):
        raise CliError(errors.INTERNAL, "The agent answered a subscription with a message.")
    if session.live:
        session.out.end(answer)
    else:
        session.out.task(answer)
    session.conclude(answer)
