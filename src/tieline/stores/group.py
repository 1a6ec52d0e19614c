"""Writing in groups: all that is asked for in one turn of the loop, and while a write is under way, goes out together.

One group is one round trip to a server. When the connection breaks in the middle of it, nobody knows whether it was
done: it is sent once more, and its mark, kept with each task, tells what had been done.
"""

from __future__ import annotations

import asyncio
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, Final

from tieline.stores.base import Append, BatchFailed, Outcome, StoreError, VersionConflict, Webhook
from tieline.stores.patience import Patience
from tieline.stores.reach import Reach, further

__all__ = ["Group", "GroupWriter", "Key", "WebhookKey"]

Key = tuple[str, str]  # scope and task id
WebhookKey = tuple[str, str, str, int]  # scope, task id, its own id, and when it was created

_APPENDS: Final = 500  # in one group
_BYTES: Final = 16 * 1024 * 1024


class Group:
    """What goes out together."""

    __slots__ = ("appends", "cursors", "done", "heard", "let_go", "mark", "noted", "released", "replied")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.appends: dict[Key, Append] = {}
        # By message: the task id, when, and whom to tell, the first of whom was the first to ask.
        self.heard: dict[bytes, tuple[str, int, list[asyncio.Future[Outcome | None]]]] = {}
        self.replied: dict[bytes, tuple[bytes, asyncio.Future[None]]] = {}
        self.released: dict[Key, None] = {}
        self.cursors: dict[WebhookKey, Reach] = {}  # how far webhooks have come
        self.noted: asyncio.Future[None] | None = None  # of who waits for that
        self.let_go: dict[WebhookKey, None] = {}  # webhooks
        self.mark = os.urandom(8)
        self.done: asyncio.Future[None] = loop.create_future()

    def part(self) -> Group:
        """An empty one, for a part of this."""
        return Group(self.done.get_loop())

    def webhooks_of(self, group: Group) -> None:
        """Take over what another one has to say of webhooks."""
        self.cursors, self.noted, self.let_go = group.cursors, group.noted, group.let_go

    def fail(self, error: StoreError) -> None:
        """Tell everybody who waits that it was not written."""
        _fail(self.done, error)
        self.fail_others(error)

    def fail_others(self, error: StoreError) -> None:
        """Tell who waits for something else than an append that it was not written."""
        if self.noted is not None:
            _fail(self.noted, error)
        for _, _, askers in self.heard.values():
            for asker in askers:
                _fail(asker, error)
        for _, told in self.replied.values():
            _fail(told, error)


