"""HTTP for one peer: a session of aiohttp's, with limits on everything and errors of our own.

Errors name a URL without user, password and query, and never a header.
"""

from __future__ import annotations

import asyncio
import base64
import html
import io
import os
import re
import ssl
from codecs import BOM_UTF8
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote_plus, urlencode
from urllib.request import getproxies, proxy_bypass

import aiohttp
import msgspec
from multidict import CIMultiDict
from yarl import URL

from tieline import __version__
from tieline.client.credentials import ClientCertificate
from tieline.client.origin import origin_of
from tieline.client.transport import NotServed, Numbered, Timeouts
from tieline.client.wirelog import log_data, log_request, log_response, logging_wire
from tieline.errors import (
    A2AError,
    AuthenticationRequired,
    BodyTooLarge,
    InvalidPeerResponse,
    PeerTimeout,
    Unreachable,
    error_for,
)
from tieline.operation.trace_context import carried
from tieline.types import StreamEvent
from tieline.wire.sse import EventStream, EventTooLarge

if TYPE_CHECKING:
    from tieline.client.identity import Identity

__all__ = [
    "Answer",
    "Http",
    "SseEvents",
    "Verify",
    "basic_authorization",
    "basic_value",
    "check_authentication",
    "check_json",
    "not_an_answer",
    "request_headers",
    "shown",
    "tls_context",
]

_CONNECTIONS: Final = 500  # open at the same time; more calls wait for one within their own limit
_REUSED_S: Final = 4.0  # uvicorn and Node close idle connections after 5: a call into a closing one would be in doubt
_REDIRECTS: Final = 5
_ALWAYS_SAME_VERB: Final = frozenset((307, 308))
_REDIRECT: Final = frozenset((301, 302, 303, 307, 308))
_OF_GATEWAYS: Final = frozenset((502, 504))  # they have no answer, and do not say whether the agent has the call
_LARGE_BODY_BYTES: Final = 1 << 20  # aiohttp wants more than this as a file
_EXCERPT_CHARS: Final = 200
_TITLE: Final = re.compile(r"<title[^>]*>([^<]*[^<\s])\s*</title>", re.IGNORECASE)
_CHALLENGE: Final = re.compile(r"[\s,]*([!#$%&'*+.^_`|~0-9A-Za-z-]{1,40})(?=[\s,]|\Z)")  # its scheme (RFC 9110 §11.6.1)
_HEADER_CHARS: Final = 80  # of a header that is repeated

Verify = bool | str | ssl.SSLContext
"""Whether a server's certificate is checked: True by the system's authorities, a path by those in that file."""


