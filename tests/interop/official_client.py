"""The official SDK's client (a2a-sdk 1.3.0) calling examples/table.py, in a process of its own.

    python official_client.py URL BINDING

Prints one JSON object: for each scenario below what the client saw, or {"failed": traceback}. Nothing of ours is
imported here: values are shown as the SDK's own JSON, errors by the name of the SDK's class.
"""

from __future__ import annotations

import asyncio
import json
import sys
import traceback
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httpx
from a2a.client import A2ACardResolver, Client, ClientConfig, ClientFactory
from a2a.types import (
    AgentCard,
    CancelTaskRequest,
    GetTaskRequest,
    ListTasksRequest,
    Message,
    Part,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    StreamResponse,
    SubscribeToTaskRequest,
    Task,
    TaskPushNotificationConfig,
    TaskState,
)
from a2a.utils.errors import A2AError
from google.protobuf.json_format import MessageToDict

SCENARIO_LIMIT_S = 60.0
READ_LIMIT_S = 30.0  # the SDK takes httpx's default of 5 s, which a busy machine can exceed
BIG_ROWS = 3_000_000  # seconds of work for the agent, so that a cancel or a break always comes before its end

SALES = b"name,amount\nAda,10\nGrace,2.5\nEdsger,10\n"
BIG = b"n\n" + b"1\n" * BIG_ROWS


class Caller:
    """The SDK's clients for one agent and binding: streaming, waiting for the end, and returning at once."""

    def __init__(self, card: AgentCard, binding: str, http: httpx.AsyncClient) -> None:
        self.card = card

        def client(streaming: bool, polling: bool = False) -> Client:
            config = ClientConfig(streaming, polling, http, None, [binding], use_client_preference=True)
            return ClientFactory(config).create(card)

        self.streaming = client(streaming=True)
        self.waiting = client(streaming=False)
        self.immediate = client(streaming=False, polling=True)

    async def send(self, *content: str | bytes | Part, client: Client | None = None, **fields: Any) -> Task:
        """Send a message without streaming; the task in the answer."""
        (answer,) = [event async for event in (client or self.waiting).send_message(request(*content, **fields))]
        assert answer.HasField("task"), answer
        return answer.task

    def stream(self, *content: str | bytes | Part, **fields: Any) -> AsyncIterator[StreamResponse]:
        return self.streaming.send_message(request(*content, **fields))

    async def get(self, task_id: str, **fields: Any) -> Task:
        return await self.waiting.get_task(GetTaskRequest(id=task_id, **fields))


def request(*content: str | bytes | Part, **fields: Any) -> SendMessageRequest:
    parts = [part(item) for item in content]
    configuration = fields.pop("configuration", None)
    message = Message(message_id=str(uuid.uuid4()), role=Role.ROLE_USER, parts=parts, **fields)
    return SendMessageRequest(message=message, configuration=configuration)


def part(content: str | bytes | Part) -> Part:
    if isinstance(content, Part):
        return content
    if isinstance(content, str):
        return Part(text=content)
    return Part(raw=content, filename="table.csv", media_type="text/csv")


def shown(value: Any) -> Any:
    return MessageToDict(value)


async def error_of(call: Awaitable[Any] | AsyncIterator[Any]) -> dict[str, Any]:
    """The error that a call ends with, by name and words; the answer when it ends with none."""
    try:
        if isinstance(call, AsyncIterator):
            return {"error": None, "answer": [shown(event) async for event in call]}
        return {"error": None, "answer": shown(await call)}
    except A2AError as error:
        return {"error": type(error).__name__, "words": str(error)}


# --- scenarios --------------------------------------------------------------------------------------------------------


async def card(caller: Caller) -> Any:
    return shown(caller.card)


async def file_and_column(caller: Caller) -> Any:
    return shown(await caller.send("Summarize the amount", SALES))


async def pasted_table(caller: Caller) -> Any:
    return shown(await caller.send("amount", SALES.decode()))


async def question_and_answer(caller: Caller) -> Any:
    asked = await caller.send(SALES)
    answered = await caller.send("amount", task_id=asked.id, context_id=asked.context_id)
    return [shown(asked), shown(answered)]


