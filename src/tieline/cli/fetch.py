"""The agent card as a document: what `card get` shows and checks, and what says where credentials may go."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from yarl import URL

from tieline.card import AgentCard
from tieline.client.discovery import read_card
from tieline.client.http import Answer, Http, basic_authorization, check_authentication, shown
from tieline.client.references import card_file, card_urls
from tieline.client.timeouts import Timeouts
from tieline.client.transport import NotServed
from tieline.errors import CardNotFound, InvalidCard, InvalidPeerResponse

__all__ = ["CardDocument", "fetch_card"]

_MAX_CARD_BYTES: Final = 16 * 1024 * 1024
_NOT_HERE: Final = frozenset((404, 405, 406, 410))


@dataclass(frozen=True)
class CardDocument:
    """A card as it was found: its JSON, and where."""

    document: bytes
    where: str
    authorization: str | None = None  # user and password of the reference, as they are to be sent to the agent, too

    @property
    def card(self) -> AgentCard:
        """The card in it. Raises InvalidCard, with what is wrong."""
        return read_card(self.document, self.where)


async def fetch_card(ref: str, *, verify: bool) -> CardDocument:
    """Find the card of an agent: the first valid one of the places to look at, else the first.

    No credentials are sent but a user and password that stand in `ref` itself.

    Raises:
        CardNotFound: there is none.
        AuthenticationRequired, Unreachable, PeerTimeout, InvalidPeerResponse: the server could not tell.
    """
    path = card_file(ref)
    if path is not None:
        try:
            return CardDocument(await asyncio.to_thread(path.read_bytes), str(path))
        except OSError as error:
            raise CardNotFound(f"The card file {str(path)!r} cannot be read: {error.strerror or error}.") from None
    http = Http(
        headers={},
        timeouts=Timeouts(),
        verify=verify,
        max_response_bytes=_MAX_CARD_BYTES,
        max_event_bytes=_MAX_CARD_BYTES,
    )
    try:
        return await _search(http, ref)
    finally:
        await http.close()


async def _search(http: Http, ref: str) -> CardDocument:
    invalid: CardDocument | None = None
    looked: list[str] = []
    for url in card_urls(ref):
        answer = await _get(http, url)
        if answer.status == 200:
            found = CardDocument(answer.body, answer.url, None if url.user is None else basic_authorization(url))
            try:
                _ = found.card
            except InvalidCard:
                invalid = invalid or found
                continue
            return found
        check_authentication(answer)
        if answer.status not in _NOT_HERE:
            raise InvalidPeerResponse(f"{answer.url} answered HTTP {answer.status} instead of an agent card.")
        looked.append(shown(url))
    if invalid is not None:
        return invalid
    raise CardNotFound(f"There is no agent card at {', '.join(looked)}.")


async def _get(http: Http, url: URL) -> Answer:
    headers = {"Accept": "application/json"}
    if url.user is not None:
        headers["Authorization"] = basic_authorization(url)
    try:
        return await http.card(url.with_user(None), headers)
    except NotServed as error:
        raise error.error from None
