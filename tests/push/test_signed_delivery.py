"""Signed notifications from a server's private key to a receiver that has read the public one."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import aiohttp
from joserfc.jwk import ECKey

import tieline
from tests.push.agents import EVENTS
from tests.push.test_processes import AGENTS, run, served
from tieline import Task, TaskPushNotificationConfig, WebhookReceiver
from tieline.engine.signer import Signer


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def key_in(folder: Path, name: str) -> Path:
    path = folder / name
    path.touch(0o600)
    path.write_bytes(ECKey.generate_key("P-256").as_pem(private=True))
    return path


async def posted(url: str, body: bytes, signature: str, key: str) -> int:
    headers = {"Content-Type": "application/a2a+json", "Authorization": f"Bearer {signature}", "Idempotency-Key": key}
    async with aiohttp.ClientSession() as session, session.post(url, data=body, headers=headers) as answer:
        return answer.status


@run
async def test_signed_notifications_are_taken_and_forged_and_replayed_ones_are_not(tmp_path: Path) -> None:
    port = free_port()
    issuer = f"http://127.0.0.1:{port}"
    pushes, signs, other = (key_in(tmp_path, name) for name in ("push.pem", "card.pem", "other.pem"))
    options = ("--push", "--push-loopback", "--push-key", str(pushes), "--card-key", str(signs))
    store = f"sqlite:{tmp_path / 'tasks.db'}"
    arguments = (f"{AGENTS}:counter", "--store", store, "--public-url", issuer, "--port", str(port), *options)
    at = free_port()
    origin = f"http://127.0.0.1:{at}"
    receiver = WebhookReceiver(jwks=f"{issuer}/.well-known/jwks.json", audience=origin, issuer=issuer)
    async with served(*arguments), receiver.listening(port=at) as url:
        async with aiohttp.ClientSession() as session, session.get(f"{issuer}/.well-known/jwks.json") as answer:
            keys = (await answer.json())["keys"]
        assert len(keys) == 2
        assert not any("d" in key for key in keys)
        heard: list[Any] = []
        async with tieline.connect(issuer) as peer:
            task = await peer.send("count", webhook=TaskPushNotificationConfig(url), return_immediately=True)
            assert isinstance(task, Task)
            async for notification in receiver:
                heard.append(notification)
                status = getattr(notification.event, "status", None)
                if status is not None and status.state.terminal:
                    break
        assert len(heard) == 2 * EVENTS + 3  # made, at work, and its end
        assert {one.task_id for one in heard} == {task.id}

        body = b'{"statusUpdate":{"taskId":"t","contextId":"c","status":{"state":"TASK_STATE_WORKING"}}}'
        ours = Signer.from_file(pushes, issuer)
        signed = ours.sign(body, url=url, task_id="t", key='"t/x/1"')
        forged = Signer.from_file(other, issuer).sign(body, url=url, task_id="t", key='"t/x/2"')
        elsewhere = ours.sign(body, url="http://127.0.0.1:1/", task_id="t", key='"t/x/3"')
        assert await posted(url, body, forged, '"t/x/2"') == 401
        assert await posted(url, body, elsewhere, '"t/x/3"') == 403
        assert await posted(url, body.replace(b"WORKING", b"COMPLETED"), signed, '"t/x/1"') == 403
        taken: list[Any] = []

        async def take() -> None:
            taken.append(await anext(receiver))

        taking = asyncio.ensure_future(take())
        assert await posted(url, body, signed, '"t/x/1"') == 200
        await taking
        assert await posted(url, body, signed, '"t/x/1"') == 200
        assert await posted(url, body, signed, '"t/x/another"') == 200
        assert len(taken) == 1
        assert not receiver._waiting, "what was taken before is acknowledged and dropped"
