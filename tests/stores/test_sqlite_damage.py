"""SQLite files that are damaged, foreign, full, read-only or gone: a clear sentence, no needless loss."""

from __future__ import annotations

import asyncio
import gc
import os
import sqlite3
from pathlib import Path

import pytest

from tests.engine.scene import in_loop
from tests.stores.sqlite_process import opened, run_child
from tests.stores.writing import COMPLETED, Ticks, Written, outcomes, write
from tieline.stores.base import Query, Retention, Store, StoreError, StoreInUse
from tieline.stores.sqlite import SQLiteStore

# --- damaged or foreign -----------------------------------------------------------------------------------------------


@in_loop
async def test_a_file_of_a_newer_version_is_refused_with_both_versions_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    async with opened(path) as store:
        await write(store, Written(Ticks()).make())
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version=99")
    db.close()
    for _ in range(2):
        with pytest.raises(StoreError, match=r"schema 99.* reads up to 3") as error:
            await SQLiteStore(path).open()
        assert str(path) in str(error.value)
    db = sqlite3.connect(path)
    assert db.execute("PRAGMA user_version").fetchone() == (99,)
    assert db.execute("SELECT count(*) FROM tasks").fetchone() == (1,)
    db.close()


async def every_use(store: Store, task: Written) -> list[str]:
    """Use a store in every way; what each says that fails. Anything but a StoreError goes through."""
    said: list[str] = []
    scope, task_id = task.scope, task.task_id

    async def get() -> None:
        await store.get(scope, task_id)

    async def events() -> None:
        await store.events(scope, task_id, 0)

    async def listing() -> None:
        await store.list(Query(scope, 1000))

    async def unfinished() -> None:
        await store.take("")

    async def prune() -> None:
        await store.prune(10**15)

    async def append() -> None:
        await write(store, Written(Ticks(10**9)).make())

    for use in (get, events, listing, unfinished, prune, append):
        try:
            await use()
        except StoreError as error:
            said.append(str(error))
    return said


@pytest.mark.parametrize("name", ["tasks", "log", "tasks_id", "tasks_updated", "tasks_unfinished"])
@pytest.mark.parametrize("which", ["root", "leaves"])
@in_loop
async def test_a_corrupted_file_is_said_to_be_so_wherever_it_shows(tmp_path: Path, name: str, which: str) -> None:
    path = tmp_path / "tasks.db"
    ticks = Ticks()
    tasks = [Written(ticks) for _ in range(300)]
    async with opened(path) as store:
        for number, task in enumerate(tasks):
            await write(store, task.make(), task.chunks("x" * 500))
            if number % 2:
                await write(store, task.go(COMPLETED, padding=500))
    with sqlite3.connect(path) as db:
        size = db.execute("PRAGMA page_size").fetchone()[0]
        root = db.execute("SELECT rootpage FROM sqlite_master WHERE name=?", (name,)).fetchone()[0]
        count = db.execute("PRAGMA page_count").fetchone()[0]
    db.close()
    data = bytearray(path.read_bytes())
    roots = {1, root}
    pages = [root] if which == "root" else [page for page in range(2, count + 1) if page not in roots]
    for page in pages:
        data[(page - 1) * size : page * size] = b"\xa5" * size
    path.write_bytes(data)
    store = SQLiteStore(path, Retention(ttl_s=1))
    said: list[str] = []
    try:
        await store.open()
    except StoreError as error:
        said.append(str(error))
    else:
        said += await every_use(store, tasks[0])
        await store.close()
    assert said
    for sentence in said:
        assert str(path) in sentence
        assert "malformed" in sentence or "corrupt" in sentence
    with pytest.raises(StoreError) as refusal:  # and no lock is left behind: the same is said again
        async with opened(path) as again:
            raise StoreError("; ".join(await every_use(again, tasks[0])))
    assert not isinstance(refusal.value, StoreInUse)