async def answer_by_task_id_alone(caller: Caller) -> Any:
    asked = await caller.send(SALES)
    return [shown(asked), shown(await caller.send("amount", task_id=asked.id))]


async def answer_with_a_foreign_context(caller: Caller) -> Any:
    asked = await caller.send(SALES)
    refusal = await error_of(caller.send("amount", task_id=asked.id, context_id="another"))
    return [refusal, shown(await caller.get(asked.id))]


async def stream(caller: Caller) -> Any:
    rows = b"n\n" + b"".join(b"%d\n" % number for number in range(20_000))
    return [shown(event) async for event in caller.stream("n", rows)]


async def streamed_question(caller: Caller) -> Any:
    first = [event async for event in caller.stream(SALES)]
    asked = first[0].task
    second = [event async for event in caller.stream("amount", task_id=asked.id, context_id=asked.context_id)]
    return [[shown(event) for event in first], [shown(event) for event in second]]


async def cancel_at_the_question(caller: Caller) -> Any:
    asked = await caller.send(SALES)
    canceled = await caller.waiting.cancel_task(CancelTaskRequest(id=asked.id))
    return [shown(canceled), shown(await caller.get(asked.id))]


async def cancel_at_work(caller: Caller) -> Any:
    seen: list[Any] = []
    answer: Any = None
    async for event in caller.stream("n", BIG):
        seen.append(shown(event))
        if answer is None and "Read 10,000 rows" in words_of(event):
            answer = shown(await caller.waiting.cancel_task(CancelTaskRequest(id=event.status_update.task_id)))
    return [answer, seen]


async def subscribe_after_a_break(caller: Caller) -> Any:
    """Go away in the middle of a stream, come back, and follow the task to its end."""
    before: list[Any] = []
    task_id = ""
    broken = caller.stream("n", BIG)
    async for event in broken:
        before.append(shown(event))
        task_id = event.task.id or event.status_update.task_id
        if "Read 10,000 rows" in words_of(event):
            break
    await broken.aclose()  # type: ignore[attr-defined]
    after: list[Any] = []
    async for event in caller.streaming.subscribe(SubscribeToTaskRequest(id=task_id)):
        after.append(shown(event))
        if len(after) == 3:  # the news goes on; enough of it
            await caller.waiting.cancel_task(CancelTaskRequest(id=task_id))
    return [before, after]


async def subscribe_to_a_question(caller: Caller) -> Any:
    """A subscription begins with the task, stays open while it waits, and ends with it."""
    asked = await caller.send(SALES)
    seen: list[Any] = []
    answer = None
    async for event in caller.streaming.subscribe(SubscribeToTaskRequest(id=asked.id)):
        seen.append(shown(event))
        if answer is None:
            answer = asyncio.ensure_future(caller.send("amount", task_id=asked.id, context_id=asked.context_id))
    assert answer is not None
    return [shown(await answer), seen]


async def listing(caller: Caller) -> Any:
    context_id = str(uuid.uuid4())
    finished = [await caller.send("amount", SALES, context_id=context_id) for _ in range(2)]
    waiting = await caller.send(SALES, context_id=context_id)

    async def page(**fields: Any) -> Any:
        return shown(await caller.waiting.list_tasks(ListTasksRequest(context_id=context_id, **fields)))

    first = await page(page_size=2)
    return {
        "sent": [*(task.id for task in finished), waiting.id],
        "first": first,
        "second": await page(page_size=2, page_token=first["nextPageToken"]),
        "waiting": await page(status=TaskState.TASK_STATE_INPUT_REQUIRED),
        "with artifacts": await page(include_artifacts=True, history_length=0),
    }


async def return_immediately(caller: Caller) -> Any:
    told = await caller.send(SALES, client=caller.immediate)
    async for event in caller.streaming.subscribe(SubscribeToTaskRequest(id=told.id)):
        state = event.task.status.state or event.status_update.status.state
        if state == TaskState.TASK_STATE_INPUT_REQUIRED:
            break
    at_work = await caller.send("n", BIG, client=caller.immediate)
    canceled = await caller.waiting.cancel_task(CancelTaskRequest(id=at_work.id))
    return [shown(told), shown(await caller.get(told.id)), shown(at_work), shown(canceled)]