class Answer(msgspec.Struct, frozen=True):
    """A whole HTTP response. Names of headers are found in any case."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    asked: URL

    @property
    def url(self) -> str:
        """What was asked, as `shown`."""
        return shown(self.asked)

    @property
    def excerpt(self) -> str:
        """The beginning of the body in one line, for an error message; of a page that has a title, that alone."""
        text = " ".join(self.body[: _EXCERPT_CHARS * 4].decode("utf-8", "replace").split())
        if text.startswith("<") and (title := _TITLE.search(text)) is not None:
            text = html.unescape(title[1].strip())
        return text[:_EXCERPT_CHARS] + ("..." if len(text) > _EXCERPT_CHARS else "")


class _Proxy(msgspec.Struct, frozen=True):
    """A proxy and what it wants to be told, its password above all."""

    url: URL
    headers: dict[str, str]


class SseEvents:
    """A response that is a stream of server-sent events, as Events.

    `decode` makes an event of the data of one, None of what is to be passed over, or raises
    the error that it reports. `open_` has the stream in it while
    it is being read. What cannot be meant as an event of A2A is passed over: data that is no object, as signs of life
    and marks of the end are, and what is no event where the server names another type than `message`.
    """

    __slots__ = ("_content", "_decode", "_decoded", "_failure", "_frames", "_open", "_passed_over", "_response", "_url")

    def __init__(
        self,
        response: aiohttp.ClientResponse,
        url: URL,
        decode: Callable[[bytes], StreamEvent | None],
        frames: EventStream,
        open_: set[aiohttp.StreamReader],
    ) -> None:
        self._response = response
        self._content = response.content
        self._url = url
        self._decode = decode
        self._frames = frames
        self._failure: A2AError | None = None
        self._decoded = False  # an event has come
        self._passed_over: InvalidPeerResponse | None = None  # what the first that was none is
        self._open = open_
        open_.add(self._content)

    async def read(self) -> Sequence[Numbered]:
        """See Events.read."""
        if self._failure is not None:
            raise self._failure
        while True:
            try:
                data = await self._content.readany()  # b"" is the clean end
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                raise _broken(error, self._url) from None
            if logging_wire() and data:
                log_data(data)
            events: list[Numbered] = []
            try:
                for frame in self._frames.feed(data):
                    try:
                        if frame.data and (event := self._decode(frame.data)) is not None:
                            events.append((frame.id, event))
                    except InvalidPeerResponse as error:
                        if frame.event == "message" and frame.data.lstrip()[:1] == b"{":
                            raise
                        self._passed_over = self._passed_over or error
            except EventTooLarge as error:
                failure = InvalidPeerResponse(str(error))
                failure.__cause__ = error
                self._fail(failure, events)
            except A2AError as error:
                self._fail(error, events)
            if events:
                self._decoded = True
                return events
            if not data:
                if self._passed_over is not None and not self._decoded:
                    raise self._passed_over
                return ()

    def _fail(self, error: A2AError, events: list[Numbered]) -> None:
        """Raise, unless there are events to hand out first."""
        self._failure = error
        self._abandon()
        if not events:
            raise error

    def _abandon(self) -> None:
        self._open.discard(self._content)
        self._response.close()

    async def close(self) -> None:
        """See Events.close. The connection is kept only when the end was reached."""
        self._abandon()


class Http:
    """What every HTTP call of one peer goes through. The session is opened by the first call."""

    def __init__(
        self,
        *,
        headers: Mapping[str, str],
        timeouts: Timeouts,
        verify: Verify = True,
        own_authorization: tuple[frozenset[str], str] | None = None,
        gives_redirects: bool = False,
        trusted: frozenset[str] = frozenset(),
        certificate: ClientCertificate | None = None,
        logged: bool = True,
        max_response_bytes: int,
        max_event_bytes: int,
    ) -> None:
        self.identity: Identity | None = None  # what calls carry, but not the fetch of a card
        self._headers = CIMultiDict({"User-Agent": f"tieline/{__version__}"})
        self._headers.update(headers)
        self._own_authorization = own_authorization  # an Authorization header, and the only origins that it is for
        self._gives_redirects = gives_redirects  # those that are not followed, as the answers that they are
        self._trusted = trusted  # origins to which a redirect is followed, with all that the request carries
        self._logged = logged
        self._tls = tls_context(verify, certificate)
        self._max_response_bytes = max_response_bytes
        self._max_event_bytes = max_event_bytes
        self._session: aiohttp.ClientSession | None = None
        self._closed = False
        self._open: set[aiohttp.StreamReader] = set()  # what is being read
        self._proxies: dict[tuple[str, str | None, int | None], _Proxy | None] = {}
        self._answer_s = timeouts.answer_s
        connect_s = timeouts.connect_s
        self._answer_timeout = aiohttp.ClientTimeout(total=timeouts.answer_s, sock_connect=connect_s)
        self._card_timeout = aiohttp.ClientTimeout(total=timeouts.card_s, sock_connect=connect_s)
        self._stream_timeout = aiohttp.ClientTimeout(
            total=None, connect=timeouts.answer_s, sock_connect=connect_s, sock_read=timeouts.idle_s
        )

    async def close(self) -> None:
        """Close all connections; calls that are under way end with Unreachable. Closing twice is allowed."""
        self._closed = True
        session, self._session = self._session, None
        for content in self._open:  # aiohttp would leave those who wait for more waiting
            content.set_exception(aiohttp.ClientConnectionError("closed"))
        if session is not None:
            await session.close()

    async def card(self, url: URL, headers: Mapping[str, str]) -> Answer:
        """GET within the time limit for cards. Raises PeerError; NotServed when there was no connection."""
        response = await self._request("GET", url, headers, None, self._card_timeout)
        return await self._whole(response, url)

    async def answer(
        self, verb: str, url: URL, headers: Mapping[str, str], body: bytes | None, *, follow: bool = True
    ) -> Answer:
        """One call and its whole response. Raises PeerError; NotServed when there was no connection.

        `follow`: a redirect within the origin is.
        """
        response = await self._called(verb, url, headers, body, self._answer_timeout, follow=follow)
        return await self._whole(response, url)

    async def open(
        self,
        verb: str,
        url: URL,
        headers: Mapping[str, str],
        body: bytes | None,
        *,
        decode: Callable[[bytes], StreamEvent | None],
        last_event_id: str | None,
    ) -> SseEvents | Answer:
        """One call that is to be answered by an event stream; what is none is read whole. Raises as `answer` does."""
        response = await self._called(verb, url, headers, body, self._stream_timeout)
        if response.status == 200 and response.content_type == "text/event-stream":
            frames = EventStream(last_event_id=last_event_id, max_event_bytes=self._max_event_bytes)
            return SseEvents(response, url, decode, frames, self._open)
        try:
            async with asyncio.timeout(self._answer_s):
                return await self._whole(response, url)
        except TimeoutError:
            raise PeerTimeout(f"{shown(url)} did not answer in time.") from None

    async def _called(
        self,
        verb: str,
        url: URL,
        headers: Mapping[str, str],
        body: bytes | None,
        timeout: aiohttp.ClientTimeout,
        *,
        follow: bool = True,
    ) -> aiohttp.ClientResponse:
        """A request with the caller's credentials; once again when they were refused and can be replaced."""
        identity = self.identity
        if identity is None:
            return await self._request(verb, url, headers, body, timeout, follow=follow)
        query = identity.query
        own = await identity.headers()
        response = await self._request(verb, url, {**headers, **own}, body, timeout, query, follow=follow)
        if response.status == 401 and (other := await identity.in_place_of(own)) is not None:
            response.release()
            response = await self._request(verb, url, {**headers, **other}, body, timeout, query, follow=follow)
        return response

    async def _request(
        self,
        verb: str,
        url: URL,
        headers: Mapping[str, str],
        body: bytes | None,
        timeout: aiohttp.ClientTimeout,
        query: Mapping[str, str] | None = None,
        *,
        follow: bool = True,
    ) -> aiohttp.ClientResponse:
        """`query` is put into the URL of whatever is asked, behind a redirect, too."""
        origin = url
        for left in range(_REDIRECTS, -1, -1):
            if query:
                url = _with_query(url, query)
            session = self._opened()
            data = io.BytesIO(body) if body is not None and len(body) > _LARGE_BODY_BYTES else body
            proxy = self._proxy(url)
            through: dict[str, Any] = {}
            sent = self._with_own_authorization(url, headers)
            if trace := carried():
                sent = {**sent, **trace}
            if proxy is not None:
                through = {"proxy": proxy.url, "proxy_headers": proxy.headers}
                if url.scheme == "http":  # no tunnel: the proxy reads the request itself
                    sent = {**sent, **proxy.headers}
            logging = self._logged and logging_wire()
            if logging:
                log_request(verb, url, {**self._headers, **sent}, body)
            try:
                response = await session.request(
                    verb, url, data=data, headers=sent, allow_redirects=False, timeout=timeout, **through
                )
            except (aiohttp.ClientError, TimeoutError, OSError, UnicodeError) as error:
                if left and _is_unsent(error):  # the server had closed the connection since the last call unsaid
                    continue
                raise _failure(error, url) from None
            if logging:
                log_response(response.status, _readable(response.headers))
            if response.status not in _REDIRECT or "location" not in response.headers or not follow:
                return response
            try:
                url = _redirected(response, verb, url, origin, self._trusted)
            except InvalidPeerResponse:
                if self._gives_redirects:
                    return response
                response.close()
                raise
            response.release()
        raise InvalidPeerResponse(f"{shown(origin)} redirects more than {_REDIRECTS} times.")

    def _with_own_authorization(self, url: URL, headers: Mapping[str, str]) -> Mapping[str, str]:
        own = self._own_authorization
        if own is None or origin_of(url) not in own[0] or "Authorization" in headers:
            return headers
        return {**headers, "Authorization": own[1]}

    def _opened(self) -> aiohttp.ClientSession:
        if self._closed:
            raise NotServed(Unreachable("This peer is closed."), final=True)
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=_CONNECTIONS, keepalive_timeout=_REUSED_S, ssl=self._tls),
                headers=self._headers,
                skip_auto_headers=("Content-Type",),  # a body is JSON, and says so; what has none says nothing
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session

    def _proxy(self, url: URL) -> _Proxy | None:
        """The proxy that the environment names for a URL; looked up once an origin."""
        key = (url.scheme, url.host, url.port)
        if key not in self._proxies:
            self._proxies[key] = _proxy_from_environment(url)
        return self._proxies[key]

    async def _whole(self, response: aiohttp.ClientResponse, url: URL) -> Answer:
        """Read a response to its end, up to the limit."""
        limit = self._max_response_bytes
        content = response.content
        self._open.add(content)
        try:
            body = await content.readany()
            if body and not content.at_eof():
                chunks = [body]
                size = len(body)
                while chunk := await content.readany():
                    size += len(chunk)
                    if size > limit:
                        break
                    chunks.append(chunk)
                body = b"".join(chunks)
            else:
                size = len(body)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            response.close()
            raise _broken(error, url) from None
        except BaseException:
            response.close()
            raise
        finally:
            self._open.discard(content)
        if size > limit:
            response.close()
            raise InvalidPeerResponse(f"The answer of {shown(url)} is larger than {limit} bytes.")
        response.release()
        if self._logged and logging_wire() and body:
            log_data(body)
        body = body.removeprefix(BOM_UTF8)
        return Answer(response.status, _readable(response.headers), body, url)


