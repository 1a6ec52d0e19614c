"""The files of the SQLite store: who may read them, what they are called, and who owns them."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.engine.scene import in_loop
from tests.stores.sqlite_process import WAIT_S, opened
from tests.stores.writing import Ticks, Written, write
from tieline.stores import open_store
from tieline.stores.base import StoreError, StoreInUse
from tieline.stores.sqlite import SQLiteStore


def mode(path: Path) -> str:
    return oct(stat.S_IMODE(path.stat().st_mode))


@contextmanager
def umask(value: int) -> Iterator[None]:
    before = os.umask(value)
    try:
        yield
    finally:
        os.umask(before)


# --- who may read them ------------------------------------------------------------------------------------------------


@pytest.mark.skipif(os.name == "nt", reason="Windows has no modes")
@in_loop
async def test_only_the_owner_may_read_what_is_made_whatever_the_umask(tmp_path: Path) -> None:
    for value in (0o000, 0o022, 0o077):
        folder = tmp_path / f"{value:03o}" / "state" / "tieline"
        with umask(0o000):
            folder.parent.parent.mkdir()
        with umask(value):
            async with opened(folder / "tasks.db") as store:
                await write(store, Written(Ticks()).make())
                assert mode(folder) == "0o700"
                assert mode(folder.parent) == "0o700"
                found = {path.name: mode(path) for path in folder.iterdir()}
                assert set(found) == {"tasks.db", "tasks.db-wal", "tasks.db-shm", "tasks.db.lock"}
                assert set(found.values()) == {"0o600"}


@in_loop
async def test_a_folder_that_is_there_keeps_its_mode(tmp_path: Path) -> None:
    before = mode(tmp_path)
    async with opened(tmp_path / "tasks.db"):
        assert mode(tmp_path) == before


@in_loop
async def test_a_store_is_named_by_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for name, path in (
        (f"sqlite:{tmp_path}/a.db", tmp_path / "a.db"),
        (f"sqlite://{tmp_path}/b.db", tmp_path / "b.db"),
        ("sqlite:c.db", tmp_path / "c.db"),
        ("sqlite:~/d.db", tmp_path / "d.db"),
    ):
        store = open_store(name)
        await store.open()
        assert path.exists(), f"{name} made {os.listdir(tmp_path)}"
        await store.close()
    for wrong in ("sqlite:", "mysql:x", "tasks.db"):
        with pytest.raises(ValueError, match="sqlite:PATH"):
            open_store(wrong)


# --- who owns them ----------------------------------------------------------------------------------------------------

HOLD = """
import asyncio, sys
from tieline.stores.sqlite import SQLiteStore
async def main():
    store = SQLiteStore(sys.argv[1])
    await store.open()
    print("open", flush=True)
    sys.stdin.readline()
    await store.close()
asyncio.run(main())
"""


@contextmanager
def held(path: Path) -> Iterator[subprocess.Popen[str]]:
    """The store at `path` open in another process."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        try:
            assert holder.stdout.readline() == "open\n"
            yield holder
        finally:
            if holder.poll() is None:
                holder.kill()
            holder.wait(WAIT_S)


@in_loop
async def test_a_second_process_is_told_which_one_has_the_store_and_gets_it_when_that_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    with held(path) as holder:
        for _ in range(2):
            with pytest.raises(StoreInUse) as error:
                await SQLiteStore(path).open()
            assert f"process {holder.pid}" in str(error.value)
            assert str(path) in str(error.value)
        holder.communicate("\n", timeout=WAIT_S)
        assert holder.returncode == 0
    async with opened(path) as store:
        await write(store, Written(Ticks()).make())


@in_loop
async def test_a_process_that_was_killed_leaves_no_lock(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    with held(path) as holder:
        holder.send_signal(signal.SIGKILL)
        holder.wait(WAIT_S)
    async with opened(path) as store:
        await write(store, Written(Ticks()).make())


@in_loop
async def test_two_stores_of_one_process_cannot_have_one_file(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    async with opened(path):
        with pytest.raises(StoreInUse, match=f"process {os.getpid()}"):
            await SQLiteStore(path).open()


@in_loop
async def test_a_store_that_could_not_be_opened_does_not_keep_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    path.write_bytes(b"this is no database" * 100)
    for _ in range(2):
        with pytest.raises(StoreError) as error:
            await SQLiteStore(path).open()
        assert not isinstance(error.value, StoreInUse)
    path.unlink()
    async with opened(path):
        pass
