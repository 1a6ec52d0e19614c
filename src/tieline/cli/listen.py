"""`tieline push listen`: a webhook in a terminal (A2A 1.0 §4.3.3, §13.2)."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any
from urllib.parse import urlsplit

import click

from tieline.cli.errors import CliError, UsageFault
from tieline.cli.options import PRESENTATION, Command
from tieline.cli.secrets import read_secrets, secret_options
from tieline.cli.serve import CANNOT_SERVE
from tieline.cli.session import Session, execute
from tieline.client.origin import is_this_machine
from tieline.server.loading import CannotServe
from tieline.server.receiver import Notification, WebhookReceiver
from tieline.types import Message, StreamEvent, Task, TaskArtifactUpdateEvent, TaskStatus

__all__ = ["listen"]


@click.command(
    "listen",
    cls=Command,
    streams=True,
    settings=("task-id", *PRESENTATION),
    params=[
        click.Option(["--host"], default="127.0.0.1", show_default=True, metavar="HOST", help="Where to listen."),
        click.Option(
            ["--port"],
            type=click.IntRange(0, 65535),
            default=8001,
            show_default=True,
            metavar="PORT",
            help="0 is any free one.",
        ),
        *secret_options(),
        click.Option(
            ["--jwks"], metavar="URL", help="Signatures are wanted, by a key of this JWKS document of the agent's."
        ),
        click.Option(["--audience"], metavar="URL", help="Whom signatures have to be for: this webhook's origin."),
        click.Option(["--anyone"], is_flag=True, help="Take notifications from everybody, also from other machines."),
        click.Option(["--count"], type=click.IntRange(1), metavar="N", help="End after N notifications."),
    ],
)
@click.pass_context
def listen(context: click.Context, /, **options: Any) -> int:
    """Receive the notifications of agents and print each as it comes: a line, or with -o json one JSON object a line.

    It says first at which URL. Senders show what is in the files or variables; with nothing of it, this machine alone
    may send. --task-id takes those of one task only. It ends with Ctrl-C.
    """
    files = {name: options.pop(name) for name in ("token_file", "bearer_file", "basic_file")}

    async def work(session: Session) -> None:
        receiver, open_ = _receiver(session, files, options)
        stopping = asyncio.ensure_future(_signal().wait())
        taking = asyncio.ensure_future(_take(session, receiver, options["count"]))
        try:
            async with open_ as url:
                session.notes.line(f"Listening at {url}")
                await asyncio.wait([stopping, taking], return_when=asyncio.FIRST_COMPLETED)
        except CannotServe as error:
            raise CliError(CANNOT_SERVE, str(error)) from None
        finally:
            stopping.cancel()
            if not taking.done():
                taking.cancel()
        with suppress(asyncio.CancelledError):
            await taking

    return execute(context, work)


def _receiver(
    session: Session, files: dict[str, str | None], options: Mapping[str, Any]
) -> tuple[WebhookReceiver, AbstractAsyncContextManager[str]]:
    """The webhook, and what serves it. Raises UsageFault."""
    secrets: dict[str, Any] = dict(read_secrets(files, session.notes))
    if "basic" in secrets:
        user, _, password = secrets["basic"].partition(":")
        secrets["basic"] = (user, password)
    asked = bool(secrets) or options["jwks"] is not None
    here = is_this_machine(options["host"])
    if asked and options["anyone"]:
        raise UsageFault("--anyone asks senders for nothing: leave it out, or what they have to show.")
    if not asked and not here and not options["anyone"]:
        raise UsageFault(
            f"{options['host']} can be reached by other machines: who may send?",
            hint="Give --token-file, --bearer-file, --basic-file or --jwks; or --anyone.",
        )
    wanted = session.settings["task-id"]
    try:
        receiver = WebhookReceiver(
            **secrets,
            jwks=options["jwks"],
            audience=options["audience"],
            anyone=not asked,
            expects=None if wanted is None else lambda task_id: task_id == wanted,
        )
    except (ValueError, ImportError) as error:
        raise UsageFault(f"{error}.".replace("..", ".")) from None
    from tieline.server.listening import listening

    application = receiver if asked or options["anyone"] else _for_this_machine(receiver)
    return receiver, listening(application, options["host"], options["port"])


Asgi = Callable[[Mapping[str, Any], Any, Any], Awaitable[None]]


def _for_this_machine(receiver: WebhookReceiver) -> Asgi:
    """The webhook for requests that name this machine: a web page can make a name of its own lead here."""

    async def application(scope: Mapping[str, Any], receive: Any, send: Any) -> None:
        if _is_here(dict(scope.get("headers", ())).get(b"host", b"").decode("latin-1")):
            await receiver(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": 421, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    return application


def _is_here(host: str) -> bool:
    """Whether the Host of a request, with its port or without, is this machine's."""
    try:
        return "@" not in host and is_this_machine(urlsplit(f"//{host}").hostname or "")
    except ValueError:
        return False


async def _take(session: Session, receiver: WebhookReceiver, count: int | None) -> None:
    """Print what comes."""
    async for notification in receiver:
        session.out.notification(notification.event, _line(notification))
        if session.settings["verbose"]:
            session.notes.line(f"A2A {notification.dialect}, {notification.key or 'without a key'}")
        if count is not None and (count := count - 1) <= 0:
            return


def _line(notification: Notification) -> tuple[str, str]:
    """A notification as a label and what follows it: the task, then what has happened."""
    event, task_id = notification.event, notification.task_id or "(no task)"
    label, told = _told(event)
    return label, f"{task_id} {told}"


def _told(event: StreamEvent) -> tuple[str, str]:
    if isinstance(event, Message):
        return "Message", event.text
    if isinstance(event, TaskArtifactUpdateEvent):
        artifact = event.artifact
        kinds = ", ".join(part.kind for part in artifact.parts if part.text is None)
        return "Artifact", f"{artifact.name or artifact.artifact_id}: {artifact.text or kinds}"
    label = "Task" if isinstance(event, Task) else "Status"
    return label, f"{event.status.state.value}{_said(event.status)}"


def _said(status: TaskStatus) -> str:
    return f": {status.message.text}" if status.message is not None and status.message.text else ""


def _signal() -> asyncio.Event:
    """What SIGINT and SIGTERM set from now on."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        with suppress(NotImplementedError):  # not on Windows, where Ctrl-C ends the event loop
            loop.add_signal_handler(number, stopped.set)
    return stopped
