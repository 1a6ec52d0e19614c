"""One text to one endpoint, and what comes back as a value: for agents on this machine that speak A2A 0.3.

Neither call raises; `connect` is for everything else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Final

import msgspec
from yarl import URL

from tieline.card import WELL_KNOWN_PATH, AgentCard
from tieline.client.content import message_of
from tieline.client.discovery import checked
from tieline.client.http import Answer, Http, basic_authorization
from tieline.client.transport import NotServed, Timeouts
from tieline.errors import A2AError, InvalidCard, InvalidParams, InvalidPeerResponse
from tieline.ids import new_id
from tieline.types import Message, SendMessageRequest, Task
from tieline.wire import cards, jsonrpc
from tieline.wire.methods import METHODS
from tieline.wire.v03 import V03

__all__ = ["CardResult", "SendResult", "SentTask", "discover_agent_card", "send_text"]

_TIMEOUT_S: Final = 15.0
_MAX_ANSWER_BYTES: Final = 16 * 1024 * 1024
_SEND: Final = METHODS["SendMessage"]
_NO_TEXT: Final = "response contained no text parts"


class SentTask(msgspec.Struct, frozen=True):
    """The task that a text has begun, or goes on with."""

    id: str
    state: str  # as the agent writes it: "working", "input-required"; "unknown" where it does not say


class SendResult(msgspec.Struct, frozen=True):
    """What came of `send_text`: exactly one of the three is there."""

    text: str | None = None  # all text parts of the answer, a line break between them
    task: SentTask | None = None
    error: str | None = None

    @property
    def ok(self) -> bool:
        """Whether the agent has answered, with a text or with a task."""
        return self.error is None


class CardResult(msgspec.Struct, frozen=True):
    """What came of `discover_agent_card`: one of the two is there."""

    card: AgentCard | None = None
    error: str | None = None

    @property
    def ok(self) -> bool:
        """Whether there is a card that an agent can be called with."""
        return self.error is None


async def send_text(endpoint: str, text: str, *, token: str | None = None, timeout_s: float = _TIMEOUT_S) -> SendResult:
    """Send `text` to the agent at `endpoint`, once, as A2A 0.3 `message/send`. Never raises.

    Args:
        endpoint: Its http or https URL; slashes at the end do not count.
        text: What to say; white space alone is not sent.
        token: Sent as `Authorization: Bearer`; an empty one is none.
        timeout_s: From the call to the end of the answer.

    Returns:
        The answer's text, or the task that it is. Else `error`, in this order: `message text is empty`;
        `A2A request failed: <reason>`; the agent's own `RPC error <code>: <message>`, whatever the HTTP status;
        `HTTP <status>`; `invalid JSON-RPC response`; `response contained no text parts`.
    """
    if not isinstance(text, str) or not text.strip():
        return SendResult(error="message text is empty")
    try:
        params = V03.encode_params(_SEND, SendMessageRequest(message_of(text)))
        body = jsonrpc.encode_call(new_id(), V03.names[_SEND.name], params)
        answer = await _answer("POST", endpoint, "/", body, token, timeout_s)
    except _Failed as failed:
        return SendResult(error=f"A2A request failed: {failed}")
    except InvalidParams as error:  # text that no JSON can hold
        return SendResult(error=f"A2A request failed: {error}")
    return _read_answer(answer)


async def discover_agent_card(endpoint: str, *, token: str | None = None, timeout_s: float = _TIMEOUT_S) -> CardResult:
    """Fetch the card of the agent at `endpoint`, of any version. Never raises. Arguments as of `send_text`.

    Returns:
        The card. Else `error`: `agent card request failed: <reason>`, `HTTP <status>`,
        `invalid JSON from agent card`, `invalid agent card`.
    """
    try:
        answer = await _answer("GET", endpoint, WELL_KNOWN_PATH, None, token, timeout_s)
    except _Failed as failed:
        return CardResult(error=f"agent card request failed: {failed}")
    if not 200 <= answer.status < 300:
        return CardResult(error=f"HTTP {answer.status}")
    try:
        return CardResult(checked(cards.read(answer.body), answer.url))
    except (InvalidParams, InvalidCard):
        return CardResult(error="invalid agent card")
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return CardResult(error="invalid JSON from agent card")


class _Failed(Exception):
    """There was no answer; the message says why."""


async def _answer(
    verb: str, endpoint: str, below: str, body: bytes | None, token: str | None, timeout_s: float
) -> Answer:
    """One request and its whole response, of whatever status. Raises _Failed."""
    url, headers = _request(endpoint, below, token)
    if body is not None:
        headers["Content-Type"] = "application/json"
    http = Http(
        headers=headers,
        timeouts=Timeouts(connect_s=timeout_s, answer_s=None),
        max_response_bytes=_MAX_ANSWER_BYTES,
        max_event_bytes=_MAX_ANSWER_BYTES,
        gives_redirects=True,
    )
    try:
        async with asyncio.timeout(timeout_s):
            return await http.answer(verb, url, {}, body)
    except TimeoutError:
        raise _Failed(f"no answer within {timeout_s:g} s") from None
    except (A2AError, NotServed) as error:
        raise _Failed(str(error).rstrip(".")) from None
    finally:
        await http.close()


def _request(endpoint: str, below: str, token: str | None) -> tuple[URL, dict[str, str]]:
    """The URL at `below` of an endpoint, and what to say there. Raises _Failed."""
    try:
        given = URL(endpoint)
        host, _ = given.host, given.port
    except (ValueError, TypeError):
        given, host = URL(), None
    if not host or given.scheme not in ("http", "https"):
        raise _Failed("the endpoint is not an http or https URL")
    headers = {"Accept": "application/json", "A2A-Version": V03.version}
    if token:
        if not isinstance(token, str) or not token.isascii() or not token.isprintable():
            raise _Failed("the token has characters that no header can carry")
        headers["Authorization"] = f"Bearer {token}"
    elif given.user is not None:
        headers["Authorization"] = basic_authorization(given)
    path = given.raw_path.rstrip("/") + below
    return given.with_user(None).with_path(path, encoded=True, keep_query=True), headers


class _Error(msgspec.Struct, frozen=True):
    code: int
    message: str = ""


class _Response(msgspec.Struct, frozen=True):
    """A response of JSON-RPC 2.0. Its id does not matter: over HTTP an answer belongs to its request."""

    jsonrpc: str
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    error: _Error | None = None


_read_response = msgspec.json.Decoder(_Response).decode


def _read_answer(answer: Answer) -> SendResult:
    response: _Response | None
    try:
        response = _read_response(answer.body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        response = None
    if response is not None and response.jsonrpc != "2.0":
        response = None
    if response is not None and response.error is not None:
        return SendResult(error=f"RPC error {response.error.code}: {response.error.message}")
    if not 200 <= answer.status < 300:
        return SendResult(error=f"HTTP {answer.status}")
    if response is None or not isinstance(response.result, msgspec.Raw):
        return SendResult(error="invalid JSON-RPC response")
    return _read_result(response.result)


def _read_result(result: msgspec.Raw) -> SendResult:
    """A result as far as it can be understood: one part or field that makes no sense does not spoil the others."""
    try:
        value: Any = msgspec.json.decode(result)
    except (msgspec.DecodeError, RecursionError):
        return SendResult(error="invalid JSON-RPC response")
    kind = value.get("kind") if isinstance(value, dict) else None
    kind = kind.lower() if isinstance(kind, str) else None
    if kind == "task":
        status = value.get("status")
        state = status.get("state") if isinstance(status, dict) else None
        if isinstance(value.get("id"), str):
            return SendResult(task=SentTask(value["id"], state if state and isinstance(state, str) else "unknown"))
    elif kind == "message":
        parts = value.get("parts")
        return _text(_text_of(part) for part in parts) if isinstance(parts, list) else SendResult(error=_NO_TEXT)
    else:
        return _read_unnamed(result)
    return SendResult(error=_NO_TEXT)


def _read_unnamed(result: msgspec.Raw) -> SendResult:
    """A result that does not say what it is, as tolerantly as any answer is read."""
    try:
        answer: Task | Message = V03.decode_answer(result)
    except InvalidPeerResponse:
        return SendResult(error=_NO_TEXT)
    if isinstance(answer, Message):
        return _text(part.text for part in answer.parts)
    state = answer.state.value.removeprefix("TASK_STATE_").lower().replace("_", "-")
    return SendResult(task=SentTask(answer.id, "unknown" if state == "unspecified" else state))


def _text_of(part: object) -> str | None:
    """The text of a part of 0.3, or of one that was written as in another version."""
    if not isinstance(part, dict) or part.get("kind", part.get("type", "text")) != "text":
        return None
    text = part.get("text")
    return text if isinstance(text, str) else None


def _text(texts: Iterable[str | None]) -> SendResult:
    found = [text for text in texts if text is not None]
    return SendResult(text="\n".join(found)) if found else SendResult(error=_NO_TEXT)
