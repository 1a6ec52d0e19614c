"""The declaration of who may call: checked for every request, and told by the card."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Awaitable, Iterable, Mapping
from hashlib import blake2b
from typing import Final

from msgspec.structs import replace

from tieline.card import AgentCard, SecurityRequirement, StringList
from tieline.engine.turn import Caller
from tieline.errors import PermissionDenied, Unauthenticated, Unavailable
from tieline.server.auth.identity import Expired, Identity, Refused, Scheme, Shown, Together
from tieline.server.auth.jwt import Jwt
from tieline.server.auth.secrets import BearerTokens
from tieline.server.rates import Meter, Rates, place
from tieline.wire.methods import METHODS

__all__ = ["Auth"]

log = logging.getLogger("tieline.server")

_KNOWN: Final = 10_000
_ALWAYS_S: Final = 3600.0


class _Known:
    """What was found valid before."""

    __slots__ = ("caller", "generation", "until")

    def __init__(self, caller: Caller, generation: int, until: float) -> None:
        self.caller = caller
        self.generation = generation
        self.until = until


class Auth:
    """Who may call, and what each may do.

    Every argument is a way to authenticate, of which a caller needs one; schemes that are needed at the same time are
    put `Together`. `scopes`: which scopes a caller needs for an operation, by its name in A2A 1.0; "*" is all others.

    What was found valid is remembered until it expires or its file or keys change: by a keyed hash, and where a bearer
    token is the only way in by the header that it came in, too.
    """

    def __init__(
        self,
        *ways: Scheme | Together,
        scopes: Mapping[str, str | Iterable[str]] | None = None,
        failures_per_minute: int = 60,
    ) -> None:
        """`failures_per_minute`: how many wrong passwords one address may show. Raises ValueError."""
        if failures_per_minute < 1:
            raise ValueError(f"failures_per_minute has to be 1 or more, not {failures_per_minute}")
        self._ways = [way.schemes if isinstance(way, Together) else (way,) for way in ways]
        if not self._ways:
            raise ValueError("name a way to authenticate, or leave auth out")
        self._schemes: dict[str, Scheme] = {}
        for way in self._ways:
            for scheme in way:
                if self._schemes.setdefault(scheme.name, scheme) is not scheme:
                    raise ValueError(f"two schemes are called {scheme.name!r}: give one another name")
        self._scopes = {
            operation: frozenset((needed,) if isinstance(needed, str) else needed)
            for operation, needed in (scopes or {}).items()
        }
        if unknown := self._scopes.keys() - METHODS.keys() - {"*"}:
            raise ValueError(f"there is no operation {', '.join(sorted(unknown))}; there are {', '.join(METHODS)}")
        self._everywhere = self._scopes.get("*", frozenset())
        self._only = self._ways[0][0] if len(self._ways) == 1 and len(self._ways[0]) == 1 else None
        self._key = os.urandom(16)
        self._persons = {name: b"%d" % number for number, name in enumerate(self._schemes)}
        self._known: dict[bytes, _Known] = {}
        # Of a bearer token that is the only way in: the same by the whole header, for the sake of speed.
        self._shown: dict[bytes | None, _Known] = {}
        self._quick = isinstance(self._only, BearerTokens | Jwt)
        self._failures = Meter(Rates(requests_per_s=failures_per_minute / 60, burst=failures_per_minute))
        self.challenges = tuple(dict.fromkeys(filter(None, (scheme.challenge for scheme in self._schemes.values()))))

    @property
    def schemes(self) -> Mapping[str, Scheme]:
        """The schemes by the names that the card has for them."""
        return self._schemes

    @property
    def headers(self) -> tuple[bytes, ...]:
        """The headers that callers show API keys in, in small letters."""
        keys = (scheme.declared.api_key_security_scheme for scheme in self._schemes.values())
        return tuple(key.name.lower().encode() for key in keys if key is not None and key.location == "header")

    @property
    def generation(self) -> int:
        """Another number whenever what was found valid may be so no more."""
        return sum(scheme.generation for scheme in self._schemes.values())

    # --- the card -----------------------------------------------------------------------------------------------------

    def told(self, card: AgentCard) -> AgentCard:
        """A card that says what is checked here."""
        named = sorted(frozenset[str]().union(*self._scopes.values()))
        requirements = tuple(
            SecurityRequirement(
                {scheme.name: StringList(tuple(named) if _has_scopes(scheme) else ()) for scheme in way}
            )
            for way in self._ways
        )
        return replace(
            card,
            security_schemes={name: scheme.declared for name, scheme in self._schemes.items()},
            security_requirements=requirements,
        )

    # --- a request ----------------------------------------------------------------------------------------------------

    def known(self, headers: Mapping[bytes, bytes]) -> Caller | None:
        """Who calls, where this very Authorization was found valid before; None: it has to be looked at.

        The table is one of Python's: it compares only what has the same hash, whose key nobody knows.
        """
        known = self._shown.get(headers.get(b"authorization"))
        if known is None or self._only is None or known.generation != self._only.generation:
            return None
        return known.caller if known.until > time.time() else None

    def caller(self, shown: Shown) -> Caller | Awaitable[Caller]:
        """Who calls. Raises Unauthenticated; Unavailable when that cannot be found out now."""
        scheme = self._only
        if scheme is not None:
            try:
                secret = scheme.find(shown)
            except Refused as refused:
                raise self._refusal(str(refused), shown) from None
            if secret is not None:
                known = self._known.get(self._mark(scheme, secret))
                if known is not None and known.generation == scheme.generation and known.until > time.time():
                    if self._quick:
                        if len(self._shown) >= _KNOWN:
                            self._shown.clear()
                        self._shown[shown.headers[b"authorization"]] = known
                    return known.caller
        return self._found(shown)

    def _mark(self, scheme: Scheme, secret: bytes) -> bytes:
        return blake2b(secret, digest_size=32, key=self._key, person=self._persons[scheme.name]).digest()

    async def _found(self, shown: Shown) -> Caller:
        words = ""
        not_now: Unavailable | None = None
        for way in self._ways:
            try:
                found = [(scheme, scheme.find(shown)) for scheme in way]
                if any(secret is None for _, secret in found):
                    continue
                return _as_one(
                    [
                        await self._checked(scheme, secret, shown.address)
                        for scheme, secret in found
                        if secret is not None
                    ]
                )
            except Refused as refused:
                words = words or str(refused)
            except Unavailable as error:  # what this way needs is not there; another one may do without
                not_now = not_now or error
        if not_now is not None:
            raise not_now
        if words:
            raise self._refusal(words, shown)
        raise Unauthenticated(f"Authentication is needed: {self.wanted}.", challenges=self.challenges)

    async def _checked(self, scheme: Scheme, secret: bytes, address: str) -> Caller:
        mark = self._mark(scheme, secret)
        generation = scheme.generation
        known = self._known.get(mark)
        if known is not None and known.generation == generation and known.until > time.time():
            return known.caller
        if scheme.guessable:  # counted before it is known to be wrong, or many could be tried at once
            self._failures.request(place(address), "Too many passwords that are wrong came from your address.")
        given = scheme.check(secret)
        identity = given if isinstance(given, Identity) else await given
        if scheme.guessable:
            self._failures.give_back(place(address))
        caller = Caller(
            principal=identity.principal,
            tenant=identity.tenant,
            scopes=identity.scopes,
            claims=identity.claims,
            schemes=frozenset((scheme.name,)),
        )
        if len(self._known) >= _KNOWN:
            self._known.clear()
        until = time.time() + _ALWAYS_S if identity.until is None else identity.until
        # Of the generation before the check: what was revoked during it is looked at once more.
        self._known[mark] = _Known(caller, generation, until)
        return caller

    async def lets_in_still(self, caller: Caller, shown: Shown) -> bool:
        """Whether what has let a caller in is not revoked. What has expired since, or cannot be checked now, is not."""
        for way in self._ways:
            if {scheme.name for scheme in way} != caller.schemes:
                continue
            for scheme in way:
                try:
                    secret = scheme.find(shown)
                    if secret is None:
                        return False
                    await self._checked(scheme, secret, shown.address)
                except (Expired, Unavailable):
                    continue
                except Refused:
                    return False
            return True
        return False

    @property
    def wanted(self) -> str:
        """The ways to authenticate, for people: "bearer, or oidc and mtls"."""
        return ", or ".join(" and ".join(scheme.name for scheme in way) for way in self._ways)

    def _refusal(self, words: str, shown: Shown) -> Unauthenticated:
        log.warning("a caller at %s was refused: %s", shown.address or "an unknown address", words)
        challenges = self.challenges
        if shown.headers.get(b"authorization", b"")[:7].lower() == b"bearer ":  # RFC 6750 §3.1
            challenges = tuple('Bearer error="invalid_token"' if each == "Bearer" else each for each in challenges)
        return Unauthenticated(words, challenges=challenges)

    def permit(self, caller: Caller, operation: str) -> None:
        """Check that the caller may do this. Raises PermissionDenied, which names the scopes that lack."""
        needed = self._scopes.get(operation, self._everywhere)
        if not needed <= caller.scopes:
            lacking = sorted(needed - caller.scopes)
            log.warning("caller %r lacks %s for %s", caller.principal, " ".join(lacking), operation)
            raise PermissionDenied.for_scopes(operation, lacking)


def _as_one(callers: list[Caller]) -> Caller:
    """Who shows several things at the same time: the first tells who it is. Raises Refused."""
    first = callers[0]
    if len(callers) == 1:
        return first
    tenants = {caller.tenant for caller in callers if caller.tenant}
    if len(tenants) > 1:
        raise Refused("What the request shows is for tenants that are not the same.")
    return replace(
        first,
        tenant=next(iter(tenants), ""),
        scopes=first.scopes.union(*(other.scopes for other in callers)),
        claims=next((caller.claims for caller in callers if caller.claims), {}),
        schemes=first.schemes.union(*(other.schemes for other in callers)),
    )


def _has_scopes(scheme: Scheme) -> bool:
    """Whether requirements of a scheme may name scopes: those of OAuth 2 and OpenID Connect (§4.5)."""
    declared = scheme.declared
    return declared.oauth2_security_scheme is not None or declared.open_id_connect_security_scheme is not None
