"""Tasks in one SQLite file (WAL).

All appends that are made in one turn of the event loop go into one transaction, committed at the end of the turn;
their callers are answered behind the commit. A commit hands its pages to the operating system (synchronous=NORMAL): it
survives `kill -9` of this process; a power cut may take the last moments but never leaves a torn file. Moving the WAL
into the file, which waits for the disk, happens in a thread beside the loop.

One process owns the file, by a lock beside it: the event numbers of a task have one writer.
"""

from __future__ import annotations

import asyncio
import builtins
import contextlib
import logging
import os
import sqlite3
from array import array
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import IO, Any, ClassVar

from tieline.event import Event
from tieline.stores.base import (
    Append,
    BatchFailed,
    Keep,
    Outcome,
    Page,
    Pruned,
    Query,
    Record,
    Retention,
    Stats,
    StoredTask,
    StoreError,
    VersionConflict,
)
from tieline.stores.pruning import Tally
from tieline.stores.sqlite_file import SCHEMA_VERSION, connect, file_schema, make_folder, move_wal, own, wal_bytes
from tieline.stores.sqlite_webhooks import DROP_OF_TASK, SQLiteWebhooks
from tieline.types import TaskState

__all__ = ["SQLiteStore"]

DEFAULT_RETENTION = Retention(ttl_s=30 * 24 * 3600, max_bytes=4 * 1024**3)

_COLUMNS = "scope, id, context, state, updated, version, snapshot, snapshot_version"
_ENDS = tuple(state for state in TaskState if state.terminal)
_ENDED = "(" + ",".join(f"'{state.value}'" for state in _ENDS) + ")"
_TASK_BYTES = "(length(snapshot) + (SELECT coalesce(sum(length(body)), 0) FROM log WHERE task=number))"
_OUTCOME_BYTES = 100  # what an outcome takes beside the reply
_CURSOR_BYTES = 200  # what it takes to note how far a webhook has come
_CHECKPOINT_BYTES = 8 * 1024 * 1024
_WAL_BYTES = 4 * _CHECKPOINT_BYTES
_PRUNE_TASKS = 200  # at a time, so that a prune never holds the loop for long
_I64 = (1 << 63) - 1

log = logging.getLogger("tieline.stores")


