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
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from tieline.event import Event
from tieline.stores.base import Append, Page, Pruned, Query, Record, Retention, StoreError, StoreInUse, VersionConflict
from tieline.types import TaskState

__all__ = ["SQLiteStore"]

DEFAULT_RETENTION = Retention(ttl_s=30 * 24 * 3600, max_bytes=4 * 1024**3)

_SCHEMA_VERSION = 1
_SCHEMA = """
CREATE TABLE IF NOT EXISTS tasks(
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL,
    scope TEXT NOT NULL,
    context TEXT NOT NULL,
    state TEXT NOT NULL,
    updated INTEGER NOT NULL,
    version INTEGER NOT NULL,
    snapshot BLOB NOT NULL,
    snapshot_version INTEGER NOT NULL
);
CREATE UNIQUE INDEX IF NOT EXISTS tasks_id ON tasks(id, scope);
CREATE INDEX IF NOT EXISTS tasks_updated ON tasks(scope, updated);
CREATE INDEX IF NOT EXISTS tasks_unfinished ON tasks(number)
    WHERE state IN ('TASK_STATE_SUBMITTED','TASK_STATE_WORKING');
CREATE TABLE IF NOT EXISTS log(
    task INTEGER NOT NULL,
    last INTEGER NOT NULL,
    first INTEGER NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY(task, last)
) WITHOUT ROWID;
"""
_COLUMNS = "scope, id, context, state, updated, version, snapshot, snapshot_version"
_ENDED = "('TASK_STATE_COMPLETED','TASK_STATE_FAILED','TASK_STATE_CANCELED','TASK_STATE_REJECTED')"
_CHECKPOINT_BYTES = 8 * 1024 * 1024
_WAL_BYTES = 4 * _CHECKPOINT_BYTES
_PRUNE_TASKS = 200  # at a time, so that a prune never holds the loop for long
_I64 = (1 << 63) - 1

log = logging.getLogger("tieline.stores")