@pytest.mark.parametrize("content", [b"", b"\0" * 5000, b"SQLite format 3\0" + b"\1" * 4080])
@in_loop
async def test_a_file_that_is_no_database_is_refused_or_begun_anew_but_never_half_read(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "tasks.db"
    path.write_bytes(content)
    store = SQLiteStore(path)
    if not content:
        await store.open()
        await write(store, Written(Ticks()).make())
        await store.close()
        return
    with pytest.raises(StoreError, match=r"tasks\.db cannot be opened as a store"):
        await store.open()
    assert path.read_bytes() == content


@in_loop
async def test_a_database_of_another_program_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "places.db"
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE places(name TEXT)")
    db.close()
    with pytest.raises(StoreError, match=r"places\.db"):
        await SQLiteStore(path).open()
    db = sqlite3.connect(path)
    assert [row[0] for row in db.execute("SELECT name FROM sqlite_master")] == ["places"]
    db.close()


@in_loop
async def test_a_path_that_is_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot be opened as a store"):
        await SQLiteStore(tmp_path).open()


@in_loop
async def test_a_path_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be opened as a store"):
        await SQLiteStore(tmp_path / "file" / "tasks.db").open()


@in_loop
async def test_a_store_that_is_not_open_says_so(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "tasks.db")
    task = Written(Ticks())
    task.make()
    await store.close()
    said = await every_use(store, task)
    assert len(said) == 6
    assert all("is not open" in sentence for sentence in said)
    await store.open()
    assert await every_use(store, task) == []
    await store.close()
    assert len(await every_use(store, task)) == 6


# Root may write anywhere: the child becomes somebody else once it has imported what it needs.
READ_ONLY = """
import asyncio, os, sys
from tieline.stores.base import StoreError
from tieline.stores.sqlite import SQLiteStore
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
async def main():
    try:
        await SQLiteStore(sys.argv[1]).open()
    except StoreError as error:
        print(error)
asyncio.run(main())
"""


@pytest.mark.skipif(os.name == "nt", reason="Windows has no modes")
def test_a_folder_that_may_not_be_written_is_named(tmp_path: Path) -> None:
    for path in (tmp_path, *tmp_path.parents[:3]):
        path.chmod(0o755)
    for below in ("read-only", "read-only/new"):
        folder = tmp_path / below
        if below == "read-only":
            folder.mkdir()
            folder.chmod(0o555)
        child = run_child(READ_ONLY, folder / "tasks.db")
        assert child.stderr == ""
        assert str(folder / "tasks.db") in child.stdout
        assert "cannot be opened as a store" in child.stdout
        assert "Permission denied" in child.stdout
    (tmp_path / "read-only").chmod(0o755)


@pytest.mark.skipif(os.name == "nt", reason="Windows has no modes")
def test_a_file_that_may_only_be_read_is_refused_at_the_start(tmp_path: Path) -> None:
    for path in (tmp_path, *tmp_path.parents[:3]):
        path.chmod(0o755)

    async def make() -> None:
        async with opened(tmp_path / "tasks.db") as store:
            await write(store, Written(Ticks()).make())

    asyncio.run(make())
    (tmp_path / "tasks.db.lock").chmod(0o666)
    (tmp_path / "tasks.db").chmod(0o444)
    child = run_child(READ_ONLY, tmp_path / "tasks.db")
    assert child.stderr == ""
    assert str(tmp_path / "tasks.db") in child.stdout
    assert "readonly" in child.stdout or "read-only" in child.stdout


# --- a disk that is full ----------------------------------------------------------------------------------------------


@in_loop
async def test_a_full_store_says_so_keeps_what_it_has_and_goes_on_when_there_is_room(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    ticks = Ticks()
    async with opened(path) as store:
        first = Written(ticks)
        await write(store, first.make())
        assert store._db is not None
        pages = store._db.execute("PRAGMA page_count").fetchone()[0]
        store._db.execute(f"PRAGMA max_page_count={pages + 20}")
        big = Written(ticks)
        with pytest.raises(StoreError, match=r"tasks\.db.*full"):
            await write(store, big.make(), big.chunks("x" * 200_000))
        record = await store.get(big.scope, big.task_id)
        assert record is not None
        assert record.version == 2
        store._db.execute("PRAGMA max_page_count=1000000")
        await write(store, first.chunks("goes on"), Written(ticks).make())
        events = await store.events(first.scope, first.task_id, 0)
        assert [event.json for _, event in events or ()] == first.log


FULL = """
import asyncio, resource, sys
from tests.stores.writing import Ticks, Written, write
from tieline.stores.base import StoreError
from tieline.stores.sqlite import SQLiteStore
async def main():
    store = SQLiteStore(sys.argv[1])
    await store.open()
    ticks = Ticks()
    kept, said = [], []
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, resource.RLIM_INFINITY))
    for _ in range(30):
        task = Written(ticks)
        try:
            await write(store, task.make(), task.chunks("x" * 100_000))
        except StoreError as error:
            said.append(str(error))
        else:
            kept.append(task)
    print(len(kept), len(said), said[0])
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    for task in kept:
        await write(store, task.chunks("goes on"))
    await store.close()
    store = SQLiteStore(sys.argv[1])
    await store.open()
    for task in kept:
        assert [event.json for _, event in await store.events(task.scope, task.task_id, 0)] == task.log
    await store.close()
    print("all there")
asyncio.run(main())
"""


@pytest.mark.skipif(os.name == "nt", reason="Windows has no limits of a process")
def test_a_disk_that_takes_no_more_costs_only_what_does_not_fit(tmp_path: Path) -> None:
    child = run_child(FULL, tmp_path / "tasks.db")
    assert child.stderr == ""
    counted, rest = child.stdout.splitlines()
    kept, failed, sentence = counted.split(" ", 2)
    assert int(kept) >= 5
    assert int(failed) >= 5
    assert str(tmp_path / "tasks.db") in sentence
    assert rest == "all there"


@in_loop
async def test_a_file_that_was_deleted_under_the_store_is_noticed_before_anybody_is_told_that_it_is_kept(
    tmp_path: Path,
) -> None:
    path = tmp_path / "tasks.db"
    ticks = Ticks()
    store = SQLiteStore(path)
    await store.open()
    await write(store, Written(ticks).make())
    for name in ("tasks.db", "tasks.db-wal", "tasks.db-shm"):
        (tmp_path / name).unlink(missing_ok=True)
    told = [error for _ in range(5) for error in await outcomes(store, [Written(ticks).make()])]
    assert [str(path) in str(error) for error in told] == [True] * 5
    await store.close()
    assert not path.exists() or path.stat().st_size > 0
    async with opened(path) as again:
        await write(again, Written(ticks).make())


# --- the WAL ----------------------------------------------------------------------------------------------------------


@in_loop
async def test_the_wal_is_moved_into_the_file_while_the_store_is_at_work_and_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    wal = tmp_path / "tasks.db-wal"
    ticks = Ticks()
    tasks = []
    async with opened(path) as store:
        for _ in range(60):  # of a megabyte each
            task = Written(ticks)
            await write(store, task.make(), task.chunks("x" * 1_000_000))
            tasks.append(task)
            if store._checkpoint is not None:
                await asyncio.wait([store._checkpoint])
        assert wal.stat().st_size < 40_000_000
    assert not wal.exists()
    async with opened(path) as store:
        for task in tasks:
            events = await store.events(task.scope, task.task_id, 0)
            assert [event.json for _, event in events or ()] == task.log


@in_loop
async def test_a_checkpoint_that_fails_is_no_failure_of_what_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was committed is in the WAL; that it cannot be moved now is a matter of the next time."""
    unhandled: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unhandled.append(context))

    def fails(path: Path) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr("tieline.stores.sqlite.move_wal", fails)
    monkeypatch.setattr("tieline.stores.sqlite._CHECKPOINT_BYTES", 1000)
    async with opened(tmp_path / "tasks.db") as store:
        ticks = Ticks()
        for _ in range(3):
            task = Written(ticks)
            await write(store, task.make(), task.chunks("x" * 2000))
            if store._checkpoint is not None:
                await asyncio.wait([store._checkpoint])

    gc.collect()
    assert unhandled == []


# --- values at their edges --------------------------------------------------------------------------------------------


@in_loop
async def test_events_behind_a_number_that_no_log_can_have_are_none(tmp_path: Path) -> None:
    async with opened(tmp_path / "tasks.db") as store:
        task = Written(Ticks())
        await write(store, task.make())
        for after in (2**31, 2**63 - 1, 2**63, 10**30):
            assert not await store.events(task.scope, task.task_id, after)


@in_loop
async def test_an_append_that_sqlite_cannot_bind_fails_alone(tmp_path: Path) -> None:
    """A lone surrogate has no UTF-8 form: it must not take the others of its batch with it."""
    async with opened(tmp_path / "tasks.db") as store:
        ticks = Ticks()
        good, bad = Written(ticks), Written(ticks)
        append = bad.make()
        append.context_id = "\ud800"
        errors = await outcomes(store, [good.make(), append])
        assert errors[0] is None
        assert isinstance(errors[1], StoreError)
        events = await store.events(good.scope, good.task_id, 0)
        assert [event.json for _, event in events or ()] == good.log
