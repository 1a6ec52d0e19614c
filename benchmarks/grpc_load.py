"""Calls of gRPC under load, as a process of its own.

    python -m benchmarks.grpc_load HOST:PORT PID message|task|stream AT_ONCE SECONDS

Each of AT_ONCE callers makes one call after the other. As cheap as grpcio lets a caller be: requests are bytes, made
before but for the message id, and answers are looked through as the bytes they are. Before and after the load a few
answers are read and checked in full.

Prints a JSON object: answers a second; `busy`, the part of the time in which this process had the processor; and
`server_busy`, the same for the process PID, the server.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
import time
from typing import Any

import grpc
from a2a.types import Message, Part, Role, SendMessageRequest, SendMessageResponse, StreamResponse, Task, TaskState

from benchmarks.raw import WrongAnswer, require
from benchmarks.servers import processor_s

CHANNELS = 4  # connections
DEADLINE_S = 60.0  # for any one call
CHUNKS = 10
METADATA = (("a2a-version", "1.0"),)
SERVICE = "/lf.a2a.v1.A2AService/"
WANTED = {"message": (b"msg hello",), "task": (b"task hello", b"response")}
_numbers = itertools.count(1)


def message_id() -> bytes:
    return b"00000000-0000-4000-a000-%012d" % next(_numbers)


def request(text: str) -> tuple[bytes, bytes]:
    """The request for an echo of `text`, as what stands before and behind its message id."""
    placeholder = "@" * len(message_id())
    message = Message(message_id=placeholder, role=Role.ROLE_USER, parts=[Part(text=text)])
    before, _, behind = SendMessageRequest(message=message).SerializeToString().partition(placeholder.encode())
    return before, behind


async def check(channel: grpc.aio.Channel) -> None:
    """A message, two tasks and a stream are what the benchmark asks for."""
    send = channel.unary_unary(SERVICE + "SendMessage", response_deserializer=SendMessageResponse.FromString)
    stream = channel.unary_stream(SERVICE + "SendStreamingMessage", response_deserializer=StreamResponse.FromString)

    def asked(text: str) -> bytes:
        return message_id().join(request(text))

    for number in range(3):
        text = f"msg {number}"
        answer = await send(asked(text), metadata=METADATA, timeout=DEADLINE_S)
        require(answer.WhichOneof("payload") == "message", "Not a Message", answer)
        require(answer.message.role == Role.ROLE_AGENT, "Not of the agent", answer)
        require([part.text for part in answer.message.parts] == [text], "Not the text that was sent", answer)

    tasks: list[Task] = []
    for number in range(2):
        text = f"task {number}"
        answer = await send(asked(text), metadata=METADATA, timeout=DEADLINE_S)
        require(answer.WhichOneof("payload") == "task", "Not a Task", answer)
        tasks.append(answer.task)
        require(answer.task.status.state == TaskState.TASK_STATE_COMPLETED, "Not completed", answer)
        texts = [part.text for artifact in answer.task.artifacts for part in artifact.parts]
        require(texts == [text], "Not the text that was sent", answer)
        require(bool(answer.task.id and answer.task.context_id), "No ids", answer)
    require(tasks[0].id != tasks[1].id, "One task for two messages", tasks)

    events = [event async for event in stream(asked("stream"), metadata=METADATA, timeout=DEADLINE_S)]
    kinds = [event.WhichOneof("payload") for event in events]
    expected = ["task", "status_update", *["artifact_update"] * CHUNKS, "status_update"]
    require(kinds == expected, f"Not the {CHUNKS + 3} events of the stream", kinds)
    require(events[-1].status_update.status.state == TaskState.TASK_STATE_COMPLETED, "Not completed", events[-1])
    texts = [part.text for event in events[2:-1] for part in event.artifact_update.artifact.parts]
    require(texts == [f"chunk {number} of the answer" for number in range(CHUNKS)], "Not the chunks", texts)
    appends = [event.artifact_update.append for event in events[2:-1]]
    require(appends == [False, *[True] * (CHUNKS - 1)], "Not appended to the first chunk", appends)


async def load(target: str, pid: int, kind: str, at_once: int, seconds: float) -> dict[str, float]:
    options = [("grpc.use_local_subchannel_pool", 1)]  # or all channels would share one connection
    channels = [grpc.aio.insecure_channel(target, options=options) for _ in range(CHANNELS)]
    await check(channels[0])
    before, behind = request(f"{'msg' if kind == 'message' else kind} hello")
    ends = time.perf_counter() + seconds
    calls = 0

    async def answers(call: Any) -> None:
        nonlocal calls
        while time.perf_counter() < ends:
            answer = await call(before + message_id() + behind, metadata=METADATA, timeout=DEADLINE_S)
            for text in WANTED[kind]:
                if text not in answer:
                    raise WrongAnswer(repr(answer[:400]))
            calls += 1

    async def streams(call: Any) -> None:
        nonlocal calls
        while time.perf_counter() < ends:
            chunks = events = 0
            async for event in call(before + message_id() + behind, metadata=METADATA, timeout=DEADLINE_S):
                events += 1
                chunks += b" of the answer" in event
            if (events, chunks) != (CHUNKS + 3, CHUNKS):
                raise WrongAnswer(f"{events} events, {chunks} of them chunks")
            calls += 1

    started = time.perf_counter()
    own, servers = time.process_time(), processor_s(pid)
    async with asyncio.TaskGroup() as group:
        for number in range(at_once):
            channel = channels[number % CHANNELS]
            if kind == "stream":
                group.create_task(streams(channel.unary_stream(SERVICE + "SendStreamingMessage")))
            else:
                group.create_task(answers(channel.unary_unary(SERVICE + "SendMessage")))
    took = time.perf_counter() - started
    found = {
        "a_second": calls / took,
        "busy": (time.process_time() - own) / took,
        "server_busy": (processor_s(pid) - servers) / took,
    }
    await check(channels[-1])
    for channel in channels:
        await channel.close()
    return found


if __name__ == "__main__":
    _, target, pid, kind, at_once, seconds = sys.argv
    print(json.dumps(asyncio.run(load(target, int(pid), kind, int(at_once), float(seconds)))))