def _readable(headers: Mapping[str, str]) -> Mapping[str, str]:
    """Headers as texts that can be written: bytes that are no UTF-8 are Latin-1 (RFC 9110 §5.5).

    aiohttp keeps such bytes as lone surrogates, which neither JSON nor a log can hold.
    """
    if all(map(str.isascii, headers.values())):
        return headers
    return CIMultiDict((name, _latin(value)) for name, value in headers.items())


def _latin(value: str) -> str:
    data = value.encode("utf-8", "surrogateescape")
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode("latin-1")


def request_headers(
    headers: Mapping[str, str], extensions: Sequence[str], last_event_id: str | None = None
) -> Mapping[str, str]:
    """`headers` with the service parameters of one call (A2A 1.0 §3.2.6)."""
    if not extensions and last_event_id is None:
        return headers
    more = dict(headers)
    if extensions:
        more["A2A-Extensions"] = ",".join(extensions)
        if more.get("A2A-Version") == "0.3":  # as it was called there
            more["X-A2A-Extensions"] = more["A2A-Extensions"]
    if last_event_id is not None:
        more["Last-Event-ID"] = last_event_id
    return more


def check_authentication(answer: Answer) -> None:
    """Raises AuthenticationRequired for 401 and 403."""
    if answer.status in (401, 403):
        challenge = answer.headers.get("www-authenticate", "")
        scheme = _CHALLENGE.match(challenge)
        wants = f": it asks for {scheme[1]}" if scheme is not None else ""
        word = "wants credentials" if answer.status == 401 else "refused the call"
        raise AuthenticationRequired(
            f"{answer.url} {word} (HTTP {answer.status}){wants}.", status=answer.status, challenge=challenge
        )