class SQLiteStore:
    """Tasks in the file `path`, made with its folders (mode 0700, the file 0600) when it is not there."""

    def __init__(self, path: str | os.PathLike[str], retention: Retention = DEFAULT_RETENTION) -> None:
        self.path = Path(path).expanduser().absolute()
        self.retention = retention
        self._db: sqlite3.Connection | None = None
        self._lock: IO[str] | None = None
        self._file = (0, 0)  # device and inode: what was opened
        self._numbers: dict[tuple[str, str], int] = {}  # row numbers of tasks that are being written
        self._next_number = 1
        self._batch: builtins.list[Append] = []
        self._committed: asyncio.Future[None] | None = None
        self._since_checkpoint = 0
        self._checkpoint: asyncio.Task[None] | None = None

    # --- life ---------------------------------------------------------------------------------------------------------

    async def open(self) -> int:
        if self._db is None:
            try:
                _make_folder(self.path.parent)
                self._lock = _own(self.path)
                self._db = self._connect()
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

    def _connect(self) -> sqlite3.Connection:
        if not self.path.exists():
            os.close(os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600))
        db = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
        try:
            self._prepare(db)
        except BaseException:
            db.close()
            raise
        return db

    def _prepare(self, db: sqlite3.Connection) -> None:
        found = db.execute("PRAGMA user_version").fetchone()[0]
        if found not in (0, _SCHEMA_VERSION):
            raise StoreError(f"{self.path} has schema {found}; this version of tieline reads {_SCHEMA_VERSION}.")
        if found == 0 and db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            raise StoreError(f"{self.path} is the database of another program. Give the store a file of its own.")
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA synchronous=NORMAL")
        db.execute("PRAGMA wal_autocheckpoint=0")
        db.executescript(_SCHEMA)
        db.execute(f"PRAGMA user_version={_SCHEMA_VERSION}")

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
        if self._committed is None:
            loop = asyncio.get_running_loop()
            self._committed = loop.create_future()
            loop.call_soon(self._commit)
        return self._committed

    def _commit(self) -> None:
        """Write what this turn of the loop has appended, and tell its callers."""
        batch, told = self._batch, self._committed
        if not batch or told is None:
            return
        self._batch, self._committed = [], None
        try:
            self._write(batch)
        except Exception as error:  # whatever it is, its callers have to hear of it
            if len(batch) == 1:
                told.set_exception(self._failure(error))
            else:
                self._write_singly(batch, told)
        else:
            told.set_result(None)
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
        self._since_checkpoint += size
        try:
            there = self._file_id() == self._file
        except OSError:
            there = False
        if not there:
            raise StoreError(f"{self.path} has been removed or replaced under the running store.")
        db.execute("BEGIN IMMEDIATE")
        try:
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
        except BaseException as error:
            if db.in_transaction:
                db.execute("ROLLBACK")
            for append in batch:
                numbers.pop((append.scope, append.task_id), None)
            if isinstance(error, sqlite3.IntegrityError):
                raise VersionConflict("a task of that id is there already") from None
            raise

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
            await asyncio.to_thread(_checkpoint, self.path)
            if self._db is not None and _wal_bytes(self.path) > _WAL_BYTES:
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

    async def events(self, scope: str, task_id: str, after: int) -> Sequence[tuple[int, Event]] | None:
        self._commit()
        rows = self._read(
            "SELECT first, body FROM log WHERE task=(SELECT number FROM tasks WHERE id=? AND scope=?) AND last>?"
            " ORDER BY last",
            (task_id, scope, min(after, _I64)),
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
            where.append("updated<?")
            values.append(query.before)
        rows = self._read(
            f"SELECT {_COLUMNS} FROM tasks WHERE {' AND '.join(where)} ORDER BY updated DESC LIMIT ?",
            [*values, query.limit + 1],
        )
        return Page([_record(row) for row in rows[: query.limit]], total, len(rows) > query.limit)

    async def unfinished(self, scope_prefix: str) -> Sequence[Record]:
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

    # --- retention ----------------------------------------------------------------------------------------------------

    async def prune(self, now: int) -> Pruned:
        self._commit()
        tasks = size = 0
        ttl, limit = self.retention.ttl_s, self.retention.max_bytes
        while ttl is not None:
            dropped, freed = self._drop_oldest(None, now - int(ttl * 1_000_000))
            tasks, size = tasks + dropped, size + freed
            if dropped < _PRUNE_TASKS:
                break
            await asyncio.sleep(0)  # others may go between
        while limit is not None and (over := self._size() - limit) > 0:
            dropped, freed = self._drop_oldest(over, None)
            tasks, size = tasks + dropped, size + freed
            if not dropped:
                break
            await asyncio.sleep(0)
        return Pruned(tasks, size)

    def _size(self) -> int:
        """Bytes in use in the file; what was freed in it is used again."""
        rows = self._read(
            "SELECT (page_count - freelist_count) * page_size"
            " FROM pragma_page_count, pragma_freelist_count, pragma_page_size",
            (),
        )
        return int(rows[0][0])

    def _drop_oldest(self, enough: int | None, before: int | None) -> tuple[int, int]:
        """Drop the oldest ended tasks, some at a time: as many as hold `enough` bytes, or those from `before`."""
        rows = self._read(
            "SELECT number, length(snapshot) + (SELECT coalesce(sum(length(body)), 0) FROM log WHERE task=number)"
            f" FROM tasks WHERE state IN {_ENDED} AND updated<? ORDER BY updated LIMIT {_PRUNE_TASKS}",
            (_I64 if before is None else before,),
        )
        numbers: builtins.list[tuple[int]] = []
        freed = 0
        for number, size in rows:
            if enough is not None and freed >= enough:
                break
            numbers.append((number,))
            freed += size
        if not numbers:
            return 0, 0
        db = self._open_db()
        try:
            db.execute("BEGIN IMMEDIATE")
            db.executemany("DELETE FROM log WHERE task=?", numbers)
            db.executemany("DELETE FROM tasks WHERE number=?", numbers)
            db.execute("COMMIT")
        except sqlite3.Error as error:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise StoreError(f"{self.path}: {error}") from error
        return len(numbers), freed


class BatchFailed(StoreError):
    """Some appends of one transaction could not be written; `failures` holds their errors by scope and task id."""

    def __init__(self, failures: dict[tuple[str, str], StoreError]) -> None:
        super().__init__("; ".join(str(error) for error in failures.values()))
        self.failures = failures


def _record(row: tuple[Any, ...]) -> Record:
    scope, task_id, context, state, updated, version, snapshot, snapshot_version = row
    return Record(scope, task_id, context, TaskState(state), updated, version, snapshot, snapshot_version)


def _checkpoint(path: Path) -> None:
    """Move what the WAL holds into the file, on a connection of its own."""
    db = sqlite3.connect(f"{path.as_uri()}?mode=rw", uri=True, isolation_level=None)
    try:
        db.execute("PRAGMA wal_checkpoint(PASSIVE)")
    finally:
        db.close()


def _wal_bytes(path: Path) -> int:
    try:
        return os.stat(f"{path}-wal").st_size
    except OSError:
        return 0


def _make_folder(folder: Path) -> None:
    """Make a folder and those above it that are not there, for their owner alone."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    for path in reversed(missing):
        path.mkdir(mode=0o700, exist_ok=True)


def _own(path: Path) -> IO[str]:
    """Lock `path` for this process.

    Raises:
        StoreInUse: another process holds it.
    """
    lock_path = path.with_name(path.name + ".lock")
    lock = open(lock_path, "a+", opener=lambda name, flags: os.open(name, flags, 0o600))  # noqa: SIM115 - held until close
    try:
        _lock_file(lock)
    except OSError:
        lock.seek(0)
        owner = lock.read().strip() or "another process"
        lock.close()
        raise StoreInUse(
            f"{path} is in use by {owner}. Stop it, or give this one its own file: --store sqlite:PATH"
        ) from None
    lock.truncate(0)
    lock.write(f"process {os.getpid()}")
    lock.flush()
    return lock


if os.name == "nt":  # pragma: no cover
    import msvcrt

    def _lock_file(lock: IO[str]) -> None:
        msvcrt.locking(lock.fileno(), msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
else:
    import fcntl

    def _lock_file(lock: IO[str]) -> None:
        fcntl.flock(lock.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
