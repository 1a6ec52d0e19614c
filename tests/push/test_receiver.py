"""A webhook for programs, on a real socket: who may send, what is read, and when a sender hears that it was taken."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from joserfc import jwk, jwt

from tests.push.official import official_server
from tests.push.receiving import receiver as byte_server
from tests.server.raw import in_loop, serve
from tieline import (
    AuthenticationInfo,
    Message,
    Notification,
    Task,
    TaskArtifactUpdateEvent,
    TaskPushNotificationConfig,
    TaskState,
    TaskStatusUpdateEvent,
    WebhookReceiver,
    connect,
)
from tieline.engine.guard import Guard
from tieline.engine.notification import idempotency_key, notification_headers
from tieline.engine.sender import Sender
from tieline.engine.signer import Signer

JSON = {"Content-Type": "application/a2a+json"}
EVENT = {"statusUpdate": {"taskId": "t", "contextId": "c", "status": {"state": "TASK_STATE_COMPLETED"}}}


def with_key(key: str) -> dict[str, str]:
    return {**JSON, "Idempotency-Key": f'"{key}"'}


class Hook:
    """A webhook at work, and what is sent to it."""

    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self.url = url
        self.session = session

    async def post(self, body: Any = EVENT, headers: Mapping[str, str] = JSON) -> int:
        return (await self.answer(body, headers))[0]

    async def answer(self, body: Any = EVENT, headers: Mapping[str, str] = JSON) -> tuple[int, str, Mapping[str, str]]:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        async with self.session.post(self.url, data=data, headers=headers) as response:
            return response.status, await response.text(), response.headers


@asynccontextmanager
async def hook(receiver: WebhookReceiver) -> AsyncGenerator[Hook, None]:
    async with serve(receiver) as port, aiohttp.ClientSession(auto_decompress=False) as session:
        yield Hook(f"http://127.0.0.1:{port}/hook", session)


@contextlib.contextmanager
def taking(receiver: WebhookReceiver) -> Iterator[list[Notification]]:
    """Take all that comes until the block ends."""
    taken: list[Notification] = []

    async def take() -> None:
        while True:
            taken.append(await anext(receiver))

    task = asyncio.create_task(take())
    try:
        yield taken
    finally:
        task.cancel()


# --- what is read -----------------------------------------------------------------------------------------------------

X = {"text": "x"}
DONE = {"state": "completed"}
FORMS: list[tuple[str, dict[str, Any], str, type, str | None]] = [
    ("event of 1.0", EVENT, "1.0", TaskStatusUpdateEvent, "t"),
    ("task of 1.0", {"task": {"id": "t", "status": {"state": "TASK_STATE_COMPLETED"}}}, "1.0", Task, "t"),
    (
        "artifact of 1.0",
        {"artifactUpdate": {"taskId": "t", "contextId": "c", "artifact": {"artifactId": "a", "parts": [X]}}},
        "1.0",
        TaskArtifactUpdateEvent,
        "t",
    ),
    ("message of 1.0", {"message": {"messageId": "m", "role": "ROLE_AGENT", "parts": [X]}}, "1.0", Message, None),
    (
        "protobuf's own names",
        {"status_update": {"task_id": "t", "context_id": "c", "status": {"state": "TASK_STATE_COMPLETED"}}},
        "1.0",
        TaskStatusUpdateEvent,
        "t",
    ),
    ("task of 0.3", {"kind": "task", "id": "t", "contextId": "c", "status": {"state": "completed"}}, "0.3", Task, "t"),
    (
        "event of 0.3",
        {"kind": "status-update", "taskId": "t", "contextId": "c", "status": {"state": "completed"}, "final": True},
        "0.3",
        TaskStatusUpdateEvent,
        "t",
    ),
    (
        "event of 0.3 over REST",
        {"statusUpdate": {"taskId": "t", "contextId": "c", "status": {"state": "TASK_STATE_COMPLETED"}, "final": True}},
        "0.3",
        TaskStatusUpdateEvent,
        "t",
    ),
    ("task of 0.3 without its kind", {"id": "t", "contextId": "c", "status": {"state": "completed"}}, "0.3", Task, "t"),
    (
        "task of 0.3 in a JSON-RPC response",
        {"jsonrpc": "2.0", "id": 1, "result": {"kind": "task", "id": "t", "contextId": "c", "status": DONE}},
        "0.3",
        Task,
        "t",
    ),
    ("task of 0.1", {"id": "t", "sessionId": "c", "status": {"state": "completed"}}, "0.1", Task, "t"),
    ("event of 0.1", {"id": "t", "status": {"state": "completed"}, "final": True}, "0.1", TaskStatusUpdateEvent, "t"),
]


@pytest.mark.parametrize(
    ("body", "dialect", "kind", "task_id"), [row[1:] for row in FORMS], ids=[row[0] for row in FORMS]
)
@in_loop
async def test_notification_of_every_dialect_is_read(
    body: dict[str, Any], dialect: str, kind: type, task_id: str | None
) -> None:
    receiver = WebhookReceiver(anyone=True)
    async with hook(receiver) as at:
        with taking(receiver) as taken:
            assert await at.post(body, {"Content-Type": "application/json; charset=utf-8"}) == 200
        (notification,) = taken
        assert (notification.dialect, type(notification.event), notification.task_id) == (dialect, kind, task_id)
        if isinstance(notification.event, (Task, TaskStatusUpdateEvent)):
            assert notification.event.status.state is TaskState.COMPLETED


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"{", JSON, 400),
        (b"\xff", JSON, 400),
        (b"", JSON, 400),
        (b"[]", JSON, 400),
        (b"{}", JSON, 400),
        (b'{"event":"ping"}', JSON, 400),
        (b'{"task":{"id":1}}', JSON, 400),
        (b"[" * 10_000 + b"]" * 10_000, JSON, 400),
        (b"{}", {"Content-Type": "text/plain"}, 415),
        (b"{}", {**JSON, "Content-Encoding": "gzip"}, 415),
        (b" " * 2_000, JSON, 413),
    ],
)
@in_loop
async def test_what_is_no_notification_is_refused_and_given_to_nobody(
    body: bytes, headers: dict[str, str], status: int
) -> None:
    receiver = WebhookReceiver(anyone=True, max_body_bytes=1_000 if status == 413 else 100_000)
    async with hook(receiver) as at:
        with taking(receiver) as taken:
            told, sentence, _ = await at.answer(body, headers)
            assert told == status
            assert json.loads(sentence)["error"]
        assert taken == []


@in_loop
async def test_body_without_a_length_or_a_type_is_refused_in_time() -> None:
    receiver = WebhookReceiver(anyone=True, max_body_bytes=1_000)

    async def endless() -> AsyncGenerator[bytes, None]:
        for _ in range(100):
            yield b" " * 100

    async with hook(receiver) as at:
        async with at.session.post(at.url, data=endless(), headers=JSON) as response:
            assert response.status == 413
        async with at.session.post(at.url, data=b"{}", skip_auto_headers=["Content-Type"]) as response:
            assert response.status == 415
        async with at.session.get(at.url) as response:
            assert (response.status, response.headers["Allow"]) == (405, "POST")


# --- who may send -----------------------------------------------------------------------------------------------------

RIGHT: list[tuple[dict[str, Any], dict[str, str]]] = [
    ({"token": "tok"}, {"X-A2A-Notification-Token": "tok"}),
    ({"token": "tok"}, {"A2A-Notification-Token": "tok"}),
    ({"token": "tok"}, {"Authorization": "Bearer tok"}),
    ({"token": ["old", "tok"]}, {"X-A2A-Notification-Token": "tok"}),
    ({"bearer": "abc"}, {"Authorization": "Bearer abc"}),
    ({"bearer": "abc"}, {"Authorization": "bearer abc"}),
    ({"bearer": ["abc", "def"]}, {"Authorization": "Bearer def"}),
    ({"basic": ("u", "p:q")}, {"Authorization": "Basic dTpwOnE="}),
    ({"token": "tok", "bearer": "abc"}, {"Authorization": "Bearer abc", "X-A2A-Notification-Token": "tok"}),
]
WRONG: list[tuple[dict[str, Any], dict[str, str]]] = [
    ({"token": "tok"}, {}),
    ({"token": "tok"}, {"X-A2A-Notification-Token": "tok2"}),
    ({"token": "tok"}, {"X-A2A-Notification-Token": ""}),
    ({"token": "tok"}, {"Authorization": "Basic tok"}),
    ({"token": "tok"}, {"X-A2A-Notification-Token": "no", "Authorization": "Bearer tok"}),
    ({"bearer": "abc"}, {}),
    ({"bearer": "abc"}, {"Authorization": "Bearer"}),
    ({"bearer": "abc"}, {"Authorization": "Bearer abd"}),
    ({"bearer": "abc"}, {"Authorization": "Basic abc"}),
    ({"bearer": "abc"}, {"X-A2A-Notification-Token": "abc"}),
    ({"basic": ("u", "p")}, {"Authorization": "Basic dTpx"}),
    ({"basic": ("u", "p")}, {"Authorization": "Basic ***"}),
    ({"basic": ("u", "p")}, {"Authorization": "Bearer dTpw"}),
    ({"token": "tok", "bearer": "abc"}, {"Authorization": "Bearer abc"}),
    ({"token": "tok", "bearer": "abc"}, {"Authorization": "Bearer abd", "X-A2A-Notification-Token": "tok"}),
]


@pytest.mark.parametrize(("asked", "shown"), RIGHT)
@in_loop
async def test_sender_with_the_right_credentials_is_heard_and_they_are_not_told_on(
    asked: dict[str, Any], shown: dict[str, str]
) -> None:
    receiver = WebhookReceiver(**asked)
    async with hook(receiver) as at:
        with taking(receiver) as taken:
            assert await at.post(headers={**JSON, **shown, "Cookie": "tok", "X-Other": "1"}) == 200
        (notification,) = taken
        assert notification.headers["x-other"] == "1"
        for secret in ("tok", "abc", "dTp"):
            assert secret not in repr(notification)


@pytest.mark.parametrize(("asked", "shown"), WRONG)
@pytest.mark.requirement("push.receiver-verifies-source")
@in_loop
async def test_sender_with_other_credentials_is_refused_with_a_challenge(
    asked: dict[str, Any], shown: dict[str, str]
) -> None:
    receiver = WebhookReceiver(**asked)
    async with hook(receiver) as at:
        with taking(receiver) as taken:
            status, sentence, headers = await at.answer(b"not even JSON", {**JSON, **shown})
        assert status == 401
        assert headers["WWW-Authenticate"].startswith("Basic" if "basic" in asked else "Bearer")
        assert not {"tok", "abc"} & set(sentence.replace('"', " ").split())
        assert taken == []


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"anyone": True, "token": "tok"},
        {"bearer": "a", "basic": ("u", "p")},
        {"token": ""},
        {"token": []},
        {"bearer": ["a", ""]},
        {"token": "tok", "audience": "https://me.example"},
        {"jwks": {"keys": []}},
        {"jwks": {"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}},
        {"jwks": "http://agents.example/jwks.json"},
        {"jwks": "file:///etc/passwd"},
    ],
)
def test_receiver_that_would_trust_nobody_or_anybody_by_mistake_is_not_made(asked: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        WebhookReceiver(**asked)


@pytest.mark.requirement("push.receiver-checks-task")
@in_loop
async def test_notification_for_a_task_that_nobody_expects_is_forbidden() -> None:
    receiver = WebhookReceiver(token="tok", expects=lambda task_id: task_id == "mine")
    async with hook(receiver) as at:
        with taking(receiver) as taken:
            shown = {**JSON, "X-A2A-Notification-Token": "tok"}
            assert await at.post(headers=shown) == 403
            mine = {"task": {"id": "mine", "status": {"state": "TASK_STATE_WORKING"}}}
            assert await at.post(mine, shown) == 200
        assert [notification.task_id for notification in taken] == ["mine"]


# --- signatures -------------------------------------------------------------------------------------------------------

AUDIENCE = "https://me.example"
BODY = json.dumps(EVENT).encode()


@pytest.fixture
def signer(tmp_path: Path) -> Signer:
    return signer_in(tmp_path, "1")


def signer_in(folder: Path, name: str) -> Signer:
    key = jwk.generate_key("EC", "P-256", parameters={"kid": name})
    path = folder / name
    path.write_text(json.dumps(key.as_dict(private=True)))
    return Signer.from_file(path, "https://agents.example")


def signed(
    signer: Signer, body: bytes = BODY, *, to: str = AUDIENCE, task_id: str = "t", key: str = "k"
) -> dict[str, str]:
    return {**JSON, "Authorization": f"Bearer {signer.sign(body, url=to + '/hook', task_id=task_id, key=key)}"}


@asynccontextmanager
async def published(signer: Signer) -> AsyncGenerator[tuple[str, list[int]], None]:
    """A JWKS document at a URL; every fetch is counted."""
    fetched = [0]

    def answer(post: object) -> bytes:
        fetched[0] += 1
        body = json.dumps(signer.public_keys()).encode()
        return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)

    async with byte_server(answer) as at:
        yield f"http://127.0.0.1:{at.port}/.well-known/jwks.json", fetched


@in_loop
async def test_signature_is_verified_with_the_published_key_which_is_read_once(
    signer: Signer,
) -> None:
    async with published(signer) as (url, fetched):
        receiver = WebhookReceiver(jwks=url, audience=AUDIENCE, issuer="https://agents.example")
        async with hook(receiver) as at:
            with taking(receiver) as taken:
                for number in range(3):
                    assert await at.post(BODY, signed(signer, key=f"k{number}")) == 200
            assert [notification.key for notification in taken] == ["k0", "k1", "k2"]
            assert fetched == [1]


@pytest.mark.parametrize(
    ("wrong", "status"),
    [
        ("nothing", 401),
        ("no JWT", 401),
        ("another key", 401),
        ("no algorithm", 401),
        ("a shared secret", 401),
        ("old", 401),
        ("of tomorrow", 401),
        ("no iat", 401),
        ("expired", 401),
        ("another body", 403),
        ("no digest", 403),
        ("another audience", 403),
        ("no audience", 403),
        ("another issuer", 403),
        ("another task", 403),
    ],
)
@in_loop
async def test_signature_that_is_wrong_is_refused(signer: Signer, tmp_path: Path, wrong: str, status: int) -> None:
    receiver = WebhookReceiver(jwks=signer.public_keys(), audience=AUDIENCE, issuer="https://agents.example")
    async with hook(receiver) as at:
        with taking(receiver) as taken:
            assert await at.post(BODY, {**JSON, **shown(wrong, signer, tmp_path)}) == status
            assert await at.post(BODY, signed(signer)) == 200
        assert len(taken) == 1


def shown(wrong: str, signer: Signer, folder: Path) -> dict[str, str]:
    if wrong == "nothing":
        return {}
    if wrong == "no JWT":
        return {"Authorization": "Bearer a.b.c"}
    if wrong == "another key":
        return signed(signer_in(folder, "another"))
    if wrong == "another body":
        return signed(signer, b"{}")
    if wrong == "another audience":
        return signed(signer, to="https://other.example")
    if wrong == "another task":
        return signed(signer, task_id="other")
    token = signer.sign(BODY, url=AUDIENCE, task_id="t", key="k")
    key = signer._key._key
    claims = jwt.decode(token, key).claims
    header = {"alg": "ES256", "kid": signer.public_keys()["keys"][0]["kid"]}
    now = int(time.time())
    if wrong == "no algorithm":
        payload = token.split(".")[1]
        return {"Authorization": f"Bearer eyJhbGciOiJub25lIn0.{payload}."}
    if wrong == "a shared secret":
        secret = jwk.OctKey.import_key(json.dumps(signer.public_keys()))
        return {"Authorization": f"Bearer {jwt.encode({**header, 'alg': 'HS256'}, claims, secret)}"}
    changes: dict[str, dict[str, Any]] = {
        "old": {"iat": now - 400, "exp": now + 100},
        "of tomorrow": {"iat": now + 86400, "exp": now + 90000},
        "no iat": {"iat": None},
        "expired": {"exp": now - 100},
        "no digest": {"request_body_sha256": None},
        "no audience": {"aud": None},
        "another issuer": {"iss": "https://other.example"},
    }
    changed = {name: value for name, value in {**claims, **changes[wrong]}.items() if value is not None}
    return {"Authorization": f"Bearer {jwt.encode(header, changed, key)}"}


@in_loop
async def test_key_that_is_new_is_fetched_and_unknown_ones_do_not_cause_a_fetch_each(
    signer: Signer, tmp_path: Path
) -> None:
    stranger = signer_in(tmp_path, "2")
    async with published(signer) as (url, fetched):
        receiver = WebhookReceiver(jwks=url, audience=AUDIENCE)
        async with hook(receiver) as at:
            with taking(receiver):
                assert await at.post(BODY, signed(signer, key="a")) == 200
                for number in range(5):
                    assert await at.post(BODY, signed(stranger, key=f"s{number}")) == 401
                assert fetched == [1]  # not before half a minute has passed


@in_loop
async def test_signature_is_not_judged_while_the_keys_cannot_be_read(signer: Signer) -> None:
    async with byte_server(lambda post: b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n") as keys:
        receiver = WebhookReceiver(jwks=f"http://127.0.0.1:{keys.port}/", audience=AUDIENCE)
        async with hook(receiver) as at:
            status, _, headers = await at.answer(BODY, signed(signer))
            assert status == 503
            assert headers["Retry-After"]


@in_loop
async def test_signature_beside_a_bearer_token_and_a_token_is_all_checked(signer: Signer) -> None:
    receiver = WebhookReceiver(token="tok", bearer="abc", jwks=signer.public_keys(), audience=AUDIENCE)
    config = TaskPushNotificationConfig(
        AUDIENCE + "/hook", token="tok", authentication=AuthenticationInfo("Bearer", "abc")
    )
    key = idempotency_key("t", "c", 1)
    signature = signer.sign(BODY, url=config.url, task_id="t", key=key)
    headers = notification_headers(config, key, signature=signature)
    async with hook(receiver) as at:
        with taking(receiver) as taken:
            assert await at.post(BODY, headers) == 200
            for name in ("Authorization", "X-A2A-Notification-Token", "X-A2A-Signature"):
                less = {other: value for other, value in headers.items() if name not in other and other not in name}
                assert await at.post(BODY, less) == 401
        assert [notification.key for notification in taken] == ["t/c/1"]


@in_loop
async def test_signed_notification_that_is_replayed_with_another_key_is_known_again(signer: Signer) -> None:
    receiver = WebhookReceiver(jwks=signer.public_keys(), audience=AUDIENCE)
    async with hook(receiver) as at:
        with taking(receiver) as taken:
            headers = signed(signer)
            assert await at.post(BODY, {**headers, "Idempotency-Key": '"a"'}) == 200
            assert await at.post(BODY, {**headers, "Idempotency-Key": '"b"'}) == 200
        assert len(taken) == 1


# --- handing over -----------------------------------------------------------------------------------------------------


@pytest.mark.requirement("push.receiver-acknowledges")
@in_loop
async def test_sender_hears_of_success_only_when_its_notification_was_taken() -> None:
    receiver = WebhookReceiver(anyone=True)
    async with hook(receiver) as at:
        posting = asyncio.create_task(at.post())
        await asyncio.wait([posting], timeout=0.1)
        assert not posting.done()
        assert (await anext(receiver)).task_id == "t"
        assert await posting == 200


@in_loop
async def test_notification_that_nobody_takes_in_time_is_asked_for_again_and_given_once() -> None:
    receiver = WebhookReceiver(anyone=True, answer_s=0.05)
    async with hook(receiver) as at:
        status, _, headers = await at.answer(headers=with_key("a"))
        assert (status, headers["Retry-After"]) == (503, "5")
        assert await at.post(headers=with_key("a")) == 503
        assert (await anext(receiver)).key == "a"
        assert await at.post(headers=with_key("a")) == 200
        with taking(receiver) as taken:
            assert await at.post(headers=with_key("b")) == 200
        assert [notification.key for notification in taken] == ["b"]


@pytest.mark.requirement("push.receiver-idempotent")
@in_loop
async def test_duplicates_are_acknowledged_and_forgotten_also_when_they_come_at_the_same_time() -> None:
    receiver = WebhookReceiver(anyone=True)
    async with hook(receiver) as at:
        posting = [asyncio.create_task(at.post(headers=with_key("a"))) for _ in range(5)]
        assert (await anext(receiver)).key == "a"
        assert await asyncio.gather(*posting) == [200] * 5
        with taking(receiver) as taken:
            assert await at.post(headers=with_key("a")) == 200
            assert await at.post(headers=with_key("b")) == 200
            assert await at.post() == 200  # without a key each is another
            assert await at.post() == 200
        assert [notification.key for notification in taken] == ["b", None, None]


@in_loop
async def test_senders_whose_keys_are_the_same_lose_no_notification() -> None:
    def done(task_id: str) -> dict[str, Any]:
        return {"task": {"id": task_id, "status": {"state": "TASK_STATE_COMPLETED"}}}

    receiver = WebhookReceiver(anyone=True)
    async with hook(receiver) as at:
        with taking(receiver) as taken:
            for task_id in ("one", "two", "one"):
                assert await at.post(done(task_id), with_key("1")) == 200
        assert [(notification.task_id, notification.key) for notification in taken] == [("one", "1"), ("two", "1")]


@in_loop
async def test_what_was_handed_over_is_remembered_for_a_time_and_up_to_a_number() -> None:
    for options, again in (({"remember_s": 0.0}, 2), ({"remembered": 1}, 2), ({"remembered": 2}, 1)):
        receiver = WebhookReceiver(anyone=True, **options)
        async with hook(receiver) as at:
            with taking(receiver) as taken:
                for key in ("a", "b", "a"):
                    assert await at.post(headers=with_key(key)) == 200
            assert [notification.key for notification in taken].count("a") == again


@in_loop
async def test_handler_that_raises_is_a_failure_and_the_next_try_is_given_to_it() -> None:
    seen: list[str | None] = []

    async def handle(notification: Notification) -> None:
        seen.append(notification.key)
        if len(seen) == 1:
            raise RuntimeError("not now")

    receiver = WebhookReceiver(handle, anyone=True)
    async with hook(receiver) as at:
        status, sentence, _ = await at.answer(headers=with_key("a"))
        assert (status, "not now" in sentence) == (500, False)
        assert await at.post(headers=with_key("a")) == 200
        assert await at.post(headers=with_key("a")) == 200
        assert seen == ["a", "a"]


@in_loop
async def test_slow_handler_is_not_given_the_same_again_while_it_is_at_work() -> None:
    go = asyncio.Event()
    seen: list[str | None] = []

    async def handle(notification: Notification) -> None:
        seen.append(notification.key)
        await go.wait()

    receiver = WebhookReceiver(handle, anyone=True, answer_s=0.05)
    async with hook(receiver) as at:
        assert await at.post(headers=with_key("a")) == 503
        assert await at.post(headers=with_key("a")) == 503
        go.set()
        assert await at.post(headers=with_key("a")) == 200
        assert seen == ["a"]


@pytest.mark.requirement("push-security.receiver-bounded")
@in_loop
async def test_receiver_holds_only_so_many_and_ends_its_iterators_when_it_is_closed() -> None:
    receiver = WebhookReceiver(anyone=True, waiting=2, answer_s=0.05)
    async with hook(receiver) as at:
        assert [await at.post(headers=with_key(key)) for key in "abc"] == [503] * 3
        receiver.close()
        assert await at.post(headers=with_key("d")) == 503
        assert [notification.key async for notification in receiver] == ["a", "b"]


# --- with senders -----------------------------------------------------------------------------------------------------


@in_loop
async def test_our_sender_and_our_receiver_understand_each_other() -> None:
    receiver = WebhookReceiver(token="tok", bearer="abc")
    sender = Sender(Guard(allow_loopback=True))
    async with hook(receiver) as at:
        config = TaskPushNotificationConfig(at.url, token="tok", authentication=AuthenticationInfo("Bearer", "abc"))
        with taking(receiver) as taken:
            for number in (1, 2, 2):
                headers = notification_headers(config, idempotency_key("t", "c", number))
                assert (await sender.post(at.url, headers, BODY)).delivered
        assert [notification.key for notification in taken] == ["t/c/1", "t/c/2"]
        wrong = await sender.post(at.url, {**headers, "Authorization": "Bearer no"}, BODY)
        assert (wrong.status, wrong.detail) == (401, "The webhook answered with HTTP 401.")
    await sender.close()


@pytest.fixture(scope="module")
def official(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with official_server(tmp_path_factory.mktemp("official")) as port:
        yield port


@pytest.mark.parametrize(("binding", "version"), [("JSONRPC", "1.0"), ("HTTP+JSON", "1.0"), ("JSONRPC", "0.3")])
@in_loop
async def test_notifications_of_the_official_server_arrive(official: int, binding: str, version: str) -> None:
    receiver = WebhookReceiver(token="tok", bearer="abc")
    async with (
        hook(receiver) as at,
        connect(f"127.0.0.1:{official}", transport=binding, version=version) as peer,
    ):
        webhook = TaskPushNotificationConfig(at.url, token="tok", authentication=AuthenticationInfo("Bearer", "abc"))
        begun = await peer.send("go")
        assert isinstance(begun, Task)
        await peer.set_webhook(begun.id, webhook)
        sending = asyncio.create_task(peer.send("it", task_id=begun.id))  # which this server ends behind its pushes
        artifacts: list[str] = []
        async for notification in receiver:
            assert notification.task_id == begun.id
            event = notification.event
            if isinstance(event, TaskArtifactUpdateEvent):
                artifacts.append(event.artifact.text)
            if isinstance(event, (Task, TaskStatusUpdateEvent)) and event.status.state.terminal:
                break
        assert artifacts in (["did it"], [])
        assert isinstance(await sending, Task)