class SQLiteStore(SQLiteWebhooks):
    """Tasks in the file `path`, made with its folders (mode 0700, the file 0600) when it is not there."""

    shared: ClassVar[bool] = False

    def __init__(self, path: str | os.PathLike[str], retention: Retention = DEFAULT_RETENTION) -> None:
        super().__init__()
        self.path = Path(path).expanduser().absolute()
        self.retention = retention
        self._db: sqlite3.Connection | None = None
        self._lock: IO[str] | None = None
        self._file = (0, 0)  # device and inode: what was opened
        self._numbers: dict[tuple[str, str], int] = {}  # row numbers of tasks that are being written
        self._next_number = 1
        self._batch: builtins.list[Append] = []
        self._heard: dict[bytes, Outcome] = {}  # outcomes that are not written yet, or changed
        self._heard_at: dict[bytes, int] = {}  # when they came in, of new ones
        self._answers: builtins.list[asyncio.Future[None]] = []  # wait for what changed in `_heard` and `_cursors`
        self._committed: asyncio.Future[None] | None = None
        self._message_bytes: int | None = None  # of outcomes in the file; None is not counted yet
        self._since_checkpoint = 0
        self._checkpoint: asyncio.Task[None] | None = None

    # --- life ---------------------------------------------------------------------------------------------------------

    async def open(self) -> int:
        if self._db is None:
            try:
                make_folder(self.path.parent)
                self._lock = own(self.path)
                self._db = connect(self.path)
                self._file = self._file_id()
            except (OSError, sqlite3.Error) as error:
                self._release()
                raise StoreError(f"{self.path} cannot be opened as a store: {error}") from error
            except StoreError:
                self._release()
                raise
        try:
            newest, number = self._read("SELECT max(updated), max(number) FROM tasks", ())[0]
        except StoreError:
            self._release()
            raise
        self._next_number = (number or 0) + 1
        return int(newest or 0)

    def _file_id(self) -> tuple[int, int]:
        found = os.stat(self.path)
        return found.st_dev, found.st_ino

    async def migrate(self) -> tuple[int, int]:
        """Make the file, or bring it to this version's schema; returns the version it had (0: none), and has."""
        _make = self._db is None
        before = file_schema(self.path)
        await self.open()
        if _make:
            await self.close()
        return before, SCHEMA_VERSION

    async def close(self) -> None:
        if self._db is None:
            return
        self._commit()
        if self._checkpoint is not None:
            await asyncio.wait([self._checkpoint])
        with contextlib.suppress(sqlite3.Error):  # the WAL then stays beside the file and is read at the next open
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self._release()

    def _release(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _open_db(self) -> sqlite3.Connection:
        if self._db is None:
            raise StoreError(f"{self.path} is not open")
        return self._db

    # --- writing ------------------------------------------------------------------------------------------------------

    def append(self, append: Append) -> asyncio.Future[Any] | None:
        self._open_db()
        self._batch.append(append)
        return self._commit_soon()

    def _commit_soon(self) -> asyncio.Future[None]:
        if self._committed is None:
            loop = asyncio.get_running_loop()
            self._committed = loop.create_future()
            loop.call_soon(self._commit)
        return self._committed

    def hear(self, key: bytes, task_id: str, at: int) -> Outcome | asyncio.Future[Outcome | None] | None:
        found = self._heard.get(key)
        if found is not None:
            return found
        rows = self._read("SELECT task, reply FROM messages WHERE key=?", (key,))
        if rows:
            return Outcome(rows[0][0], rows[0][1])
        self._heard[key] = Outcome(task_id)
        self._heard_at[key] = at
        return None

    def replied(self, key: bytes, reply: bytes) -> asyncio.Future[Any] | None:
        found = self._heard.get(key)
        if found is None:
            rows = self._read("SELECT task FROM messages WHERE key=?", (key,))
            if not rows:
                return None
            found = Outcome(rows[0][0])
        self._heard[key] = Outcome(found.task_id, reply)
        return self._answer()

    def _answer(self) -> asyncio.Future[None]:
        self._open_db()
        self._commit_soon()
        told: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._answers.append(told)
        return told

    def _commit(self) -> None:
        """Write what this turn of the loop has appended, and tell its callers."""
        batch, told = self._batch, self._committed
        if told is None:
            return
        self._batch, self._committed = [], None
        try:
            self._write(batch)
        except Exception as error:  # whatever it is, its callers have to hear of it
            if len(batch) <= 1:
                told.set_exception(self._failure(error))
                told.exception()  # there may be nobody who waits, where only messages were answered
            else:
                self._write_singly(batch, told)
        else:
            told.set_result(None)
        if self._answers:
            self._write_answers()
        if self._since_checkpoint > _CHECKPOINT_BYTES and self._checkpoint is None:
            self._since_checkpoint = 0
            self._checkpoint = asyncio.ensure_future(self._run_checkpoint())

    def _write_singly(self, batch: builtins.list[Append], told: asyncio.Future[None]) -> None:
        """One append of a batch cannot be written: write the others, and give each its own outcome."""
        failures: dict[tuple[str, str], StoreError] = {}
        for append in batch:
            try:
                self._write([append])
            except Exception as error:  # as above
                failures[append.scope, append.task_id] = self._failure(error)
        told.set_exception(BatchFailed(failures))

    def _write_answers(self) -> None:
        """No append of this turn could be written: what else there is to write does not depend on them."""
        try:
            self._write([])
        except Exception as error:  # as above
            self._cursors.clear()  # none of them may keep what comes from being written
            answers, self._answers = self._answers, []
            for answer in answers:
                if not answer.done():
                    answer.set_exception(self._failure(error))
                    answer.exception()  # who waits for it hears of it all the same

    def _failure(self, error: Exception) -> StoreError:
        return error if isinstance(error, StoreError) else StoreError(f"{self.path}: {error}")

    def _write(self, batch: builtins.list[Append]) -> None:
        db = self._open_db()
        made: builtins.list[tuple[Any, ...]] = []
        changed: builtins.list[tuple[Any, ...]] = []
        snapshots: builtins.list[tuple[Any, ...]] = []
        logged: builtins.list[tuple[int, int, int, bytes]] = []
        numbers = self._numbers
        size = 0
        for append in batch:
            version = append.after + len(append.events)
            task_id = append.task_id
            key = (append.scope, task_id)
            if append.after == 0:
                number = self._next_number
                self._next_number += 1
                numbers[key] = number
                head = (number, task_id, append.scope, append.context_id, append.state.value, append.updated)
                made.append((*head, version, append.snapshot, version))
            else:
                number = numbers.get(key) or self._number(append)
                row = (append.state.value, append.updated, version)
                if append.snapshot is None:
                    changed.append((*row, number, append.after))
                else:
                    snapshots.append((*row, append.snapshot, version, number, append.after))
            body = b"\n".join([event.json for event in append.events])
            if body:
                logged.append((number, version, append.after + 1, body))
            size += len(body) + len(append.snapshot or b"")
            if append.state.terminal:
                numbers.pop(key, None)
        self._since_checkpoint += size + _CURSOR_BYTES * len(self._cursors)
        self._check_file()
        heard, heard_at = self._heard, self._heard_at
        db.execute("BEGIN IMMEDIATE")
        try:
            if heard:
                self._write_heard(db)
            if self._cursors:
                self._write_cursors(db)
            if made:
                db.executemany("INSERT INTO tasks VALUES(?,?,?,?,?,?,?,?,?)", made)
            count = 0
            if changed:
                cursor = db.executemany(
                    "UPDATE tasks SET state=?,updated=?,version=? WHERE number=? AND version=?", changed
                )
                count += cursor.rowcount
            if snapshots:
                cursor = db.executemany(
                    "UPDATE tasks SET state=?,updated=?,version=?,snapshot=?,snapshot_version=?"
                    " WHERE number=? AND version=?",
                    snapshots,
                )
                count += cursor.rowcount
            if count != len(changed) + len(snapshots):
                raise VersionConflict("a task has been changed by another writer")
            db.executemany("INSERT INTO log VALUES(?,?,?,?)", logged)
            db.execute("COMMIT")
            if heard:
                if self._message_bytes is not None:
                    self._message_bytes += _OUTCOME_BYTES * len(heard_at)
                    self._message_bytes += sum([len(told.reply) for told in heard.values() if told.reply is not None])
                heard.clear()
                heard_at.clear()
            self._cursors.clear()
            if self._answers:
                answers, self._answers = self._answers, []
                for answer in answers:
                    if not answer.done():
                        answer.set_result(None)
        except BaseException as error:
            if db.in_transaction:
                db.execute("ROLLBACK")
            for append in batch:
                numbers.pop((append.scope, append.task_id), None)
            if isinstance(error, sqlite3.IntegrityError):
                raise VersionConflict("a task of that id is there already") from None
            raise

    def _check_file(self) -> None:
        """Raises StoreError when what is written now would be lost."""
        try:
            there = self._file_id() == self._file
        except OSError:
            there = False
        if not there:
            raise StoreError(f"{self.path} has been removed or replaced under the running store.")

    def _write_heard(self, db: sqlite3.Connection) -> None:
        at = self._heard_at
        new = [(key, told.task_id, told.reply, at[key]) for key, told in self._heard.items() if key in at]
        db.executemany("INSERT OR REPLACE INTO messages VALUES(?,?,?,?)", new)
        if len(new) < len(self._heard):
            changed = [(told.reply, key) for key, told in self._heard.items() if key not in at]
            db.executemany("UPDATE messages SET reply=? WHERE key=?", changed)

    def _number(self, append: Append) -> int:
        found = (
            self._open_db()
            .execute("SELECT number FROM tasks WHERE id=? AND scope=?", (append.task_id, append.scope))
            .fetchone()
        )
        if found is None:
            raise VersionConflict(f"task {append.task_id} is not there")
        self._numbers[append.scope, append.task_id] = found[0]
        return int(found[0])

    async def _run_checkpoint(self) -> None:
        try:
            await asyncio.to_thread(move_wal, self.path)
            if self._db is not None and wal_bytes(self.path) > _WAL_BYTES:
                # Writers that never pause keep the WAL from starting over; what is left to move is little now.
                self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        except sqlite3.Error as error:
            log.warning("the write-ahead log of %s cannot be moved into it yet: %s", self.path, error)
        finally:
            self._checkpoint = None

    # --- reading ------------------------------------------------------------------------------------------------------

    async def get(self, scope: str, task_id: str) -> Record | None:
        self._commit()  # what is read here may be told: it has to be durable first
        rows = self._read(f"SELECT {_COLUMNS} FROM tasks WHERE id=? AND scope=?", (task_id, scope))
        return _record(rows[0]) if rows else None

    async def events(
        self, scope: str, task_id: str, after: int, *, limit: int | None = None
    ) -> Sequence[tuple[int, Event]] | None:
        self._commit()
        rows = self._read(
            "SELECT first, body FROM log WHERE task=(SELECT number FROM tasks WHERE id=? AND scope=?) AND last>?"
            " ORDER BY last LIMIT ?",
            (task_id, scope, min(after, _I64), -1 if limit is None else limit),
        )
        found = []
        for first, body in rows:
            for number, line in enumerate(body.split(b"\n"), first):
                if number > after:
                    found.append((number, Event(json=line)))
        return found

    async def list(self, query: Query) -> Page:
        self._commit()
        where, values = ["scope=?"], [query.scope]  # type: list[str], list[Any]
        for column, value in (("context=?", query.context_id), ("state=?", query.state), ("updated>=?", query.since)):
            if value is not None:
                where.append(column)
                values.append(value.value if isinstance(value, TaskState) else value)
        total = self._read(f"SELECT count(*) FROM tasks WHERE {' AND '.join(where)}", values)[0][0]
        if query.before is not None:
            where.append("(updated, id)<(?,?)")
            values += query.before
        rows = self._read(
            f"SELECT {_COLUMNS} FROM tasks WHERE {' AND '.join(where)} ORDER BY updated DESC, id DESC LIMIT ?",
            [*values, query.limit + 1],
        )
        return Page([_record(row) for row in rows[: query.limit]], total, len(rows) > query.limit)

    async def take(self, scope_prefix: str) -> Sequence[Record]:
        self._commit()
        rows = self._read(
            f"SELECT {_COLUMNS} FROM tasks WHERE state IN ('TASK_STATE_SUBMITTED','TASK_STATE_WORKING')"
            " AND substr(scope,1,?)=?",
            (len(scope_prefix), scope_prefix),
        )
        return [_record(row) for row in rows]

    def _read(self, sql: str, values: Sequence[Any]) -> builtins.list[Any]:
        try:
            return self._open_db().execute(sql, values).fetchall()
        except (sqlite3.Error, UnicodeError, OverflowError) as error:
            raise StoreError(f"{self.path}: {error}") from error

    # --- upkeep -------------------------------------------------------------------------------------------------------

    async def prune(self, now: int, told: Callable[[Pruned], object] | None = None) -> Pruned:
        self._commit()
        retention, tally = self.retention, Tally()
        for state in _ENDS:
            keep = retention.states.get(state) or Keep(retention.ttl_s)
            if keep.ttl_s is not None:
                await self._drop(tally, told, [state], before=now - int(keep.ttl_s * 1_000_000))
            if keep.max_bytes is not None and (over := self._state_size(state) - keep.max_bytes) > 0:
                await self._drop(tally, told, [state], enough=over)
        while retention.max_bytes is not None and (over := self._size() - retention.max_bytes) > 0:
            if not await self._drop(tally, told, _ENDS, enough=over):
                break
        logs = retention.logs
        if logs.ttl_s is not None:
            await self._drop_logs(tally, told, before=now - int(logs.ttl_s * 1_000_000))
        if logs.max_bytes is not None and (over := self._ended_log_size() - logs.max_bytes) > 0:
            await self._drop_logs(tally, told, enough=over)
        await self._drop_messages(tally, told, now)
        looked_at = _PRUNE_TASKS
        while looked_at == _PRUNE_TASKS:
            looked_at, gone = self._drop_taskless(now, _PRUNE_TASKS)
            if gone:
                tally.webhooks += gone
                await _pause(tally, told)
        return tally.pruned()

    def _size(self) -> int:
        """Bytes in use in the file; what was freed in it is used again."""
        rows = self._read(
            "SELECT (page_count - freelist_count) * page_size"
            " FROM pragma_page_count, pragma_freelist_count, pragma_page_size",
            (),
        )
        return int(rows[0][0])

    def _state_size(self, state: TaskState) -> int:
        return int(self._read(f"SELECT coalesce(sum({_TASK_BYTES}), 0) FROM tasks WHERE state=?", (state.value,))[0][0])

    def _ended_log_size(self) -> int:
        rows = self._read(
            "SELECT coalesce(sum(length(body)), 0) FROM log JOIN tasks ON number=task WHERE state IN " + _ENDED, ()
        )
        return int(rows[0][0])

    def _oldest(
        self, size: str, condition: str, states: Sequence[TaskState], before: int
    ) -> builtins.list[tuple[int, int, str, int]]:
        """The oldest ended tasks of some states, some at a time: `updated`, number, state and `size` of each."""
        rows: builtins.list[tuple[int, int, str, int]] = []
        for state in states:  # each by itself, as the index has them
            rows += self._read(
                f"SELECT updated, number, state, {size} FROM tasks WHERE state IN {_ENDED} AND state=? AND updated<?"
                f" AND {condition} ORDER BY updated LIMIT {_PRUNE_TASKS}",
                (state.value, before),
            )
        return sorted(rows)[:_PRUNE_TASKS]

    async def _drop(
        self,
        tally: Tally,
        told: Callable[[Pruned], object] | None,
        states: Sequence[TaskState],
        *,
        before: int = _I64,
        enough: int | None = None,
    ) -> int:
        """Drop ended tasks, the oldest first: those that changed before `before`, or as many as hold `enough` bytes."""
        dropped = 0
        while enough is None or enough > 0:
            rows = self._oldest(_TASK_BYTES, "TRUE", states, before)
            numbers: builtins.list[tuple[int]] = []
            for _, number, state, size in rows:
                if enough is not None:
                    if enough <= 0:
                        break
                    enough -= size
                numbers.append((number,))
                tally.task(TaskState(state), size)
            if not numbers:
                break
            self._change(
                (DROP_OF_TASK, numbers if self._has_webhooks() else []),
                ("DELETE FROM log WHERE task=?", numbers),
                ("DELETE FROM tasks WHERE number=?", numbers),
            )
            dropped += len(numbers)
            await _pause(tally, told)
        return dropped

    async def _drop_logs(
        self,
        tally: Tally,
        told: Callable[[Pruned], object] | None,
        *,
        before: int = _I64,
        enough: int | None = None,
    ) -> None:
        """Drop logs of ended tasks, the oldest first, as `_drop` does."""
        while enough is None or enough > 0:
            rows = self._oldest(
                "(SELECT sum(length(body)) FROM log WHERE task=number)",
                "EXISTS (SELECT 1 FROM log WHERE task=number)",
                _ENDS,
                before,
            )
            numbers: builtins.list[tuple[int]] = []
            for _, number, _, size in rows:
                if enough is not None:
                    if enough <= 0:
                        break
                    enough -= size
                numbers.append((number,))
                tally.logs += 1
                tally.bytes += size
            if not numbers:
                return
            self._change(("DELETE FROM log WHERE task=?", numbers))
            await _pause(tally, told)

    async def _drop_messages(self, tally: Tally, told: Callable[[Pruned], object] | None, now: int) -> None:
        keep = self.retention.messages
        size = f"({_OUTCOME_BYTES} + coalesce(length(reply), 0))"
        before = -1 if keep.ttl_s is None else now - int(keep.ttl_s * 1_000_000)
        over = 0
        if keep.max_bytes is not None:
            if self._message_bytes is None:  # counted once, and kept from then on
                self._message_bytes = int(self._read(f"SELECT coalesce(sum({size}), 0) FROM messages", ())[0][0])
            over = self._message_bytes - keep.max_bytes
        while True:
            rows = self._read(f"SELECT key, at, {size} FROM messages ORDER BY at LIMIT {_PRUNE_TASKS}", ())
            keys: builtins.list[tuple[bytes]] = []
            dropped = 0
            for key, at, bytes_ in rows:
                if at >= before and over <= 0:
                    break
                over -= bytes_
                dropped += bytes_
                keys.append((key,))
                tally.messages += 1
                tally.bytes += bytes_
            if not keys:
                return
            self._change(("DELETE FROM messages WHERE key=?", keys))
            if self._message_bytes is not None:
                self._message_bytes -= dropped
            await _pause(tally, told)

    def _change(self, *statements: tuple[str, Sequence[tuple[Any, ...]]]) -> int:
        db = self._open_db()
        self._check_file()
        changed = 0
        try:
            db.execute("BEGIN IMMEDIATE")
            for sql, rows in statements:
                changed += max(0, db.executemany(sql, rows).rowcount)
            db.execute("COMMIT")
        except (sqlite3.Error, UnicodeError, OverflowError) as error:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise StoreError(f"{self.path}: {error}") from error
        return changed

    async def stats(self) -> Stats:
        self._commit()
        counts = self._read("SELECT state, count(*) FROM tasks GROUP BY state", ())
        states = {TaskState(state): count for state, count in counts}
        events = self._read("SELECT coalesce(sum(last - first + 1), 0) FROM log", ())[0][0]
        messages = self._read("SELECT count(*) FROM messages", ())[0][0] + len(self._heard_at)
        oldest = self._read("SELECT min(updated) FROM tasks", ())[0][0]
        webhooks, dead = self._count_webhooks()
        return Stats(states, events, messages, self._size(), oldest, webhooks=webhooks, dead_webhooks=dead)

    async def tasks(self) -> AsyncIterator[StoredTask]:
        self._commit()
        numbers = array("q", (row[0] for row in self._read("SELECT number FROM tasks ORDER BY updated, id", ())))
        for number in numbers:
            self._commit()
            rows = self._read(f"SELECT {_COLUMNS} FROM tasks WHERE number=?", (number,))
            if rows:
                record = _record(rows[0])
                events = await self.events(record.scope, record.task_id, 0) or []
                yield StoredTask(record, [pair for pair in events if pair[0] <= record.version])

    async def put(self, tasks: Sequence[StoredTask]) -> int:
        self._commit()
        db = self._open_db()
        new = 0
        try:
            db.execute("BEGIN IMMEDIATE")
            for task in tasks:
                record = task.record
                row = (self._next_number, record.task_id, record.scope, record.context_id, record.state.value)
                cursor = db.execute(
                    "INSERT OR IGNORE INTO tasks VALUES(?,?,?,?,?,?,?,?,?)",
                    (*row, record.updated, record.version, record.snapshot, record.snapshot_version),
                )
                if not cursor.rowcount:
                    continue
                for first, body in _bodies(task.events):
                    db.execute("INSERT INTO log VALUES(?,?,?,?)", (row[0], first + body.count(b"\n"), first, body))
                self._next_number += 1
                new += 1
            db.execute("COMMIT")
        except (sqlite3.Error, UnicodeError, OverflowError) as error:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise StoreError(f"{self.path}: {error}") from error
        return new


async def _pause(tally: Tally, told: Callable[[Pruned], object] | None) -> None:
    """Say how far it is, and let others go between."""
    if told is not None:
        told(tally.pruned())
    await asyncio.sleep(0)


def _bodies(events: Sequence[tuple[int, Event]]) -> list[tuple[int, bytes]]:
    """Events as rows of the log: the number of the first, and their JSON."""
    if not events:
        return []
    return [(events[0][0], b"\n".join([event.json for _, event in events]))]


def _record(row: tuple[Any, ...]) -> Record:
    scope, task_id, context, state, updated, version, snapshot, snapshot_version = row
    return Record(scope, task_id, context, TaskState(state), updated, version, snapshot, snapshot_version)