async def history(caller: Caller) -> Any:
    asked = await caller.send(SALES)
    done = await caller.send("amount", task_id=asked.id, context_id=asked.context_id)
    lengths = {length: shown(await caller.get(done.id, history_length=length)) for length in (0, 1, 100)}
    none = await caller.send("amount", SALES, configuration=SendMessageConfiguration(history_length=0))
    return {**lengths, "all": shown(await caller.get(done.id)), "sent with 0": shown(none)}


async def errors(caller: Caller) -> Any:
    finished = (await caller.send("amount", SALES)).id
    streaming, waiting = caller.streaming, caller.waiting
    image = Part(raw=b"GIF89a", filename="a.gif", media_type="image/gif")
    push = TaskPushNotificationConfig(task_id=finished, id="1", url="https://example.com/hook")
    return {
        "get unknown": await error_of(caller.get("no-such-task")),
        "cancel unknown": await error_of(waiting.cancel_task(CancelTaskRequest(id="no-such-task"))),
        "subscribe unknown": await error_of(streaming.subscribe(SubscribeToTaskRequest(id="no-such-task"))),
        "send unknown": await error_of(caller.send("amount", task_id="no-such-task")),
        "stream unknown": await error_of(caller.stream("amount", task_id="no-such-task")),
        "cancel finished": await error_of(waiting.cancel_task(CancelTaskRequest(id=finished))),
        "subscribe finished": await error_of(streaming.subscribe(SubscribeToTaskRequest(id=finished))),
        "send finished": await error_of(caller.send("amount", task_id=finished)),
        "stream finished": await error_of(caller.stream("amount", task_id=finished)),
        "media type": await error_of(caller.send("n", image)),
        "no parts": await error_of(caller.send()),
        "page size": await error_of(waiting.list_tasks(ListTasksRequest(page_size=1000))),
        "page token": await error_of(waiting.list_tasks(ListTasksRequest(page_token="nonsense"))),
        "history length": await error_of(caller.get(finished, history_length=-1)),
        "push": await error_of(waiting.create_task_push_notification_config(push)),
    }


async def rejection(caller: Caller) -> Any:
    return shown(await caller.send("amount"))


async def unicode(caller: Caller) -> Any:
    table = "名前,金額 💴\nあだ,5\n🦊,7\n".encode()
    file = Part(raw=table, filename="売上 №1.csv", media_type="text/csv")
    return shown(await caller.send("金額 💴 は", file)), shown(await caller.send("名前", file))


async def large_integers(caller: Caller) -> Any:
    return shown(await caller.send("n", b"n\n9007199254740993\n9007199254740995\n"))


async def large_file(caller: Caller) -> Any:
    task = await caller.send("n", b"n\n" + b"1\n" * 500_000)
    return [shown(task), shown(await caller.get(task.id))]


SCENARIOS: tuple[Callable[[Caller], Awaitable[Any]], ...] = (
    card,
    file_and_column,
    pasted_table,
    question_and_answer,
    answer_by_task_id_alone,
    answer_with_a_foreign_context,
    stream,
    streamed_question,
    cancel_at_the_question,
    cancel_at_work,
    subscribe_after_a_break,
    subscribe_to_a_question,
    listing,
    return_immediately,
    history,
    errors,
    rejection,
    unicode,
    large_integers,
    large_file,
)


def words_of(event: StreamResponse) -> str:
    status = event.task.status if event.HasField("task") else event.status_update.status
    return "\n".join(one.text for one in status.message.parts)


async def main(url: str, binding: str) -> dict[str, Any]:
    report: dict[str, Any] = {}
    async with httpx.AsyncClient(timeout=READ_LIMIT_S) as http:
        caller = Caller(await A2ACardResolver(http, url).get_agent_card(), binding, http)
        for scenario in SCENARIOS:
            try:
                async with asyncio.timeout(SCENARIO_LIMIT_S):
                    report[scenario.__name__] = await scenario(caller)
            except Exception:  # one scenario's end is not that of the others
                report[scenario.__name__] = {"failed": traceback.format_exc()}
    return report


if __name__ == "__main__":
    json.dump(asyncio.run(main(sys.argv[1], sys.argv[2])), sys.stdout)