def not_an_answer(answer: Answer) -> A2AError | NotServed:
    """What a response means that carries neither a result nor an error of A2A."""
    says = f"{_kind_of(answer)}: {answer.excerpt}" if answer.body else ""
    if answer.status in (404, 405):
        return NotServed(Unreachable(f"There is no agent at {answer.url} (HTTP {answer.status}){says}"), answered=True)
    if answer.status == 413:
        message = f"The request is larger than {answer.url} takes (HTTP 413). Send large files as URLs."
        return error_for(reason=BodyTooLarge.reason, message=message)
    after = answer.headers.get("retry-after", "")[:_HEADER_CHARS].strip()
    if answer.status in (429, 503) and after:
        says = f"{says or '.'} It says to try again {f'in {after} s' if after.isdigit() else f'at {after}'}."
    told = f"{answer.url} answered HTTP {answer.status}{says or ' without a body.'}"
    return Unreachable(told) if answer.status in _OF_GATEWAYS else InvalidPeerResponse(told)


def check_json(answer: Answer) -> None:
    """Raises InvalidPeerResponse for a body that does not begin as a JSON object does, such as a page."""
    if answer.body.lstrip()[:1] != b"{":
        says = f": {answer.excerpt}" if answer.body else ", without a body"
        raise InvalidPeerResponse(f"{answer.url} answered HTTP {answer.status}{_kind_of(answer)} instead of JSON{says}")


