"""The file of a SQLite store: made, brought to its schema, owned by one process, and its write-ahead log."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import IO

from tieline.stores.base import StoreError, StoreInUse

__all__ = ["SCHEMA_VERSION", "connect", "file_schema", "make_folder", "move_wal", "own", "wal_bytes"]

SCHEMA_VERSION = 3
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
CREATE INDEX IF NOT EXISTS tasks_ended ON tasks(state, updated) WHERE state IN
    ('TASK_STATE_COMPLETED','TASK_STATE_FAILED','TASK_STATE_CANCELED','TASK_STATE_REJECTED');
CREATE TABLE IF NOT EXISTS log(
    task INTEGER NOT NULL,
    last INTEGER NOT NULL,
    first INTEGER NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY(task, last)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS messages(
    key BLOB PRIMARY KEY,
    task TEXT NOT NULL,
    reply BLOB,
    at INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS messages_at ON messages(at);
CREATE TABLE IF NOT EXISTS webhooks(
    scope TEXT NOT NULL,
    task TEXT NOT NULL,
    id TEXT NOT NULL,
    config BLOB NOT NULL,
    version TEXT NOT NULL,
    after INTEGER NOT NULL,
    created INTEGER NOT NULL,
    failing INTEGER,
    failed INTEGER NOT NULL,
    dead INTEGER,
    reason TEXT NOT NULL,
    taskless INTEGER NOT NULL,  -- 1: the task was not there yet when this was last looked at
    PRIMARY KEY(scope, task, id)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS webhooks_dead ON webhooks(dead) WHERE dead IS NOT NULL;
CREATE INDEX IF NOT EXISTS webhooks_taskless ON webhooks(created) WHERE taskless;
"""


def connect(path: Path) -> sqlite3.Connection:
    """Open the file, made if it is not there, with this version's schema. Raises StoreError, OSError, sqlite3.Error.

    What an older version has made is a part of it: statements that make what is missing bring it up.
    """
    if not path.exists():
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        found = db.execute("PRAGMA user_version").fetchone()[0]
        if not 0 <= found <= SCHEMA_VERSION:
            raise StoreError(
                f"{path} has schema {found}; this version of tieline reads up to {SCHEMA_VERSION}. Use a newer one."
            )
        if found == 0 and db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            raise StoreError(f"{path} is the database of another program. Give the store a file of its own.")
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA synchronous=NORMAL")
        db.execute("PRAGMA wal_autocheckpoint=0")
        if found != SCHEMA_VERSION:
            db.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} PRAGMA user_version={SCHEMA_VERSION}; COMMIT;")
    except BaseException:
        db.close()
        raise
    return db


def file_schema(path: Path) -> int:
    """The schema of a file; 0 when it is not there, or empty. Raises StoreError."""
    if not path.exists():
        return 0
    db = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)
    try:
        return int(db.execute("PRAGMA user_version").fetchone()[0])
    except sqlite3.Error as error:
        raise StoreError(f"{path}: {error}") from error
    finally:
        db.close()


def move_wal(path: Path) -> None:
    """Move what the WAL holds into the file, on a connection of its own."""
    db = sqlite3.connect(f"{path.as_uri()}?mode=rw", uri=True, isolation_level=None)
    try:
        db.execute("PRAGMA wal_checkpoint(PASSIVE)")
    finally:
        db.close()


def wal_bytes(path: Path) -> int:
    """The size of the write-ahead log."""
    try:
        return os.stat(f"{path}-wal").st_size
    except OSError:
        return 0


def make_folder(folder: Path) -> None:
    """Make a folder and those above it that are not there, for their owner alone."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    for path in reversed(missing):
        path.mkdir(mode=0o700, exist_ok=True)


def own(path: Path) -> IO[str]:
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
