# mypy: ignore-errors
# (fasta2a is not installed where the type checker runs)
"""The puppet (puppet.py) on the server of fasta2a 2.1.1.

    python fasta2a_server.py PORT GRPC_PORT

It has JSON-RPC only; the port of gRPC is there to be called like the others. A worker takes one task at a time, so
several run. The library has no Message as an answer: a task with the words is given.
"""

from __future__ import annotations

import asyncio
import sys
import uuid
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import uvicorn
from fasta2a import FastA2A, Worker
from fasta2a.broker import InMemoryBroker
from fasta2a.storage import InMemoryStorage

from tests.interop.peers.puppet import DESCRIPTION, NAME, SKILL, Puppet, Stage

WORKERS = 8


class FastStage(Stage):
    def __init__(self, worker: PuppetWorker, params: Any) -> None:
        self.worker = worker
        self.ids = (params["id"], params["context_id"])
        self.parts = [given(part) for part in params["message"]["parts"]]
        self.chunks: dict[str, list[Any]] = {}

    async def reply(self, text: str) -> None:
        await self.artifact("reply", [{"text": text}])
        await self.status("COMPLETED")

    async def begin(self) -> None:
        return  # the library has made the task before it calls a worker

    async def status(self, state: str, words: str = "") -> None:
        state = state.lower().replace("_", "-")
        message = None
        if words:
            message = {"role": "agent", "message_id": str(uuid.uuid4()), "parts": [{"text": words}]}
        task = await self.worker.storage.load_task(self.ids[0])
        if task["status"]["state"] == "canceled":
            raise asyncio.CancelledError
        # The library keeps no words in a stored status; its own agents put them there by the history.
        task = await self.worker.storage.update_task(self.ids[0], state, new_messages=[message] if message else None)
        if message:
            task["status"]["message"] = message
        if state not in ("completed", "failed", "rejected", "input-required"):
            await self.worker.publish_status(*self.ids, state, message)

    async def artifact(
        self, name: str, parts: list[dict[str, Any]], *, append: bool = False, last: bool = True
    ) -> None:
        content = [part_of(part) for part in parts]
        artifact = {"artifact_id": name, "name": name, "parts": content}
        await self.worker.publish_artifact(*self.ids, artifact, append=append, last_chunk=last)
        kept = self.chunks.setdefault(name, [])
        kept += content
        if last:
            whole = {"artifact_id": name, "name": name, "parts": kept}
            await self.worker.storage.update_task(self.ids[0], "working", new_artifacts=[whole])


def given(part: Any) -> dict[str, Any]:
    names = {"filename": "name", "media_type": "type"}
    return {names.get(key, key): value for key, value in part.items()}


def part_of(part: dict[str, Any]) -> dict[str, Any]:
    names = {"name": "filename", "type": "media_type"}
    return {names.get(key, key): value for key, value in part.items() if value is not None}


class PuppetWorker(Worker[Any]):
    puppet = Puppet()
    running: dict[str, asyncio.Task[None]] = {}

    async def run_task(self, params: Any) -> None:
        work = asyncio.ensure_future(self.puppet.run(FastStage(self, params)))
        self.running[params["id"]] = work
        await asyncio.wait([work])
        del self.running[params["id"]]
        if not work.cancelled() and work.exception():
            raise work.exception()

    async def cancel_task(self, params: Any) -> None:
        if work := self.running.get(params["id"]):
            await self.storage.update_task(params["id"], "canceled")
            work.cancel()

    def build_message_history(self, history: list[Any]) -> list[Any]:
        return history

    def build_artifacts(self, result: Any) -> list[Any]:
        return []


def main(port: int) -> None:
    storage, broker = InMemoryStorage(), InMemoryBroker()

    @asynccontextmanager
    async def lifespan(app: FastA2A) -> Any:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(app.task_manager)
            for _ in range(WORKERS):
                await stack.enter_async_context(PuppetWorker(broker=broker, storage=storage).run())
            yield

    modes = ["text/plain"]
    skill = {"id": SKILL, "name": NAME, "description": DESCRIPTION, "tags": ["test"]}
    app = FastA2A(
        storage=storage,
        broker=broker,
        name=NAME,
        description=DESCRIPTION,
        url=f"http://127.0.0.1:{port}",
        skills=[{**skill, "input_modes": modes, "output_modes": modes}],
        default_input_modes=modes,
        default_output_modes=modes,
        lifespan=lifespan,
    )
    uvicorn.run(app, host="127.0.0.1", port=port, timeout_graceful_shutdown=1, log_level="warning")


if __name__ == "__main__":
    main(int(sys.argv[1]))