def _kind_of(answer: Answer) -> str:
    """The media type of what is not JSON, in brackets."""
    kind = answer.headers.get("content-type", "").partition(";")[0].strip()[:_HEADER_CHARS]
    return "" if not kind or kind.endswith("json") else f" ({kind})"


def shown(url: URL | str) -> str:
    """A URL as error messages show it: without user, password, query and fragment."""
    try:
        return str(URL(url).with_user(None).with_query(None).with_fragment(None))
    except ValueError:
        return "an invalid URL"


def tls_context(verify: Verify, certificate: ClientCertificate | None) -> ssl.SSLContext | bool:
    """What aiohttp takes as `ssl`.

    Raises:
        OSError: a file cannot be read.
        ValueError: the client certificate or its key is none.
    """
    if certificate is None:
        return ssl.create_default_context(cafile=verify) if isinstance(verify, str) else verify
    if isinstance(verify, ssl.SSLContext):
        raise ValueError("a client certificate is loaded into the SSLContext that you give, not beside it")
    context = ssl.create_default_context(cafile=verify if isinstance(verify, str) else None)
    if verify is False:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    try:
        # Without a password one that is wanted would be asked for at the terminal.
        context.load_cert_chain(certificate.certificate, certificate.key, certificate.password or "")
    except ssl.SSLError:
        raise ValueError(
            f"the client certificate {certificate.certificate!r} and its key cannot be used: both are to be PEM, belong"
            " together, and the key needs its password if it has one"
        ) from None
    return context


def _with_query(url: URL, query: Mapping[str, str]) -> URL:
    """`url` with these parameters in place of those of the same names; the rest stays as it is written."""
    kept = [
        pair for pair in url.raw_query_string.split("&") if pair and unquote_plus(pair.partition("=")[0]) not in query
    ]
    whole = "&".join([*kept, urlencode(query)])
    return URL(f"{url.with_query(None).with_fragment(None)}?{whole}", encoded=True)


def _failure(error: Exception, url: URL) -> A2AError | NotServed:
    """An exception before the response, as the error that a caller gets."""
    where = shown(url)
    if isinstance(error, aiohttp.ClientSSLError):
        # No other interface is tried: it might be one without TLS, to which somebody in between wants to move us.
        return NotServed(Unreachable(f"{where} cannot be trusted: {_tls_reason(error)}."), final=True)
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return NotServed(PeerTimeout(f"No connection to {where} in time."))
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return NotServed(Unreachable(f"No connection to {where}: the proxy refused it (HTTP {error.status})."))
    if isinstance(error, aiohttp.ClientProxyConnectionError):
        return NotServed(Unreachable(f"No connection to {where}: its proxy: {_reason(error.os_error)}."))
    if isinstance(error, aiohttp.ClientConnectorError):
        return NotServed(Unreachable(f"No connection to {where}: {_reason(error.os_error)}."))
    if isinstance(error, UnicodeError):
        return NotServed(Unreachable(f"No connection to {where}: the name of its host, or of a proxy, can be none."))
    if isinstance(error, aiohttp.InvalidURL | aiohttp.NonHttpUrlClientError):
        return InvalidPeerResponse(f"{where} is not a URL to call.")
    return _broken(error, url)


