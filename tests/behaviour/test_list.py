"""List Tasks (A2A 1.0 §3.1.4)."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from tests.behaviour.agents import Puppet, begun, end, hello
from tests.behaviour.direct import Direct
from tests.behaviour.harness import Json, Transport, refused, state_of, text_of
from tests.behaviour.serving import Serve, every_store, not_over, only_in, over
from tieline import Failed, Message, Part, Rejected, Role, TaskState, TaskStatus, Turn

pytestmark = only_in("1.0", why="no version before 1.0 lists tasks")


async def obeys(turn: Turn) -> Any:
    """Rests after its first message, and does what the text says with the next."""
    if turn.text == "fail":
        raise Failed("As you said.")
    if turn.text == "reject":
        raise Rejected("As you said.")
    if turn.text in ("rest", "authorize"):
        state = TaskState.INPUT_REQUIRED if turn.text == "rest" else TaskState.AUTH_REQUIRED
        yield TaskStatus(state, Message("m", Role.AGENT, (Part(text="And now?"),)))
    else:
        yield f"done: {turn.text}"


def ids(page: Json) -> list[str]:
    return [task["id"] for task in page["tasks"]]


async def all_pages(agent: Transport, **fields: Any) -> list[Json]:
    """Every page of a listing, to the last."""
    pages = [await agent.list(**fields)]
    while token := pages[-1]["nextPageToken"]:
        pages.append(await agent.list(**fields, pageToken=token))
    return pages


@every_store
@pytest.mark.requirement("list.artifacts-left-out", "list.artifacts-on-request")
async def test_artifacts_are_listed_only_on_request(serve: Serve) -> None:
    agent = await serve(obeys)
    with_artifacts = await agent.task("work")
    without = await agent.task("rest")
    unasked: list[Json] = [{}, {"includeArtifacts": False}]
    for fields in unasked:
        assert all("artifacts" not in task for task in (await agent.list(**fields))["tasks"])
    listed = (await agent.list(includeArtifacts=True))["tasks"]
    assert listed == [without, with_artifacts]
    assert listed[1]["artifacts"] == with_artifacts["artifacts"]


@every_store
@pytest.mark.requirement("list.next-page-token-present", "list.next-page-token-empty-at-end", "list.counts-present")
async def test_empty_list_has_all_its_fields(serve: Serve) -> None:
    agent = await serve(hello)
    assert await agent.list() == {"tasks": [], "nextPageToken": "", "pageSize": 50, "totalSize": 0}
    assert await agent.list(contextId="none") == {"tasks": [], "nextPageToken": "", "pageSize": 50, "totalSize": 0}


@every_store
@pytest.mark.requirement(
    "list.next-page-token-present",
    "list.next-page-token-empty-at-end",
    "list.counts-present",
    "list.page-size",
    "list.newest-first",
)
@pytest.mark.parametrize("size", [1, 2, 3, 6, 7, 100])
async def test_pages_are_as_long_as_asked_and_hold_every_task_once_the_newest_first(serve: Serve, size: int) -> None:
    agent = await serve(hello)
    made = [(await agent.task(str(number)))["id"] for number in range(6)]
    pages = await all_pages(agent, pageSize=size)
    assert [task_id for page in pages for task_id in ids(page)] == made[::-1]
    assert [len(page["tasks"]) for page in pages[:-1]] == [size] * (len(pages) - 1)
    assert 1 <= len(pages[-1]["tasks"]) <= size  # the token of a page is empty when nothing follows
    assert {(page["pageSize"], page["totalSize"]) for page in pages} == {(size, 6)}


@every_store
@pytest.mark.requirement("list.page-size")
async def test_page_has_fifty_tasks_where_nothing_is_asked_and_a_hundred_at_most(serve: Serve) -> None:
    agent = await serve(hello)
    direct = agent.over("direct")
    for _ in range(101):
        await direct.task()
    page = await agent.list()
    assert (len(page["tasks"]), page["pageSize"], page["totalSize"]) == (50, 50, 101)
    page = await agent.list(pageSize=100)
    assert (len(page["tasks"]), page["pageSize"], page["totalSize"]) == (100, 100, 101)


@pytest.mark.requirement("list.page-size", "validation.out-of-range", "validation.says-what-is-valid")
@pytest.mark.parametrize("size", [0, -1, 101, 2**31 - 1])
async def test_page_size_outside_of_its_range_is_refused(serve: Serve, size: int) -> None:
    agent = await serve(hello)
    with refused("InvalidParamsError") as refusal:
        await agent.list(pageSize=size)
    assert "between 1 and 100" in refusal.violations["pageSize"]


@pytest.mark.requirement("validation.out-of-range", "validation.names-parameter")
@pytest.mark.parametrize("token", ["next", "!!", "AAAA", "MTIzNA==x", "9" * 40, "LTE"])
async def test_page_token_that_was_never_given_is_refused(serve: Serve, token: str) -> None:
    agent = await serve(hello)
    with refused("InvalidParamsError") as refusal:
        await agent.list(pageToken=token)
    assert "pageToken" in refusal.violations


@every_store
@pytest.mark.requirement("list.cursor-pages")
async def test_tasks_made_or_changed_between_two_pages_push_nothing_off_the_list(serve: Serve) -> None:
    agent = await serve(obeys)
    made = [(await agent.task("rest"))["id"] for _ in range(6)]
    first = await agent.list(pageSize=2)
    assert ids(first) == [made[5], made[4]]
    await agent.task("go on", taskId=made[1])  # unseen, changed
    await agent.task("go on", taskId=made[5])  # seen, changed
    await agent.task("rest")
    second = await agent.list(pageSize=2, pageToken=first["nextPageToken"])
    assert ids(second) == [made[3], made[2]]
    third = await agent.list(pageSize=2, pageToken=second["nextPageToken"])
    assert ids(third) == [made[0]]
    assert third["nextPageToken"] == ""
    assert third["totalSize"] == 7


@every_store
@pytest.mark.requirement("list.update-moves-first", "list.newest-first")
async def test_task_that_was_just_updated_is_listed_first(serve: Serve) -> None:
    agent = await serve(obeys)
    made = [(await agent.task("rest"))["id"] for _ in range(4)]
    await agent.task("go on", taskId=made[1])
    listed = (await agent.list())["tasks"]
    assert [task["id"] for task in listed] == [made[1], made[3], made[2], made[0]]
    times = [task["status"]["timestamp"] for task in listed]
    assert times == sorted(times, reverse=True)


@every_store
@pytest.mark.requirement("list.update-moves-first")
async def test_task_at_work_is_listed_by_the_time_of_its_latest_status(serve: Serve) -> None:
    puppet = Puppet()
    agent = await serve(puppet)
    (first, act), (second, other) = await begun(agent, puppet), await begun(agent, puppet)
    assert ids(await agent.list()) == [second["id"], first["id"]]
    stream = await agent.subscribe(first["id"])
    await stream.next()
    act.tell(lambda turn: turn.status("still at it"))
    await stream.next()
    assert ids(await agent.list()) == [first["id"], second["id"]]
    await end(agent, second["id"], other, "COMPLETED")
    assert ids(await agent.list()) == [second["id"], first["id"]]
    act.end()


@every_store
@pytest.mark.requirement("list.filter-context", "list.counts-present", "context.one-conversation")
async def test_only_tasks_of_a_context_are_listed_where_one_is_asked_for(serve: Serve) -> None:
    agent = await serve(hello)
    mine = [(await agent.task(contextId="mine"))["id"] for _ in range(3)]
    await agent.task(contextId="yours")
    await agent.task()
    pages = await all_pages(agent, contextId="mine", pageSize=2)
    assert [task_id for page in pages for task_id in ids(page)] == mine[::-1]
    assert {page["totalSize"] for page in pages} == {3}
    assert {task["contextId"] for page in pages for task in page["tasks"]} == {"mine"}


@every_store
@pytest.mark.requirement("list.filter-status", "list.counts-present")
async def test_only_tasks_in_a_state_are_listed_where_one_is_asked_for(serve: Serve) -> None:
    agent = await serve(obeys)
    made = {}
    for text in ("fail", "reject", "rest", "authorize", "work"):
        task = await agent.task(text)
        made[state_of(task)] = task["id"]
    cancelled = await agent.cancel((await agent.task("rest"))["id"])
    made["CANCELED"] = cancelled["id"]
    for state in ("COMPLETED", "FAILED", "REJECTED", "CANCELED", "INPUT_REQUIRED", "AUTH_REQUIRED"):
        page = await agent.list(status=f"TASK_STATE_{state}")
        assert (ids(page), page["totalSize"]) == ([made[state]], 1)
        assert {state_of(task) for task in page["tasks"]} == {state}
    assert (await agent.list(status="TASK_STATE_WORKING"))["tasks"] == []


@every_store
@pytest.mark.requirement("list.filter-status")
async def test_task_at_work_is_found_by_its_state(serve: Serve) -> None:
    puppet = Puppet()
    agent = await serve(puppet)
    task, act = await begun(agent, puppet)
    assert ids(await agent.list(status="TASK_STATE_WORKING")) == [task["id"]]
    await end(agent, task["id"], act, "COMPLETED")
    assert ids(await agent.list(status="TASK_STATE_WORKING")) == []


@every_store
@pytest.mark.requirement("list.filter-timestamp", "list.counts-present")
async def test_only_tasks_of_a_time_or_later_are_listed_where_one_is_given(serve: Serve) -> None:
    agent = await serve(hello)
    made = [await agent.task() for _ in range(5)]
    for task in made:
        since = task["status"]["timestamp"]
        expected = [other["id"] for other in made if other["status"]["timestamp"] >= since][::-1]
        page = await agent.list(statusTimestampAfter=since)
        assert (ids(page), page["totalSize"]) == (expected, len(expected))
        moved = datetime.fromisoformat(since).timestamp()
        elsewhere = datetime.fromtimestamp(moved, tz=datetime.fromisoformat("2000-01-01T00:00:00+05:30").tzinfo)
        assert ids(await agent.list(statusTimestampAfter=elsewhere.isoformat())) == expected
    assert len(ids(await agent.list(statusTimestampAfter="1970-01-01T00:00:00Z"))) == 5
    assert ids(await agent.list(statusTimestampAfter="2999-01-01T00:00:00.000Z")) == []


@not_over("grpc", why="a timestamp of protobuf cannot be anything else")
@pytest.mark.requirement("validation.out-of-range", "validation.names-parameter", "validation.says-what-is-valid")
@pytest.mark.parametrize("moment", ["yesterday", "2025-13-01T00:00:00Z", "2025-10-28T10:30:00", "1761647400"])
async def test_timestamp_that_is_none_is_refused(serve: Serve, moment: str) -> None:
    agent = await serve(hello)
    with refused("InvalidParamsError") as refusal:
        await agent.list(statusTimestampAfter=moment)
    assert "RFC 3339" in refusal.violations["statusTimestampAfter"]


@every_store
@pytest.mark.requirement("list.filter-context", "list.filter-status", "list.filter-timestamp")
async def test_filters_hold_together(serve: Serve) -> None:
    agent = await serve(obeys)
    wanted = await agent.task("work", contextId="c")
    await agent.task("rest", contextId="c")
    await agent.task("work", contextId="d")
    page = await agent.list(
        contextId="c",
        status="TASK_STATE_COMPLETED",
        statusTimestampAfter="1970-01-01T00:00:00Z",
        includeArtifacts=True,
        historyLength=0,
        pageSize=1,
    )
    assert ids(page) == [wanted["id"]]
    assert text_of(page["tasks"][0]) == "done: work"
    assert "history" not in page["tasks"][0]
    assert (page["totalSize"], page["nextPageToken"]) == (1, "")


@every_store
@pytest.mark.requirement("list.only-visible-tasks", "authorization.existence-hidden")
async def test_tasks_of_other_tenants_are_not_listed_nor_counted(serve: Serve) -> None:
    agent = await serve(hello)
    made = {name: (await agent.as_tenant(name).task(contextId="same"))["id"] for name in ("one", "two", "1:one/")}
    made[""] = (await agent.task(contextId="same"))["id"]
    filters: list[Json] = [{}, {"contextId": "same"}, {"status": "TASK_STATE_COMPLETED"}]
    for name, task_id in made.items():
        for fields in filters:
            page = await agent.as_tenant(name).list(**fields) if name else await agent.list(**fields)
            assert (ids(page), page["totalSize"]) == ([task_id], 1)


@every_store
@over("direct")
@pytest.mark.requirement("list.only-visible-tasks", "get.unknown-task-refused", "authorization.existence-hidden")
async def test_tasks_of_other_owners_are_not_listed_nor_read(serve: Serve) -> None:
    agent = await serve(hello)
    assert isinstance(agent, Direct)
    ada, bob = agent.as_principal("ada"), agent.as_principal("bob")
    task = await ada.task()
    assert ids(await ada.list()) == [task["id"]]
    assert (await bob.list())["totalSize"] == 0
    assert (await agent.list())["totalSize"] == 0
    for other in (bob, agent):
        with refused("TaskNotFoundError"):
            await other.get(task["id"])
        with refused("TaskNotFoundError"):
            await other.send("go on", taskId=task["id"])
    with refused("TaskNotFoundError"):
        await ada.as_tenant("acme").get(task["id"])
