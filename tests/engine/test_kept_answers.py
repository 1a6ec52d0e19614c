"""Direct Messages that the store has to keep before they are told, and a store that fails over one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.engine.scene import CALLER, in_loop
from tests.replicas.scene import send
from tests.stores.wrapped import WrappedStore
from tieline import Turn, agent
from tieline.engine.service import Service
from tieline.errors import InternalError
from tieline.stores.base import StoreError
from tieline.types import Message


class Forgetful(WrappedStore):
    """Keeps no answer while it `fails`, and says so a moment later."""

    fails = True

    def replied(self, key: bytes, reply: bytes) -> asyncio.Future[Any] | None:
        told: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(self._tell, told, key, reply)
        return told

    def _tell(self, told: asyncio.Future[None], key: bytes, reply: bytes) -> None:
        if self.fails:
            told.set_exception(StoreError("the disk is full"))
        else:
            self.inner.replied(key, reply)
            told.set_result(None)


@in_loop
async def test_an_answer_that_could_not_be_kept_is_an_error_and_the_message_is_begun_when_it_comes_again() -> None:
    runs: list[str] = []

    @agent(name="Replies")
    async def replies(turn: Turn) -> Any:
        runs.append(turn.text)
        return turn.reply(f"reply {len(runs)}")

    store = Forgetful()
    service = Service(replies, store)
    await service.start()
    for _ in range(2):
        with pytest.raises(InternalError, match="could not be stored"):
            await service.send_message(send("go", id_="m-1"), CALLER)
    store.fails = False
    answer = (await service.send_message(send("go", id_="m-1"), CALLER)).value
    assert isinstance(answer, Message)
    assert answer.text == "reply 3"
    assert (await service.send_message(send("go", id_="m-1"), CALLER)).value == answer
    assert runs == ["go"] * 3
    await service.close()
