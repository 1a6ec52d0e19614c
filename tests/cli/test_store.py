"""`store`: migrate, stats, prune, export and import, over every store that outlives its server."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pty
import select
import sqlite3
import stat
import subprocess
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import psycopg
import pytest
import redis.asyncio

from tests.cli.running import LIMIT_S, Result, Tieline, until
from tests.cli.test_serve import HELLO, read_until, stop
from tests.databases import postgres_server, redis_server
from tests.interop.processes import TIELINE
from tieline.event import Event
from tieline.ids import new_id
from tieline.stores import open_store
from tieline.stores.base import Record, SharedStore, Store, StoredTask, Webhook
from tieline.types import Artifact, Part, Task, TaskArtifactUpdateEvent, TaskState, TaskStatus, encode

T = TypeVar("T")

KINDS = ("sqlite", "postgres", "redis")
WORKING, COMPLETED, FAILED = TaskState.WORKING, TaskState.COMPLETED, TaskState.FAILED
HOUR_S = 3600


def url_of(kind: str, folder: Path) -> str:
    """A store of a kind that nothing has been made of yet."""
    if kind == "sqlite":
        return f"sqlite:{folder / new_id()}.db"
    name = f"cli_{new_id().replace('-', '')[-20:]}"
    return postgres_server().url(name) if kind == "postgres" else redis_server().url(name)


def in_store(url: str, work: Callable[[Any], Awaitable[T]]) -> T:
    """Do something with an open store."""

    async def whole() -> T:
        store: Any = open_store(url)
        await store.migrate()
        await store.open()
        try:
            return await work(store)
        finally:
            await store.close()

    return asyncio.run(asyncio.wait_for(whole(), LIMIT_S))


def stored(
    task_id: str, state: TaskState = COMPLETED, *, age_s: float = HOUR_S, scope: str = "4:team/ann"
) -> StoredTask:
    """A task of three events that changed `age_s` seconds ago."""
    begun = Task(task_id, TaskStatus(TaskState.SUBMITTED), "talk")
    chunk = Artifact("a", (Part(text=f"Grüße\n\u2028 {task_id}"), Part(data={"n": 2**70, "none": None})))
    whole = Task(task_id, TaskStatus(state), "talk", (chunk,))
    events = [Event(begun), Event(TaskArtifactUpdateEvent(task_id, "talk", chunk)), Event(whole)]
    updated = time.time_ns() // 1000 - int(age_s * 1_000_000)
    record = Record(scope, task_id, "talk", state, updated, 3, encode(whole), 3)
    return StoredTask(record, list(enumerate(events, 1)))


def fill(url: str, tasks: Sequence[StoredTask]) -> None:
    async def put(store: Store) -> None:
        assert await store.put(tasks) == len(tasks)

    in_store(url, put)


def lines_of(run: Result) -> list[Any]:
    """JSON Lines: a line feed ends one, what else Unicode has for that does not."""
    return [json.loads(line) for line in run.out.split("\n")[:-1]]


def seconds_apart(count: int) -> list[StoredTask]:
    """Tasks that ended one second after the other."""
    return [stored(f"task-{number:04}", age_s=HOUR_S + count - number) for number in range(count)]


@pytest.fixture(params=KINDS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return url_of(request.param, tmp_path)


@pytest.fixture
def hello(bare: Tieline) -> Tieline:
    (bare.folder / "hello.py").write_text(HELLO)
    return bare


# --- migrate ----------------------------------------------------------------------------------------------------------


def test_migrate_makes_a_store_ready_and_says_when_it_was_so(bare: Tieline, url: str) -> None:
    made = bare("store", "migrate", url, "-o", "json")
    assert made.code == 0, made
    assert made.json["schemaBefore"] == 0
    assert made.json["schema"] >= 1
    again = bare("store", "migrate", url)
    assert again.fields["Schema"] == f"{made.json['schema']} (it was so already)"
    assert bare("store", "stats", url).fields["Tasks"] == "0"


async def made_older(url: str, kind: str) -> int:
    """Make a store what the version before webhooks has left; returns the number of its schema."""
    if kind == "sqlite":
        with contextlib.closing(sqlite3.connect(url.removeprefix("sqlite:"))) as file:
            file.executescript("DROP TABLE webhooks; PRAGMA user_version=2")
        return 2
    if kind == "postgres":
        address, _, schema = url.partition("?schema=")
        async with await psycopg.AsyncConnection.connect(address, autocommit=True) as connection:
            await connection.execute(f"DROP TABLE {schema}.webhooks".encode())
            await connection.execute(f"DELETE FROM {schema}.meta WHERE version > 1".encode())
    else:
        address, _, prefix = url.partition("?prefix=")
        client: Any = redis.asyncio.from_url(address)
        async with client:
            await client.hset(f"{{{prefix}}}:meta", "version", "1")
    return 1


@pytest.mark.parametrize("kind", KINDS)
def test_migrate_brings_the_store_of_an_older_version_up_with_its_tasks(
    bare: Tieline, tmp_path: Path, kind: str
) -> None:
    url = url_of(kind, tmp_path)
    fill(url, [stored("a"), stored("b", TaskState.INPUT_REQUIRED)])
    before = asyncio.run(made_older(url, kind))
    if kind != "sqlite":
        refused = bare("store", "stats", url)
        assert refused.code == 1
        assert "tieline store migrate" in refused.err
    migrated = bare("store", "migrate", url, "-o", "json").json
    assert (migrated["schemaBefore"], migrated["schema"]) == (before, before + 1)
    told = bare("store", "stats", url, "-o", "json").json
    assert (told["tasks"], told["events"], told["webhooks"]) == (2, 6, 0)

    async def set_webhook(store: Store) -> None:
        webhook = Webhook("4:team/ann", "b", "w", b"{}", "1.0", 0, 1)
        assert await store.set_webhook(webhook, 1)
        assert [one.task_id for one in await store.take_webhooks("")] == ["b"]

    in_store(url, set_webhook)


def test_postgresql_without_tables_says_how_to_make_them(bare: Tieline, tmp_path: Path) -> None:
    url = url_of("postgres", tmp_path)
    refused = bare("store", "stats", url, "-o", "json")
    assert refused.code == 1
    assert refused.error["code"] == "TIELINE_ERR_STORE"
    assert f"tieline store migrate '{url}'" in refused.error["message"]


# --- stats ------------------------------------------------------------------------------------------------------------


def test_stats_counts_tasks_by_state_events_messages_and_bytes(bare: Tieline, url: str) -> None:
    fill(url, [stored("a", age_s=30), stored("b", FAILED, age_s=20), stored("c", TaskState.INPUT_REQUIRED, age_s=10)])

    async def hear(store: Store) -> None:
        heard = store.hear(b"k" * 16, "a", 1)
        answered = store.replied(b"k" * 16, b"{}")
        for each in (heard, answered):
            if isinstance(each, asyncio.Future):
                await each

        for name in ("w", "x"):
            await store.set_webhook(Webhook("4:team/ann", "a", name, b"{}", "1.0", 0, 1), 5)
        await store.give_up_webhook(Webhook("4:team/ann", "a", "x", b"{}", "1.0", 0, 1), 0, 3, 2, "gone")

    in_store(url, hear)
    told = bare("store", "stats", url, "-o", "json").json
    assert told["store"] == url
    assert (told["webhooks"], told["deadWebhooks"]) == (2, 1)
    assert (told["tasks"], told["events"], told["messages"], told["replicas"]) == (3, 9, 1, 0)
    assert told["states"] == {
        "TASK_STATE_COMPLETED": 1,
        "TASK_STATE_FAILED": 1,
        "TASK_STATE_INPUT_REQUIRED": 1,
    }
    assert told["bytes"] > 100
    assert told["oldest"].endswith("Z")
    fields = bare("store", "stats", url).fields
    assert {fields[name] for name in ("Completed", "Failed", "Input required")} == {"1"}
    assert fields["Oldest"] == told["oldest"]
    assert (fields["Webhooks"], fields["Dead webhooks"]) == ("2", "1")


@pytest.mark.parametrize("kind", ["postgres", "redis"])
def test_who_looks_into_a_shared_store_is_no_replica_of_it(bare: Tieline, tmp_path: Path, kind: str) -> None:
    url = url_of(kind, tmp_path)
    file = bare.folder / "all.jsonl"

    async def look(store: SharedStore) -> None:
        await store.put([stored("a", WORKING)])
        assert list(await store.beat()) == [store.replica]
        for words in (("stats", url), ("export", url, str(file)), ("import", url, str(file)), ("prune", url)):
            run = await asyncio.to_thread(bare, "store", *words)
            assert run.code == 0, run
        counted = await asyncio.to_thread(bare, "store", "stats", url, "-o", "json")
        assert counted.json["replicas"] == 1
        assert list(await store.beat()) == [store.replica]

    in_store(url, look)


# --- prune ------------------------------------------------------------------------------------------------------------


def test_prune_drops_what_its_options_say_and_nothing_that_has_not_ended(bare: Tieline, url: str) -> None:
    day = 24 * HOUR_S
    fill(
        url,
        [
            *(stored("old", age_s=10 * day), stored("old-failure", FAILED, age_s=10 * day)),
            *(
                stored("older-failure", FAILED, age_s=40 * day),
                stored("waits", TaskState.INPUT_REQUIRED, age_s=99 * day),
            ),
            stored("new"),
        ],
    )
    told = bare("store", "prune", url, "--ttl", "7d", "--state", "failed=30d", "-o", "json").json
    assert told["tasks"] == 2
    assert told["states"] == {"TASK_STATE_COMPLETED": 1, "TASK_STATE_FAILED": 1}
    assert told["bytes"] > 0
    assert bare("store", "stats", url, "-o", "json").json["states"] == {
        "TASK_STATE_COMPLETED": 1,
        "TASK_STATE_FAILED": 1,
        "TASK_STATE_INPUT_REQUIRED": 1,
    }
    every = bare("store", "prune", url, "--ttl", "0")
    assert every.fields["Tasks dropped"] == "2"
    assert bare("store", "stats", url).fields["Tasks"] == "1"


def test_prune_drops_logs_and_leaves_their_tasks(bare: Tieline, url: str) -> None:
    fill(url, [stored("old", age_s=HOUR_S), stored("new", age_s=0)])
    told = bare("store", "prune", url, "--logs", "30m", "-o", "json").json
    assert (told["tasks"], told["logs"]) == (0, 1)
    left = bare("store", "stats", url, "-o", "json").json
    assert (left["tasks"], left["events"]) == (2, 3)


def test_prune_forgets_messages_only_when_it_is_asked_to(bare: Tieline, url: str) -> None:
    async def hear(store: Store) -> None:
        heard = store.hear(b"k" * 16, "a", 1)
        answered = store.replied(b"k" * 16, b"{}")
        for each in (heard, answered):
            if isinstance(each, asyncio.Future):
                await each

    in_store(url, hear)
    assert bare("store", "prune", url, "--ttl", "1h").fields["Messages forgotten"] == "0"
    assert bare("store", "prune", url, "--messages", "1h").fields["Messages forgotten"] == "1"


def test_prune_drops_webhooks_with_their_tasks_and_those_whose_task_was_never_made(bare: Tieline, url: str) -> None:
    fill(url, [stored("a"), stored("b")])

    async def set_webhooks(store: Store) -> None:
        for task, created in (("a", 1), ("b", 1), ("none", 1), ("none yet", time.time_ns() // 1000)):
            assert await store.set_webhook(Webhook("4:team/ann", task, "w", b"secret", "1.0", 0, created), 5)

    in_store(url, set_webhooks)
    told = bare("store", "prune", url, "--ttl", "90d", "-o", "json").json
    assert (told["tasks"], told["webhooks"]) == (0, 1)
    assert bare("store", "stats", url).fields["Webhooks"] == "3"
    assert "secret" not in bare("store", "export", url, "-").out
    fields = bare("store", "prune", url, "--ttl", "0").fields
    assert (fields["Tasks dropped"], fields["Webhooks dropped"]) == ("2", "0")
    assert bare("store", "stats", url).fields["Webhooks"] == "1"


def test_prune_without_options_does_what_the_store_says_of_itself(bare: Tieline, url: str) -> None:
    fill(url, [stored("ancient", age_s=400 * 24 * HOUR_S), stored("new")])
    assert bare("store", "prune", url).fields["Tasks dropped"] == "1"
    assert bare("store", "prune", url).fields["Tasks dropped"] == "0"


def test_prune_down_to_a_size_drops_the_oldest_first(bare: Tieline, tmp_path: Path) -> None:
    url = url_of("redis", tmp_path)
    fill(url, seconds_apart(50))
    whole = bare("store", "stats", url, "-o", "json").json["bytes"]
    dropped = bare("store", "prune", url, "--max-bytes", str(whole // 2), "-o", "json").json["tasks"]
    assert 20 <= dropped <= 30
    left = lines_of(bare("store", "export", url, "-"))[1:]
    assert [task["id"] for task in left] == [f"task-{number:04}" for number in range(dropped, 50)]


@pytest.mark.parametrize(
    "words",
    [
        ("--ttl", "soon"),
        ("--state", "failed"),
        ("--state", "working=7d"),
        ("--state", "failed=soon"),
        ("--max-bytes", "0"),
        ("--logs", "-1"),
    ],
)
def test_a_retention_that_makes_no_sense_is_a_usage_error(
    bare: Tieline, tmp_path: Path, words: tuple[str, ...]
) -> None:
    refused = bare("store", "prune", f"sqlite:{tmp_path / 'a.db'}", *words, "-o", "json")
    assert refused.code == 2
    assert refused.error["code"] == "A2ACLI_ERR_USAGE"


# --- export and import ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("from_kind", "to_kind"), [(KINDS[at], KINDS[at - 1]) for at in range(len(KINDS))])
def test_what_is_exported_and_imported_is_the_same_to_the_byte(
    bare: Tieline, tmp_path: Path, from_kind: str, to_kind: str
) -> None:
    here, there = url_of(from_kind, tmp_path), url_of(to_kind, tmp_path)
    others = [stored("work", WORKING, age_s=2), stored("asks", TaskState.AUTH_REQUIRED, age_s=1, scope="0:/\x00ü")]
    fill(here, [*seconds_apart(250), *others])
    if to_kind == "postgres":
        assert bare("store", "migrate", there).code == 0
    written = bare("store", "export", here, "all.jsonl", "-o", "json").json
    assert (written["tasks"], written["events"]) == (252, 756)
    put = bare("store", "import", there, "all.jsonl", "-o", "json").json
    assert put == {"store": there, "tasks": 252, "new": 252, "alreadyThere": 0}
    again = bare("store", "export", there, "-")
    assert again.out.encode() == (bare.folder / "all.jsonl").read_bytes()
    assert again.err == "Exported 252 tasks with 756 events.\n"


def test_the_lines_of_an_export_are_json_with_the_format_first(bare: Tieline, tmp_path: Path) -> None:
    url = url_of("sqlite", tmp_path)
    fill(url, [stored("a")])
    head, task = lines_of(bare("store", "export", url, "-"))
    assert head == {"format": "tieline-tasks", "version": 1}
    assert (task["scope"], task["id"], task["contextId"]) == ("4:team/ann", "a", "talk")
    assert (task["state"], task["version"], task["snapshotVersion"]) == ("TASK_STATE_COMPLETED", 3, 3)
    assert task["snapshot"]["artifacts"][0]["parts"][1]["data"] == {"n": 2**70, "none": None}
    assert [number for number, _ in task["events"]] == [1, 2, 3]
    assert task["events"][0][1] == {
        "task": {"id": "a", "status": {"state": "TASK_STATE_SUBMITTED"}, "contextId": "talk"}
    }


def test_an_import_overwrites_nothing_and_can_be_made_again(bare: Tieline, url: str, tmp_path: Path) -> None:
    source = url_of("sqlite", tmp_path)
    fill(source, [stored("a"), stored("b", FAILED)])
    exported = bare("store", "export", source, "-").out.encode()
    fill(url, [stored("b", COMPLETED, age_s=1)])
    first = bare("store", "import", url, "-", stdin=exported)
    assert (first.fields["New"], first.fields["Already there"]) == ("1", "1")
    second = bare("store", "import", url, "-", stdin=exported)
    assert (second.fields["New"], second.fields["Already there"]) == ("0", "2")
    assert bare("store", "stats", url).fields["Completed"] == "2"


def changed(line: bytes, **values: Any) -> bytes:
    """A line with other values; None takes one out."""
    whole = {**json.loads(line), **values}
    return json.dumps({name: value for name, value in whole.items() if value is not None}).encode() + b"\n"


BAD: list[tuple[Callable[[bytes], bytes], str]] = [
    (lambda line: line[:40] + b"\n", "malformed: invalid character"),
    (lambda line: b"\n", "truncated"),
    (lambda line: b"[]\n", "Expected `object`"),
    (lambda line: b"\xff" + line, "malformed"),
    (lambda line: line.replace(b"task-0149", b"task-\xff"), "Invalid UTF-8"),
    (lambda line: changed(line, scope=None), "missing required field `scope`"),
    (lambda line: changed(line, more=1), "unknown field `more`"),
    (lambda line: changed(line, state="DONE"), "Invalid enum value 'DONE'"),
    (lambda line: changed(line, state="TASK_STATE_WORKING"), "its snapshot TASK_STATE_COMPLETED"),
    (lambda line: changed(line, id="other"), "the snapshot is of another task"),
    (lambda line: changed(line, snapshot={"id": "task-0149"}), "missing required field `status`"),
    (lambda line: changed(line, snapshotVersion=4), "the snapshot is of event 4 of 3"),
    (lambda line: changed(line, events=json.loads(line)["events"][:2]), "not numbered up to 3"),
    (lambda line: changed(line, events=json.loads(line)["events"][::2]), "not numbered up to 3"),
    (lambda line: changed(line, snapshotVersion=1, events=[]), "events between the snapshot (1) and the end"),
    (lambda line: changed(line, events=[[3, {}]]), "exactly one of task, message"),
    (lambda line: changed(line, updated=1 << 62), "no moment of the past"),
]


@pytest.mark.parametrize(("spoil", "why"), BAD, ids=[why for _, why in BAD])
def test_a_bad_line_is_told_by_its_number_and_nothing_of_its_batch_is_imported(
    bare: Tieline, tmp_path: Path, spoil: Callable[[bytes], bytes], why: str
) -> None:
    source, target = url_of("sqlite", tmp_path), url_of("sqlite", tmp_path)
    fill(source, seconds_apart(200))
    lines = bare("store", "export", source, "-").out.encode().splitlines(keepends=True)
    good = lines[150]
    lines[150] = spoil(good)
    refused = bare("store", "import", target, "-", "-o", "json", stdin=b"".join(lines))
    assert refused.code == 1
    assert refused.error["code"] == "TIELINE_ERR_IMPORT"
    assert refused.error["message"].startswith("Line 151: ")
    assert why in refused.error["message"]
    assert (
        "Nothing from line 102 on was put in; before it 100 tasks were new, 0 there already."
        in refused.error["message"]
    )
    assert bare("store", "stats", target).fields["Tasks"] == "100"
    lines[150] = good
    mended = bare("store", "import", target, "-", stdin=b"".join(lines))
    assert (mended.fields["New"], mended.fields["Already there"]) == ("100", "100")


@pytest.mark.parametrize(
    ("first", "why"),
    [
        (b"", "this is no export of tasks"),
        (b'{"id": "a"}\n', "this is no export of tasks"),
        (b"\x1f\x8b\x08\x00\n", "this is no export of tasks"),
        (b'{"format": "tieline-tasks", "version": 2}\n', "has version 2; this version of tieline reads 1"),
    ],
)
def test_what_is_no_export_makes_no_store(bare: Tieline, tmp_path: Path, first: bytes, why: str) -> None:
    refused = bare("store", "import", f"sqlite:{tmp_path / 'made.db'}", "-", "-o", "json", stdin=first)
    assert refused.code == 1
    assert refused.error["code"] == "TIELINE_ERR_IMPORT"
    assert why in refused.error["message"]
    assert not (tmp_path / "made.db").exists()


def test_an_export_is_its_owners_alone_whole_and_overwrites_nothing_unasked(bare: Tieline, tmp_path: Path) -> None:
    url = url_of("sqlite", tmp_path)
    fill(url, [stored("a")])
    file = bare.folder / "all.jsonl"
    file.write_text("mine")
    refused = bare("store", "export", url, "all.jsonl", "-o", "json")
    assert refused.code == 1
    assert refused.error["code"] == "TIELINE_ERR_FILES"
    assert file.read_text() == "mine"
    assert bare("store", "export", url, "all.jsonl", "--force").code == 0
    assert file.read_bytes().count(b"\n") == 2
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert os.listdir(bare.folder) == ["all.jsonl"]
    nowhere = bare("store", "export", url, "no/such/folder/all.jsonl", "-o", "json")
    assert nowhere.error["code"] == "TIELINE_ERR_FILES"
    unread = bare("store", "import", url, "missing.jsonl", "-o", "json")
    assert unread.error["code"] == "TIELINE_ERR_FILES"


def test_an_export_into_a_pipe_that_is_closed_ends_in_silence(bare: Tieline, tmp_path: Path) -> None:
    url = url_of("sqlite", tmp_path)
    fill(url, seconds_apart(1000))
    process = bare.start("store", "export", url, "-")
    assert process.stdout is not None
    assert process.stdout.readline().startswith(b'{"format"')
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(timeout=LIMIT_S) == 141


@contextlib.contextmanager
def watched(bare: Tieline, *words: str) -> Iterator[bytearray]:
    """What a terminal at stderr gets of a run, complete when the block begins."""
    terminal, theirs = pty.openpty()
    process = bare.start(*words, stderr=theirs)
    os.close(theirs)
    seen = bytearray()
    with contextlib.suppress(OSError):  # the end of a terminal
        while True:
            ready, _, _ = select.select([terminal], [], [], LIMIT_S)
            assert ready, "the command did not end"
            data = os.read(terminal, 65536)
            if not data:
                break
            seen += data
    process.communicate(timeout=LIMIT_S)
    os.close(terminal)
    assert process.returncode == 0, seen
    yield seen


def test_a_terminal_sees_how_far_it_is_and_a_pipe_does_not(bare: Tieline, tmp_path: Path) -> None:
    here, there = url_of("sqlite", tmp_path), url_of("sqlite", tmp_path)
    fill(here, seconds_apart(300))
    for words, label in (
        (("export", here, "all.jsonl"), b"Exporting"),
        (("import", there, "all.jsonl"), b"Importing"),
        (("prune", there, "--ttl", "0"), b"Dropping"),
    ):
        with watched(bare, "store", *words) as seen:
            assert label in seen
            if label != b"Dropping":
                assert b"100%" in seen
    quiet = bare("store", "export", here, "again.jsonl")
    assert (quiet.code, quiet.err) == (0, "")


def test_ctrl_c_ends_an_import_that_waits_for_its_pipe(bare: Tieline, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [TIELINE, "store", "import", f"sqlite:{tmp_path / 'a.db'}", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "HOME": str(bare.home)},
    )
    assert process.stdin is not None
    process.stdin.write(b'{"format": "tieline-tasks", "version": 1}\n')
    process.stdin.flush()
    until((tmp_path / "a.db").exists, "the file, which is made behind the first line")
    process.send_signal(2)
    process.wait(timeout=LIMIT_S)
    out, errors = process.communicate()
    assert (process.returncode, out) == (130, b"")
    assert b"Traceback" not in errors


# --- which store ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["stats", "export", "prune", "migrate", "import"])
def test_a_file_that_a_server_has_is_said_to_be_in_use(hello: Tieline, command: str) -> None:
    server = hello.start("serve", "hello.py:hello", "--port", "0", "--store", "sqlite:tasks.db")
    read_until(server, "Ctrl-C")
    words = {"export": ["-"], "import": ["-"]}.get(command, [])
    refused = hello(
        *("store", command, "sqlite:tasks.db", *words), stdin=b'{"format": "tieline-tasks", "version": 1}\n'
    )
    stop(server)
    assert (refused.code, refused.out) == (1, "")
    first, code, hint = refused.err.splitlines()
    assert first.endswith(f"tasks.db is in use by process {server.pid}.")
    assert code == "Code: TIELINE_ERR_STORE_IN_USE"
    assert "stop the server first" in hint
    assert "Traceback" not in refused.err


def test_the_environment_names_the_store_where_the_command_line_does_not(bare: Tieline, tmp_path: Path) -> None:
    url, other = url_of("sqlite", tmp_path), url_of("sqlite", tmp_path)
    fill(url, [stored("a")])
    fill(other, [])
    bare.env["TIELINE_STORE"] = url
    assert bare("store", "stats").fields["Store"] == url
    assert bare("store", "export", "all.jsonl").fields["Tasks"] == "1"
    assert bare("store", "import", "all.jsonl").fields["Already there"] == "1"
    assert bare("store", "import", other, "all.jsonl").fields["New"] == "1"
    assert bare("store", "stats", other).fields["Store"] == other


def test_a_server_takes_its_store_from_the_environment_and_shows_no_password(hello: Tieline, tmp_path: Path) -> None:
    shown = url_of("postgres", tmp_path)
    secret = shown.replace("tester@", "tester:open-sesame@")
    hello.env["TIELINE_STORE"] = secret
    migrated = hello("store", "migrate", "-o", "json")
    assert migrated.json["store"] == shown
    server = hello.start("serve", "hello.py:hello", "--port", "0", "--ttl", "7d")
    told = read_until(server, "Ctrl-C")
    assert f"  tasks  {shown}\n" in told
    address = told.splitlines()[0].removeprefix("Serving ")
    assert hello("send", "Ada", "-a", address).code == 0
    counted = hello("store", "stats")
    assert (counted.fields["Completed"], counted.fields["Replicas"]) == ("1", "1")
    _, err = stop(server)
    assert "open-sesame" not in f"{migrated}{told}{counted}{err}"
    assert hello("store", "stats").fields["Replicas"] == "0"


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://user:open-sesame/1@host/database",
        "postgresql://user:12/open-sesame@host/database",
        "postgresql://user:open@sesame@host/database",
        "postgresql://user:open-sesame@host/database?schema=No-Name",
        "redis://user:open-sesame#1@host",
        "redis://user:open-sesame@host/0?prefix={}",
        "mysql://user:open-sesame@host/database",
    ],
)
def test_a_password_is_never_shown_where_its_url_fails(hello: Tieline, url: str) -> None:
    for words in (("store", "stats"), ("store", "export", "-"), ("serve", "hello.py:hello", "--port", "0")):
        for more in ((), ("-o", "json"), ("--debug",)):
            refused = hello(*words, *more, env={"TIELINE_STORE": url})
            assert refused.code in (1, 2), refused
            assert "sesame" not in refused.out + refused.err
            assert "Traceback" not in refused.err


def test_a_server_that_refuses_a_password_is_reported_without_it(bare: Tieline) -> None:
    port = redis_server().port
    refused = bare("store", "stats", f"redis://user:open-sesame@127.0.0.1:{port}/0", "--debug")
    assert refused.code == 1
    assert f"redis://user@127.0.0.1:{port}/0" in refused.err
    assert "sesame" not in refused.out + refused.err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("stats",), "Which store? No URL is given."),
        (("stats", "memory"), "memory is forgotten with its server"),
        (("stats", "mysql://host/database"), "is not a store"),
        (("export", "sqlite:a.db"), "Give the URL of a store, and a file."),
        (("import", "sqlite:a.db", "b", "c"), "Give the URL of a store, and a file."),
    ],
)
def test_a_store_that_is_none_is_a_usage_error(bare: Tieline, words: tuple[str, ...], says: str) -> None:
    refused = bare("store", *words, "-o", "json")
    assert refused.code == 2
    assert refused.error["code"] == "A2ACLI_ERR_USAGE"
    assert says in refused.error["message"]


@pytest.mark.parametrize("words", [("stats",), ("prune",), ("export", "-")])
def test_a_file_that_is_not_there_is_not_made_by_looking(bare: Tieline, words: tuple[str, ...]) -> None:
    command, *rest = words
    refused = bare("store", command, "sqlite:none.db", *rest)
    assert (refused.code, refused.out) == (1, "")
    assert refused.err.splitlines()[0].endswith("/none.db.")
    assert list(bare.folder.iterdir()) == []