class GroupWriter(ABC):
    """The writing side of a store on a server."""

    def __init__(self, patience: Patience, replica: str) -> None:
        self.replica = replica
        self._patience = patience
        self._next: Group | None = None
        self._under_way: Group | None = None
        self._writing: asyncio.Task[None] | None = None

    @abstractmethod
    async def _send(self, group: Group, attempt: int) -> tuple[set[Key], dict[bytes, Outcome | None]]:
        """Write a group, once. Returns which appends are done, and what is known of each message heard.

        With `attempt` it was tried before, and may have been done.
        """

    @abstractmethod
    def _is_of_one(self, error: BaseException | None) -> bool:
        """Whether an error may be of one append alone: its values, or its size."""

    def _refused(self, append: Append) -> StoreError:
        """Why the server has not done an append."""
        return VersionConflict(f"task {append.task_id} is not at {append.after}, or another replica has taken it over")

    @abstractmethod
    async def _let_go(self) -> None:
        """Close what it writes on."""

    # --- what to write ------------------------------------------------------------------------------------------------

    def _group(self) -> Group:
        group = self._next
        if group is None:
            group = self._next = Group(asyncio.get_running_loop())
        if self._writing is None:
            self._writing = asyncio.ensure_future(self._write_all())
        return group

    def append(self, append: Append) -> asyncio.Future[Any]:
        """See Store.append."""
        group = self._group()
        key = append.scope, append.task_id
        if key in group.released:
            refused: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            _fail(refused, VersionConflict(f"task {append.task_id} was let go of by this replica"))
            return refused
        group.appends[key] = append
        return group.done

    def hear(self, key: bytes, task_id: str, at: int) -> asyncio.Future[Outcome | None]:
        """See Store.hear."""
        group = self._group()
        told: asyncio.Future[Outcome | None] = asyncio.get_running_loop().create_future()
        _, _, askers = group.heard.setdefault(key, (task_id, at, []))
        askers.append(told)
        return told

    def replied(self, key: bytes, reply: bytes) -> asyncio.Future[Any]:
        """See Store.replied."""
        group = self._group()
        told: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        group.replied[key] = reply, told
        return told

    def release(self, scope: str, task_id: str) -> None:
        """See SharedStore.release. An append of the same group goes before it."""
        self._group().released[scope, task_id] = None

    def delivered(self, webhook: Webhook, after: int) -> asyncio.Future[Any]:
        """See Store.delivered."""
        return self._come(webhook, (after, None))

    def failing(self, webhook: Webhook, after: int, at: int) -> asyncio.Future[Any]:
        """See Store.failing."""
        return self._come(webhook, (after, at))

    def _come(self, webhook: Webhook, told: Reach) -> asyncio.Future[Any]:
        group = self._group()
        key = _key(webhook)
        group.cursors[key] = further(group.cursors.get(key), told)
        if group.noted is None:
            group.noted = asyncio.get_running_loop().create_future()
        return group.noted

    def release_webhook(self, webhook: Webhook) -> None:
        """See SharedStore.release_webhook."""
        self._group().let_go[_key(webhook)] = None

    async def webhooks_written(self) -> None:
        """Wait for what is to be written of webhooks, that what is read then has it."""
        for group in (self._under_way, self._next):
            if group is not None and (group.cursors or group.let_go):
                await asyncio.wait([group.done])

    async def written(self, scope: str, task_id: str) -> None:
        """Wait for what is to be written of this task, that what is read then has it."""
        key = scope, task_id
        for group in (self._under_way, self._next):
            if group is not None and (key in group.appends or key in group.released):
                await asyncio.wait([group.done])

    async def all_written(self) -> None:
        """Wait for all that is to be written now."""
        for group in (self._under_way, self._next):
            if group is not None:
                await asyncio.wait([group.done])

    async def all_released(self) -> None:
        """Wait for what is to be released, that another replica that hears of it now can claim it."""
        for group in (self._under_way, self._next):
            if group is not None and (group.released or group.let_go):
                await asyncio.wait([group.done])

    async def close(self) -> None:
        """Write what is there and let go of the connection."""
        while self._writing is not None:
            await asyncio.wait([self._writing])
        await self._let_go()

    # --- writing ------------------------------------------------------------------------------------------------------

    async def _write_all(self) -> None:
        try:
            await asyncio.sleep(0)  # the rest of this turn
            while self._next is not None:
                group, self._next = self._next, None
                self._under_way = group
                failures: dict[Key, StoreError] = {}
                for part in _parts(group):
                    await self._write(part, failures)
                if failures:
                    _fail(group.done, BatchFailed(failures))
                elif not group.done.done():
                    group.done.set_result(None)
                self._under_way = None
        finally:
            if self._under_way is not None:  # no one may wait for ever for what a bug, or the end of the loop, has cut
                self._under_way.fail(StoreError("the store was stopped in the middle of a write"))
            self._under_way = None
            self._writing = None
            if self._next is not None:  # whatever has ended this must not leave the next ones waiting
                self._writing = asyncio.ensure_future(self._write_all())

    async def _write(self, group: Group, failures: dict[Key, StoreError]) -> None:
        """Write a group, tell who has sent messages what came of it, and note the appends that failed."""
        try:
            done, heard = await self._patience.retried(lambda attempt: self._send(group, attempt))
        except StoreError as error:
            one_of = len(group.appends) + len(group.heard) + bool(group.cursors or group.let_go)
            if one_of > 1 and self._is_of_one(error.__cause__):
                for single in _singles(group):  # one of them cannot be written: let the others be
                    await self._write(single, failures)
                return
            failures.update(dict.fromkeys(group.appends, error))
            group.fail_others(error)
        else:
            for key, append in group.appends.items():
                if key not in done:
                    failures[key] = self._refused(append)
            for message, (task_id, _, askers) in group.heard.items():
                outcome = heard.get(message)
                for asker in askers:
                    if not asker.done():
                        asker.set_result(outcome)
                    outcome = outcome or Outcome(task_id, None, self.replica)  # new to the first one alone
            for _, told in group.replied.values():
                if not told.done():
                    told.set_result(None)
            if group.noted is not None and not group.noted.done():
                group.noted.set_result(None)


def _key(webhook: Webhook) -> WebhookKey:
    return webhook.scope, webhook.task_id, webhook.id, webhook.created


def _bytes(append: Append) -> int:
    return len(append.snapshot or b"") + sum([len(event.json) for event in append.events])


def _parts(group: Group) -> list[Group]:
    """A group, or what is too much for one message to the server in several."""
    if len(group.appends) <= _APPENDS and sum(map(_bytes, group.appends.values())) <= _BYTES:
        return [group]
    parts = [group.part()]
    parts[0].heard, parts[0].replied = group.heard, group.replied
    parts[0].webhooks_of(group)
    room = _BYTES
    for key, append in group.appends.items():
        size = _bytes(append)
        if parts[-1].appends and (size > room or len(parts[-1].appends) >= _APPENDS):
            parts.append(group.part())
            room = _BYTES
        parts[-1].appends[key] = append
        room -= size
        if key in group.released:
            parts[-1].released[key] = None
    parts[-1].released.update(group.released)  # none comes before an append of its task
    return parts


def _singles(group: Group) -> Iterator[Group]:
    """A group as one for each append and each message heard, and one of the rest."""
    for key, append in group.appends.items():
        single = group.part()
        single.appends[key] = append
        yield single
    for message, one in group.heard.items():
        single = group.part()
        single.heard[message] = one
        yield single
    rest = group.part()
    rest.replied, rest.released = group.replied, group.released
    rest.webhooks_of(group)
    yield rest


def _fail(future: asyncio.Future[Any], error: StoreError) -> None:
    if not future.done():
        future.set_exception(error)
        future.exception()  # who waits for it hears of it all the same
