"""What a PostgreSQL store writes: a group is one statement, one round trip and one commit."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg.types.numeric import Int8

from tieline.stores.base import Append, Outcome
from tieline.stores.bytekeys import digest, packed, unpacked
from tieline.stores.group import Group, GroupWriter, Key
from tieline.stores.postgres_link import Connection, Link, fetch, limited, quietly_closed
from tieline.stores.postgres_schema import Statements
from tieline.stores.reach import NOWHERE

__all__ = ["PostgresWriter"]

# The plan is made once for each connection, often while the tables are small: it has to hold when they have grown.
_BY_INDEX = """
SELECT set_config('enable_seqscan', 'off', false), set_config('enable_hashjoin', 'off', false),
       set_config('enable_mergejoin', 'off', false), set_config('plan_cache_mode', 'force_generic_plan', false)
"""


class PostgresWriter(GroupWriter):
    """Writes on a connection of its own."""

    def __init__(self, link: Link, statements: Statements, replica: str) -> None:
        super().__init__(link.patience, replica)
        self._link = link
        self._sql = statements
        self._connection: Connection | None = None

    async def _let_go(self) -> None:
        if self._connection is not None:
            await quietly_closed(self._connection)
            self._connection = None

    def _is_of_one(self, error: BaseException | None) -> bool:
        return isinstance(error, (psycopg.DataError, OverflowError)) or (
            isinstance(error, psycopg.Error) and (error.sqlstate or "").startswith("54")
        )

    async def _send(self, group: Group, attempt: int) -> tuple[set[Key], dict[bytes, Outcome | None]]:
        connection = self._connection
        new = connection is None or connection.closed
        if connection is None or new:
            connection = self._connection = await self._link.connect()
        try:
            async with limited(connection, self._link.limit_s):
                if new:
                    await fetch(connection, _BY_INDEX, ())
                return await self._write_once(connection, group, attempt)
        except BaseException:
            self._connection = None
            await quietly_closed(connection)
            raise

    async def _write_once(
        self, connection: Connection, group: Group, attempt: int
    ) -> tuple[set[Key], dict[bytes, Outcome | None]]:
        written: tuple[set[Key], dict[bytes, Outcome | None]] = (set(), {})
        if group.appends or group.heard or group.replied or group.released:
            written = await self._write_tasks(connection, group, attempt)
        if group.cursors or group.let_go:  # behind the ends of tasks: then nothing of them is left to be delivered
            await self._note(connection, group)
        return written

    async def _note(self, connection: Connection, group: Group) -> None:
        """Write how far webhooks have come, and which of them are let go of."""
        keys = sorted({*group.cursors, *group.let_go})
        come = [group.cursors.get(key, NOWHERE) for key in keys]
        await fetch(
            connection,
            self._sql.note,
            (
                self.replica,
                [digest(packed(scope), packed(task_id), packed(id_)) for scope, task_id, id_, _ in keys],
                [Int8(created) for _, _, _, created in keys],
                [Int8(after) for after, _ in come],
                [None if failing is None else Int8(failing) for _, failing in come],
                [key in group.let_go for key in keys],
            ),
        )

    async def _write_tasks(
        self, connection: Connection, group: Group, attempt: int
    ) -> tuple[set[Key], dict[bytes, Outcome | None]]:
        mark, me = group.mark, self.replica
        # In one order wherever it comes from: two replicas that hear the same messages must not wait for each other.
        messages = sorted(group.heard)
        replies = {key: reply for key, (reply, _) in group.replied.items()}
        keys = {digest(packed(scope), packed(task_id)): (scope, task_id) for scope, task_id in group.appends}
        ((done_keys, heard_keys),) = await fetch(
            connection,
            self._sql.write,
            (
                *_columns(list(keys), list(group.appends.values())),
                [digest(packed(scope), packed(task_id)) for scope, task_id in group.released],
                *(me, mark, mark, me, me),
                messages,
                [packed(group.heard[key][0]) for key in messages],
                [Int8(group.heard[key][1]) for key in messages],
                [replies.get(key) for key in messages],  # heard and answered in one turn
                list(replies),
                list(replies.values()),
                me,
            ),
        )
        done = {keys[key] for key in done_keys}
        if attempt and len(done) < len(keys):
            missing = [key for key, task in keys.items() if task not in done]
            done.update(keys[row[0]] for row in await fetch(connection, self._sql.marked, (missing, mark)))
        heard: dict[bytes, Outcome | None] = dict.fromkeys(heard_keys)
        if len(heard) < len(messages):
            missing = [key for key in messages if key not in heard]
            for key, task, reply, replica in await fetch(connection, self._sql.outcomes, (missing,)):
                outcome = Outcome(unpacked(task), reply, replica)
                ours = attempt and replica == me and outcome.task_id == group.heard[key][0]
                heard[key] = None if ours else outcome
        return done, heard


def _columns(keys: list[bytes], appends: list[Append]) -> tuple[list[Any], ...]:
    """Appends as the arrays that the statement takes."""
    scopes = [packed(append.scope) for append in appends]
    contexts = [packed(append.context_id) for append in appends]
    return (
        keys,
        [digest(scope) for scope in scopes],
        [digest(scope, context) for scope, context in zip(scopes, contexts, strict=True)],
        scopes,
        [packed(append.task_id) for append in appends],
        contexts,
        [append.state.value for append in appends],
        [Int8(append.updated) for append in appends],
        [Int8(append.after) for append in appends],
        [Int8(append.after + len(append.events)) for append in appends],
        [append.snapshot for append in appends],
        [b"\n".join([event.json for event in append.events]) for append in appends],
    )
