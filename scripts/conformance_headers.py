"""A pytest plugin for the conformance kits: what a client has to send to a server that asks for something.

The kits send no credentials and name no extension, so a server that wants either refuses nearly all of their tests.
scripts/conformance loads this into the kit's own interpreter. It adds the headers in CONFORMANCE_HEADERS (JSON) to what
the kit sends to the host of CONFORMANCE_ORIGIN: by httpx, requests, and as metadata by gRPC. A header that a test sets
itself stays as it is. Where a test shows what is refused to strangers nothing is added: in tests that are named so, and
to what modules about authentication send past the kit's own clients, by requests.
"""

from __future__ import annotations

import json
import os
import urllib.parse
from collections.abc import Callable, Iterator, MutableMapping
from functools import wraps
from typing import Any, NamedTuple

import grpc
import httpx
import pytest

HEADERS: dict[str, str] = json.loads(os.environ["CONFORMANCE_HEADERS"])
HOST = urllib.parse.urlsplit(os.environ["CONFORMANCE_ORIGIN"]).netloc

strange: frozenset[str] = frozenset()  # by which libraries the test that runs calls as a stranger


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Know which test runs."""
    global strange
    if "without_auth" in item.name:
        strange = frozenset(("httpx", "requests", "grpc"))
    else:
        strange = frozenset(("requests",)) if "auth" in item.path.stem else frozenset()
    return (yield)


def add(library: str, url: str, headers: MutableMapping[str, Any]) -> None:
    """Add what is missing to the headers of a request."""
    if library in strange or urllib.parse.urlsplit(url).netloc != HOST:
        return
    for name, value in HEADERS.items():
        if name not in headers:
            headers[name] = value


def adding(library: str, send: Callable[..., Any]) -> Callable[..., Any]:
    """The method of a client that sends a request, with the headers added before."""

    @wraps(send)
    def sent(self: Any, request: Any, *arguments: Any, **options: Any) -> Any:
        add(library, str(request.url), request.headers)
        return send(self, request, *arguments, **options)

    return sent


class Details(NamedTuple):
    """gRPC's description of a call, which it gives without a class that could be made."""

    method: str
    timeout: float | None
    metadata: list[tuple[str, str]]
    credentials: Any
    wait_for_ready: bool | None
    compression: Any


class Adding(grpc.UnaryUnaryClientInterceptor, grpc.UnaryStreamClientInterceptor):  # type: ignore[misc]
    """The same for gRPC, whose channels go to the server alone."""

    def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
        return continuation(self.added(details), request)

    intercept_unary_stream = intercept_unary_unary

    @staticmethod
    def added(details: Any) -> Details:
        metadata = list(details.metadata or ())
        named = {name.lower() for name, _ in metadata}
        if "grpc" not in strange:
            metadata += [(name.lower(), value) for name, value in HEADERS.items() if name.lower() not in named]
        return Details(
            details.method,
            details.timeout,
            metadata,
            details.credentials,
            details.wait_for_ready,
            details.compression,
        )


def channel(*arguments: Any, **options: Any) -> Any:
    """What grpc.insecure_channel gives, with the headers added to each call."""
    return grpc.intercept_channel(plain_channel(*arguments, **options), Adding())


httpx.Client.send = adding("httpx", httpx.Client.send)
httpx.AsyncClient.send = adding("httpx", httpx.AsyncClient.send)
plain_channel, grpc.insecure_channel = grpc.insecure_channel, channel
try:
    import requests
except ImportError:
    pass  # the kit for 1.0 does without
else:
    requests.Session.send = adding("requests", requests.Session.send)
