"""`tieline send`: start or continue an interaction (CLI specification §10.2)."""

from __future__ import annotations

from typing import Any, Final

import click

from tieline.cli.errors import UsageFault
from tieline.cli.options import CONNECTION, PRESENTATION, Command, settings_of
from tieline.cli.parts import build_parts
from tieline.cli.session import Session, execute
from tieline.cli.waiting import follow, poll, settle
from tieline.client.following import rests
from tieline.client.peer import Peer
from tieline.errors import MethodNotFound, PeerTimeout, TaskInDoubt, UnsupportedOperation
from tieline.ids import new_id
from tieline.types import Message, Role, Task

__all__ = ["send"]

_ORDER: Final = "tieline.parts"  # in click's `meta`: the part flags as they were written
_PART_FLAGS: Final = ("text", "file", "data", "media-type")


class _SendCommand(Command):
    """Keeps the order of the part flags, which click sorts by option."""

    def make_parser(self, ctx: click.Context) -> Any:
        parser = super().make_parser(ctx)
        parse = parser.parse_args

        def parse_args(args: list[str]) -> Any:
            values, rest, order = parse(args=args)
            given: list[tuple[str, str]] = []
            used: dict[str, int] = {}
            for param in order:
                name = (param.name or "").removeprefix("part_").replace("_", "-")
                if isinstance(param, click.Option) and name in _PART_FLAGS:
                    index = used.get(name, 0)
                    given.append((name, values[param.name][index]))
                    used[name] = index + 1
            ctx.meta[_ORDER] = given
            return values, rest, order

        parser.parse_args = parse_args  # type: ignore[method-assign]
        return parser


def _part_option(name: str, metavar: str, text: str) -> click.Option:
    return click.Option(
        [f"part_{name.replace('-', '_')}", f"--{name}"], multiple=True, expose_value=False, metavar=metavar, help=text
    )


@click.command(
    "send",
    cls=_SendCommand,
    streams=True,
    settings=(
        *CONNECTION,
        "task-id",
        "context-id",
        "metadata",
        "wait",
        "async",
        "poll-interval",
        *PRESENTATION,
    ),
    short_help="Send a message to start or continue an interaction.",
    params=[
        click.Argument(["text"], required=False),
        _part_option("text", "TEXT", "Add a text part. Part flags are repeatable and keep their order."),
        _part_option("file", "PATH|URL", "Add a file part: a local file's bytes, or a URL for the agent to fetch."),
        _part_option("data", "PATH|-", "Add a data part: JSON from a file, or from standard input."),
        _part_option("media-type", "TYPE", "Media type of the part in front of it; guessed where none is given."),
        click.Option(["--reference-task"], multiple=True, metavar="ID", help="A task it refers to. Repeatable."),
        click.Option(["--accept"], multiple=True, metavar="TYPE", help="Media type to be answered in. Repeatable."),
        click.Option(
            ["--message-id"],
            metavar="ID",
            help="The message's id; agents that recognise it will not do the work twice.",
        ),
    ],
)
@click.pass_context
def send(
    context: click.Context,
    text: str | None,
    reference_task: tuple[str, ...],
    accept: tuple[str, ...],
    message_id: str | None,
) -> int:
    """Send TEXT (or - for standard input) and other parts to an agent, and wait until the task ends or needs you.

    TEXT is the first part; flags add more. Continue a task that waits for you with --task-id, and a conversation with
    --context-id.
    """
    settings = settings_of(context)
    if settings["stream"] and "async" in settings.flags:
        raise UsageFault("--stream and --async exclude each other: one follows the task, the other does not wait.")
    waits = settings.waits or settings["stream"]
    given = context.meta.get(_ORDER, [])
    parts = build_parts([("input", text), *given] if text is not None else given)
    task_id, context_id = settings["task-id"], settings["context-id"]
    message = Message(
        message_id=message_id or new_id(),
        role=Role.USER,
        parts=parts,
        context_id=context_id,
        task_id=task_id,
        reference_task_ids=reference_task,
    )
    options = {"metadata": settings["metadata"], "accepted_output_modes": accept}
    return execute(context, lambda session: _send(session, message, options, waits=waits))


async def _send(session: Session, message: Message, options: dict[str, Any], *, waits: bool) -> None:
    async with session.connect() as peer:
        session.message_id = message.message_id
        session.out.sent(message)
        if not waits:
            answer = await peer.send(message, return_immediately=True, **options)
        elif peer.card.capabilities.streaming:
            answer = await _by_stream(session, peer, message, options)
        else:
            session.notes.debug("the card offers no streaming: polling")
            answer = await _by_polling(session, peer, message, options)
        if not session.streams:
            session.out.answer(answer)
        elif isinstance(answer, Task):
            session.out.end(answer)
        if isinstance(answer, Task):
            session.conclude(answer)


async def _by_stream(session: Session, peer: Peer, message: Message, options: dict[str, Any]) -> Task | Message:
    told = await follow(session, peer.stream(message, **options))
    if isinstance(told.failure, UnsupportedOperation | MethodNotFound) and told.last is None:
        session.notes.debug(f"the agent does not stream, though its card says so: {told.failure}")
        return await _by_polling(session, peer, message, options)
    return await settle(session, peer, told)


async def _by_polling(session: Session, peer: Peer, message: Message, options: dict[str, Any]) -> Task | Message:
    # To a task that is known already the call may block: an interruption loses nothing, and a snapshot taken at once
    # could still show the task as waiting for the very answer that it has got.
    try:
        answer = await peer.send(message, return_immediately=message.task_id is None, **options)
    except (PeerTimeout, TaskInDoubt) as error:
        if message.task_id is None:
            raise
        session.notes.debug(f"the call broke off, looking at the task: {error}")
        answer = await peer.get(message.task_id)
    if isinstance(answer, Message):
        if session.streams:
            session.out.event(answer)
        return answer
    session.told(answer.id)

    def show(task: Task) -> None:
        if session.streams:
            session.out.event(task)

    show(answer)
    if rests(answer.state):
        return answer
    final = await poll(session, peer, answer, changed=show)
    show(final)
    return final
