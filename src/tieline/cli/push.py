"""`tieline push set | get | list | delete`, which are `task push-config`, too (CLI specification §7.1).

`listen` is in listen.py, `dead` and `replay` in dead_letters.py.
"""

from __future__ import annotations

import click

from tieline.cli.options import CONNECTION, PRESENTATION, Command, Group
from tieline.cli.secrets import read_secrets, secret_options
from tieline.cli.session import Session, execute
from tieline.cli.task import named_task, task_argument
from tieline.types import AuthenticationInfo, TaskPushNotificationConfig

__all__ = ["delete", "get", "listing", "push", "push_config", "set_"]

_CONFIGS = {
    "get": ("tieline.cli.push", "get", "Show a webhook of a task."),
    "list": ("tieline.cli.push", "listing", "Show all webhooks of a task."),
    "delete": ("tieline.cli.push", "delete", "Remove a webhook of a task."),
}
_SET = ("tieline.cli.push", "set_", "Have what happens to a task sent to a URL.")

push = Group(
    "push",
    {
        "listen": ("tieline.cli.listen", "listen", "Receive notifications, and print them."),
        "set": _SET,
        **_CONFIGS,
        "dead": ("tieline.cli.dead_letters", "dead", "Show the webhooks that were given up."),
        "replay": ("tieline.cli.dead_letters", "replay", "Have webhooks that were given up tried again."),
    },
    help="Have a task's news sent to a webhook, and receive them.",
)
push_config = Group(
    "push-config", {"create": _SET, **_CONFIGS}, help="Manage the webhooks that a task's news are sent to."
)

_SETTINGS = (*CONNECTION, "task-id", *PRESENTATION)


def _id_option(help_: str) -> click.Option:
    return click.Option(["--id", "id_"], metavar="ID", help=help_)


_WHICH = "Which webhook of the task.  [default: the one that was set without an id]"


@click.command(
    "set",
    cls=Command,
    settings=_SETTINGS,
    params=[
        task_argument(),
        click.Option(["--url"], required=True, metavar="URL", help="The webhook, as the agent can reach it."),
        _id_option("An id for it, where the task has several. One that is there is replaced."),
        *secret_options(),
    ],
)
@click.pass_context
def set_(context: click.Context, /, task_id: str | None, url: str, id_: str | None, **files: str | None) -> int:
    """Have what happens to a task sent to URL. What the agent is known by there stands in files or variables.

    `tieline push listen` is something to send to.
    """
    wanted = named_task(context, task_id)

    async def work(session: Session) -> None:
        secrets = read_secrets(files, session.notes)
        authentication = None
        for scheme in ("bearer", "basic"):
            if scheme in secrets:
                authentication = AuthenticationInfo(scheme.capitalize(), secrets[scheme])
        webhook = TaskPushNotificationConfig(url, None, id_, None, secrets.get("token"), authentication)
        async with session.connect() as peer:
            session.out.webhook(await peer.set_webhook(wanted, webhook))

    return execute(context, work)


@click.command("get", cls=Command, settings=_SETTINGS, params=[task_argument(), _id_option(_WHICH)])
@click.pass_context
def get(context: click.Context, task_id: str | None, id_: str | None) -> int:
    """Show a webhook of a task. As text its secrets are left out."""
    wanted = named_task(context, task_id)

    async def work(session: Session) -> None:
        async with session.connect() as peer:
            session.out.webhook(await peer.get_webhook(wanted, id_))

    return execute(context, work)


@click.command("list", cls=Command, streams=True, settings=_SETTINGS, params=[task_argument()])
@click.pass_context
def listing(context: click.Context, task_id: str | None) -> int:
    """Show all webhooks of a task. As text their secrets are left out."""
    wanted = named_task(context, task_id)

    async def work(session: Session) -> None:
        async with session.connect() as peer:
            session.out.webhooks(await peer.list_webhooks(wanted))

    return execute(context, work)


@click.command("delete", cls=Command, settings=_SETTINGS, params=[task_argument(), _id_option(_WHICH)])
@click.pass_context
def delete(context: click.Context, task_id: str | None, id_: str | None) -> int:
    """Remove a webhook of a task; that it is gone already is no error where the agent says none."""
    wanted = named_task(context, task_id)

    async def work(session: Session) -> None:
        async with session.connect() as peer:
            await peer.delete_webhook(wanted, id_)
            session.out.document({}, [("Deleted", id_ or wanted)])

    return execute(context, work)
