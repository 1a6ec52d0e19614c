"""The webhooks of one agent's tasks: the four operations on them (A2A 1.0 §3.1.7 to §3.1.10), and their delivery."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable
from typing import TYPE_CHECKING, Final, cast

from msgspec.structs import replace

from tieline.engine.delivery import Delivery
from tieline.engine.letters import Rehook
from tieline.engine.log import TaskLog
from tieline.engine.notification import check_config
from tieline.engine.push import Payloads, Push
from tieline.errors import InvalidParams, TaskNotFound
from tieline.ids import new_id
from tieline.stores.base import Record, SharedStore, StoreError, Webhook
from tieline.types import ListTaskPushNotificationConfigsResponse, TaskPushNotificationConfig, encode, load

if TYPE_CHECKING:
    from tieline.engine.tasks import Tasks
    from tieline.engine.writing import WrittenLog

__all__ = ["Webhooks"]

log = logging.getLogger("tieline.push")

_CLOSE_S: Final = 2.0
_ID_CHARACTERS: Final = 256


class Webhooks:
    """The webhooks of one agent's tasks."""

    def __init__(self, service: Tasks, push: Push, payloads: Payloads) -> None:
        self.service = service
        self.payloads = payloads
        self._push = push
        self._deliveries: dict[tuple[str, str], dict[str, Delivery]] = {}  # by scope and task id, then by its own id
        self._tasks: set[asyncio.Task[None]] = set()
        self._taking = False
        self._closed = False

    # --- life ---------------------------------------------------------------------------------------------------------

    async def take(self) -> None:
        """Deliver what nobody delivers. Raises StoreError."""
        if self._taking or self._closed:
            return
        self._taking = True
        try:
            while found := await self.service.store.take_webhooks(self.service.scope_prefix):
                self._begin_all(found)
                if not self.service.store.shared:
                    break
        finally:
            self._taking = False

    async def close(self) -> None:
        """Let deliveries under way finish for a moment, then stop; whoever comes next goes on with them."""
        self._closed = True
        deliveries = [each for some in self._deliveries.values() for each in some.values()]
        under_way = [each.task for each in deliveries if not each.waiting]
        if under_way:
            await asyncio.wait(under_way, timeout=_CLOSE_S)
        left = [*self._tasks, *(each.task for each in deliveries)]
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left)

    def _begin_all(self, found: Iterable[Webhook]) -> None:
        for webhook in found:
            self.begin(webhook)

    def begin(self, webhook: Webhook, run: TaskLog | None = None) -> None:
        """Deliver a webhook from now on; `run` is its task's, where that is not known to the service yet."""
        if self._closed:
            return
        some = self._deliveries.setdefault((webhook.scope, webhook.task_id), {})
        before = some.get(webhook.id)
        if before is not None:
            if before.webhook.created == webhook.created:
                return
            before.stop()
        if run is not None:
            run.streamed = True  # its log is needed behind its end
        some[webhook.id] = Delivery(self, self._push, webhook, run)

    def ended(self, delivery: Delivery) -> None:
        """A delivery is over, for now."""
        some = self._deliveries.get(delivery.key)
        if some is not None and some.get(delivery.webhook.id) is delivery:
            del some[delivery.webhook.id]
            if not some:
                del self._deliveries[delivery.key]
            run = self.service.runs.get(delivery.key)
            if run is not None:
                run.hooked = True  # what it says later is to be delivered
        store = self.service.store
        if store.shared:
            cast(SharedStore, store).release_webhook(delivery.webhook)

    # --- what happens to tasks ----------------------------------------------------------------------------------------

    def published(self, run: WrittenLog) -> None:
        """A run that goes on with a stored task has published something: its webhooks are delivered from here."""
        run.hooked = False
        run.streamed = True
        self._do(self._claim(run.scope, run.task_id))

    def _do(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _claim(self, scope: str, task_id: str) -> None:
        try:
            self._begin_all(await self.service.store.claim_webhooks(scope, task_id))
        except StoreError as error:
            log.error("the webhooks of task %s cannot be read: %s", task_id, error)

    async def changed(self, scope: str, task_id: str) -> None:
        """Another replica has set or dropped a webhook of a task, or may own what was this one's."""
        store = self.service.store
        try:
            if self.service.runs.get((scope, task_id)) is not None:
                self._begin_all(await store.claim_webhooks(scope, task_id))
            there = {webhook.id: webhook for webhook in await store.webhooks(scope, task_id)}
        except StoreError as error:
            log.error("the webhooks of task %s cannot be read: %s", task_id, error)
            return
        me = cast(SharedStore, store).replica if store.shared else ""
        for id_, delivery in list(self._deliveries.get((scope, task_id), {}).items()):
            now = there.get(id_)
            if now is None or now.created != delivery.webhook.created or now.dead is not None or now.owner != me:
                delivery.stop()

    async def check_owned(self) -> None:
        """This replica was taken for dead: see which webhooks are still its own."""
        for scope, task_id in list(self._deliveries):
            await self.changed(scope, task_id)

    # --- operations ---------------------------------------------------------------------------------------------------

    def checked(self, config: TaskPushNotificationConfig, field: str = "") -> None:
        """Check that a configuration can be called. Raises InvalidParams."""
        prefix = f"{field}." if field else ""
        if not config.url:
            raise InvalidParams.at(f"{prefix}url", "must not be empty")
        try:
            self._push.guard.check(config.url)
        except ValueError as error:
            raise InvalidParams.at(f"{prefix}url", str(error)) from None
        try:
            check_config(config)
        except ValueError as error:
            name, _, words = str(error).partition(" ")
            raise InvalidParams.at(prefix + name, words) from None
        if config.id and (len(config.id) > _ID_CHARACTERS or not config.id.isprintable()):
            raise InvalidParams.at(f"{prefix}id", f"must be printable and have at most {_ID_CHARACTERS} characters")

    async def set_first(self, scope: str, task_id: str, config: TaskPushNotificationConfig, version: str) -> Webhook:
        """Keep the webhook that came with the message which a task is to be made of. Raises StoreError."""
        there = {webhook.id: webhook for webhook in await self.service.store.webhooks(scope, task_id)}
        webhook = self._made(scope, task_id, config, version, 0, mine=True)
        before = there.get(webhook.id)
        if before is not None and before.config == webhook.config:
            return before  # the message came before
        await self._set(webhook)
        return webhook

    async def create(
        self, scope: str, found: TaskLog | Record, config: TaskPushNotificationConfig, version: str
    ) -> TaskPushNotificationConfig:
        """Tell a webhook of what happens to a task from now on. Raises InvalidParams, StoreError, InternalError."""
        if isinstance(found, TaskLog):
            await found.readable()
            after, task_id = found.published, found.task_id
        else:
            after, task_id = found.version, found.task_id
        store, runs = self.service.store, self.service.runs
        mine = not store.shared or (scope, task_id) in runs
        webhook = self._made(scope, task_id, config, version, after, mine=mine)
        await self._set(webhook)
        if mine:
            self.begin(webhook, runs.get((scope, task_id)))
        elif (scope, task_id) in runs:
            await self._claim(scope, task_id)
        else:
            self._tell_others(scope, task_id)
        return load(webhook.config, TaskPushNotificationConfig)

    async def create_once(self, run: TaskLog, webhook: Webhook, version: str) -> None:
        """Create a webhook like one that was made for another task, if the task has none like it.

        Raises InvalidParams, StoreError, InternalError.
        """
        given = load(webhook.config, TaskPushNotificationConfig)
        for there in await self.service.store.webhooks(run.scope, run.task_id):
            if replace(load(there.config, TaskPushNotificationConfig), id=given.id, task_id=given.task_id) == given:
                return
        given = replace(given, id=None if given.id == webhook.task_id else given.id)  # see _made
        await self.create(run.scope, run, given, version)

    def _made(
        self, scope: str, task_id: str, config: TaskPushNotificationConfig, version: str, after: int, *, mine: bool
    ) -> Webhook:
        # Before 1.0 a configuration without an id was the task's only one.
        id_ = config.id or (new_id() if version == "1.0" else task_id)
        config = replace(config, id=id_, task_id=task_id)
        created, _ = self.service.clock.tick()
        store = self.service.store
        owner = cast(SharedStore, store).replica if store.shared and mine else ""
        return Webhook(scope, task_id, id_, encode(config), version, after, created, owner)

    async def _set(self, webhook: Webhook) -> None:
        limit = self._push.webhooks_per_task
        if not await self.service.store.set_webhook(webhook, limit):
            raise InvalidParams.at("taskId", f"task {webhook.task_id!r} has {limit} webhooks already: delete one")

    def _tell_others(self, scope: str, task_id: str) -> None:
        """Another replica may be at work on the task, or deliver what has changed."""
        replica = self.service.replica
        if replica is not None:
            replica.tell_all(Rehook(scope, task_id))

    async def get(self, scope: str, task_id: str, id_: str) -> TaskPushNotificationConfig:
        """Raises TaskNotFound, StoreError."""
        there = await self.service.store.webhooks(scope, task_id)
        for webhook in there:
            if webhook.id == id_:
                return load(webhook.config, TaskPushNotificationConfig)
        if id_ == task_id and there:  # callers of 0.1 and 0.2 know no ids: they mean the task's only one
            return load(there[-1].config, TaskPushNotificationConfig)
        raise WebhookNotFound(task_id, id_)

    async def list(self, scope: str, task_id: str) -> ListTaskPushNotificationConfigsResponse:
        """Raises StoreError."""
        there = await self.service.store.webhooks(scope, task_id)
        return ListTaskPushNotificationConfigsResponse(
            tuple(load(webhook.config, TaskPushNotificationConfig) for webhook in there)
        )

    async def delete(self, scope: str, task_id: str, id_: str) -> None:
        """Deliver no more. Of one that is not there nothing is said (§3.1.10). Raises StoreError."""
        delivery = self._deliveries.get((scope, task_id), {}).get(id_)
        if delivery is not None:
            delivery.stop()
        await self.service.store.drop_webhook(scope, task_id, id_)
        self._tell_others(scope, task_id)

    def begin_with(
        self, scope: str, task_id: str, config: TaskPushNotificationConfig, version: str, run: TaskLog
    ) -> None:
        """Keep and deliver a webhook of a run that has begun already."""

        async def work() -> None:
            try:
                self.begin(await self.set_first(scope, task_id, config, version), run)
            except StoreError as error:
                log.error("a webhook of task %s cannot be kept: %s", task_id, error)

        self._do(work())

    async def forget(self, webhook: Webhook) -> None:
        """Keep no webhook of a message that no task has come of. Raises StoreError."""
        await self.service.store.drop_webhook(webhook.scope, webhook.task_id, webhook.id)


class WebhookNotFound(TaskNotFound):
    """A task has no webhook of this id (A2A 1.0 §3.1.8)."""

    def __init__(self, task_id: str, id_: str) -> None:
        super().__init__(task_id)
        self.args = (f"Task {task_id!r} has no push notification configuration {id_!r}.",)
        self.metadata["pushNotificationConfigId"] = id_
