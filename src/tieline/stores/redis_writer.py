"""What a Redis store writes: a group is one round trip."""

from __future__ import annotations

import asyncio
from typing import Any

from tieline.stores.base import Append, Outcome, StoreError
from tieline.stores.bytekeys import digest, packed, unpacked
from tieline.stores.group import Group, GroupWriter, Key, WebhookKey
from tieline.stores.reach import NOWHERE
from tieline.stores.redis_link import Link

__all__ = ["RedisWriter"]


class RedisWriter(GroupWriter):
    """Writes by scripts; each append in one is done whole or not at all."""

    def __init__(self, link: Link, replica: str) -> None:
        super().__init__(link.patience, replica)
        self._link = link
        self.message_ttl_s: int | None = None
        self._gone: set[Key] = set()  # of the last group: tasks from before Redis was emptied

    async def _let_go(self) -> None:
        """The connections are the link's."""

    def _is_of_one(self, error: BaseException | None) -> bool:
        return False

    def _refused(self, append: Append) -> StoreError:
        if (append.scope, append.task_id) in self._gone:
            return StoreError(f"{self._link.emptied}; so is task {append.task_id}")
        return super()._refused(append)

    async def _send(self, group: Group, attempt: int) -> tuple[set[Key], dict[bytes, Outcome | None]]:
        scripts: list[tuple[str, list[Any]]] = []
        messages = list(group.heard)
        if messages:
            ttl_s = b"" if self.message_ttl_s is None else self.message_ttl_s
            noted = [word for key in messages for word in (key, packed(group.heard[key][0]), group.heard[key][1])]
            scripts.append(("hear", [self._link.epoch, self.replica, ttl_s, len(messages), *noted]))
        if group.appends:
            words = [word for append in group.appends.values() for word in _words(append)]
            scripts.append(("append", [self._link.epoch, self.replica, group.mark, len(group.appends), *words]))
        if group.replied:
            said = [word for key, (reply, _) in group.replied.items() for word in (key, reply)]
            scripts.append(("replied", [self._link.epoch, *said]))
        if group.released:
            tasks = [digest(packed(scope), packed(task_id)) for scope, task_id in group.released]
            scripts.append(("release", [self.replica, *tasks]))
        if group.cursors or group.let_go:  # behind the ends of tasks: then nothing of them is left to be delivered
            words = [word for key in {**group.cursors, **group.let_go} for word in _note(group, key)]
            scripts.append(("note", [self.replica, *words]))
        if not scripts:
            return set(), {}
        async with asyncio.timeout(self._link.limit_s):
            answers = dict(zip((name for name, _ in scripts), await self._link.run_all(scripts), strict=True))
        fits = dict(zip(group.appends, answers.get("append", ()), strict=True))
        self._gone = {key for key, fit in fits.items() if fit < 0 and self._link.renewed}
        done = {key for key, fit in fits.items() if fit > 0}
        heard: dict[bytes, Outcome | None] = {}
        for key, found in zip(messages, answers.get("hear", ()), strict=True):
            if not found:
                heard[key] = None
                continue
            outcome = Outcome(unpacked(found[0]), found[1], found[2].decode())
            ours = attempt and outcome.replica == self.replica and outcome.task_id == group.heard[key][0]
            heard[key] = None if ours else outcome
        return done, heard


def _note(group: Group, key: WebhookKey) -> tuple[Any, ...]:
    """How far a webhook has come, and whether it is let go of, as the script takes it."""
    scope, task_id, id_, created = key
    after, failing = group.cursors.get(key, NOWHERE)
    return (
        *(digest(packed(scope), packed(task_id), packed(id_)), created, after, "" if failing is None else failing),
        1 if key in group.let_go else 0,
    )


def _words(append: Append) -> tuple[Any, ...]:
    """An append as the script takes it."""
    scope, context = packed(append.scope), packed(append.context_id)
    task_id = packed(append.task_id)
    return (
        *(digest(scope, task_id), digest(scope), digest(scope, context), scope, task_id, context),
        *(append.state.value, append.updated, append.after, append.after + len(append.events)),
        *(0 if append.snapshot is None else 1, append.snapshot or b""),
        b"\n".join([event.json for event in append.events]),
    )