def _is_unsent(error: Exception) -> bool:
    """Whether the end of a request could not be written any more, so that it cannot have been carried out."""
    cause = error.__cause__
    return (
        isinstance(error, aiohttp.ClientOSError)
        and isinstance(cause, aiohttp.ClientConnectionResetError)
        and str(cause) == "Cannot write to closing transport"
    )


def _broken(error: Exception, url: URL) -> A2AError:
    """An exception after the connection was there, as the error that a caller gets."""
    where = shown(url)
    if isinstance(error, TimeoutError):
        return PeerTimeout(f"{where} did not answer in time.")
    if isinstance(error, aiohttp.ClientResponseError):
        return InvalidPeerResponse(
            f"{where} did not answer in HTTP: {' '.join(error.message.split())[:_EXCERPT_CHARS]}"
        )
    reason = _reason(error) if isinstance(error, OSError) else "it was closed before the answer was whole"
    return Unreachable(f"The connection to {where} broke: {reason}.")


def _tls_reason(error: aiohttp.ClientSSLError) -> str:
    cause = getattr(error, "certificate_error", error.os_error)
    return str(getattr(cause, "verify_message", None) or getattr(cause, "reason", None) or cause).rstrip(".")


def _reason(error: OSError) -> str:
    if error.errno and error.errno > 0:
        return os.strerror(error.errno)
    if isinstance(error, aiohttp.ClientOSError):  # the words are aiohttp's, and have the whole URL in them
        return "it was closed"
    return str(error.strerror or type(error).__name__)


def _redirected(response: aiohttp.ClientResponse, verb: str, url: URL, origin: URL, trusted: frozenset[str]) -> URL:
    """Where a redirect leads. Raises InvalidPeerResponse for another origin, and for a call that would change.

    Nothing goes there: neither credentials nor what is said. A redirect is the word of a server, as a card is, and no
    word of the caller's.
    """
    try:
        # A user and a password there are the server's word, and not what this caller shows.
        target = url.join(URL(response.headers["location"])).with_user(None)
        place = origin_of(target)
        same = place is not None and (place == origin_of(origin) or place in trusted)
    except ValueError:
        target, same = URL(), False
    fault = ""
    if not target.host:
        fault = "redirects to what is no URL to call"
    elif not same:
        fault = f"redirects to {shown(target)}, another origin: give that address if you trust it"
    elif verb != "GET" and response.status not in _ALWAYS_SAME_VERB:
        fault = f"redirects a call to {shown(target)} in a way that would lose it (HTTP {response.status})"
    if fault:
        raise InvalidPeerResponse(f"{shown(url)} {fault}.")
    return target


def _proxy_from_environment(url: URL) -> _Proxy | None:
    """Raises NotServed when the environment names a proxy that cannot be used."""
    proxies = getproxies()
    address = proxies.get(url.scheme) or proxies.get("all")
    if not address or proxy_bypass(f"{url.host_subcomponent}:{url.port}"):
        return None
    try:
        proxy = URL(address if "://" in address else f"http://{address}")
        usable = proxy.scheme in ("http", "https") and bool(proxy.host)
    except ValueError:
        usable = False
    if not usable:
        raise NotServed(Unreachable(f"The environment names a proxy for {url.scheme} that is not an HTTP proxy."))
    headers = {} if proxy.user is None else {"Proxy-Authorization": basic_authorization(proxy)}
    return _Proxy(proxy.with_user(None), headers)


def basic_authorization(url: URL) -> str:
    """User and password of a URL as the value of a header."""
    return basic_value(url.user or "", url.password or "")


def basic_value(user: str, password: str) -> str:
    """User and password as the value of an Authorization header (RFC 7617)."""
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
