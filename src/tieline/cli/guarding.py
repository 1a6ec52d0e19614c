"""Options of `tieline serve` that say who may call, how much, and which webhooks are told of it: as click options, and
as what they make.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from tieline.cli.amounts import read_limit
from tieline.cli.errors import UsageFault
from tieline.cli.files import exposure

if TYPE_CHECKING:
    from tieline.engine.push import Push
    from tieline.server.auth import Auth, Scheme, TokenFile
    from tieline.server.rates import Rates
    from tieline.server.tls import Tls

__all__ = ["OF_THE_APP", "TOKENS_VARIABLE", "auth_of", "guarded", "push_of", "rates_of", "tls_of", "tokens_path"]

TOKENS_VARIABLE: Final = "TIELINE_TOKENS"
_OF_PUSH: Final = ("push_host", "push_private", "push_loopback", "push_key", "push_give_up")
OF_THE_APP: Final = (
    *("auth", "tokens", "audience", "jwks", "scope", "mtls_proxy", "rate", "messages_per_day"),
    *("push", *_OF_PUSH, "runs_per_caller", "queued_runs"),
)
"""Those of these options that say how an app is made."""


def _read_give_up(context: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """Seconds, without an end for `none`; None for an option that is not given."""
    return None if value is None else read_limit(context, param, value) or math.inf


_OPTIONS: Final = (
    click.option(
        "--auth",
        multiple=True,
        metavar="KIND",
        help="Let those call who authenticate so: bearer, basic, api-key[:header=NAME|query=NAME|cookie=NAME], "
        "oidc:ISSUER, jwt:ISSUER, mtls[:HEADER]. Repeatable: one of them is enough.  [default: everybody]",
    ),
    click.option(
        "--tokens",
        envvar=TOKENS_VARIABLE,
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        help="Hashes of tokens, keys and passwords: tieline token create.  [default: in your config folder]",
    ),
    click.option("--audience", metavar="NAME", help="For whom tokens of oidc and jwt have to be."),
    click.option("--jwks", metavar="URL|FILE", help="The keys that tokens of jwt are signed with."),
    click.option(
        "--scope",
        multiple=True,
        metavar="OPERATION=SCOPE",
        help="A scope that callers need for an operation, such as SendMessage; * is all others. Repeatable.",
    ),
    click.option(
        "--mtls-proxy",
        multiple=True,
        metavar="ADDRESS",
        help="A proxy, or network of proxies, that says in the header of mtls whose certificate it has seen. "
        "Repeatable.  [default: this machine]",
    ),
    click.option("--tls-cert", metavar="FILE", help="Serve https and gRPC with TLS: the certificate, with its chain."),
    click.option("--tls-key", metavar="FILE", help="The key of --tls-cert."),
    click.option("--tls-client-ca", metavar="FILE", help="Ask callers for a certificate of these authorities."),
    click.option("--rate", type=float, metavar="N", help="Requests a second for each caller.  [default: any]"),
    click.option(
        "--messages-per-day",
        type=click.IntRange(1),
        metavar="N",
        help="Messages that each caller may send in 24 hours.  [default: any]",
    ),
    click.option("--push", is_flag=True, help="Send push notifications to the webhooks that callers name."),
    click.option(
        "--push-host",
        multiple=True,
        metavar="HOST",
        help="Send them to this host alone: example.com, *.example.com, HOST:PORT. Repeatable.  [default: any]",
    ),
    click.option("--push-private", is_flag=True, help="Send them to addresses of private networks, too."),
    click.option("--push-loopback", is_flag=True, help="Send them to this machine, too."),
    click.option(
        "--push-key",
        metavar="FILE",
        help="Sign them with this private key (PEM or JWK); its public half is at /.well-known/jwks.json.",
    ),
    click.option(
        "--push-give-up",
        callback=_read_give_up,
        metavar="SECONDS",
        help="How long a notification is tried before it becomes a dead letter (tieline push dead): 1h, 7d, none.  "
        "[default: 24h]",
    ),
    click.option(
        "--runs-per-caller",
        type=click.IntRange(1),
        metavar="N",
        help="Tasks of one caller that may be at work at the same time.  [default: any]",
    ),
    click.option(
        "--queued-runs",
        type=click.IntRange(0),
        default=0,
        show_default=True,
        metavar="N",
        help="Tasks that may wait when --concurrent-runs are at work; further ones are refused.",
    ),
)


def guarded(command: Callable[..., Any]) -> Callable[..., Any]:
    """A command with these options."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def tokens_path(given: Path | None) -> Path:
    """Where the tokens are."""
    if given is not None:
        return given
    from platformdirs import user_config_path

    return user_config_path("tieline") / "tokens.jsonl"


def auth_of(options: Mapping[str, Any]) -> Auth | None:
    """Who may call. Raises UsageFault, ValueError."""
    from tieline.server.auth import Auth

    kinds = options["auth"]
    if not kinds:
        for name in ("audience", "jwks", "scope", "mtls_proxy"):
            if options[name]:
                raise UsageFault(f"--{name.replace('_', '-')} says more of --auth, and there is none.")
        return None
    try:
        return Auth(*_schemes(kinds, options), scopes=_scopes(options["scope"]))
    except ImportError as error:
        raise UsageFault(str(error)) from None


def _schemes(kinds: tuple[str, ...], options: Mapping[str, Any]) -> list[Scheme]:
    from tieline.server import auth

    tokens: TokenFile | None = None
    if any(kind.partition(":")[0] in ("bearer", "basic", "api-key") for kind in kinds):
        tokens = auth.TokenFile(tokens_path(options["tokens"]))  # one for all: it is read once
    schemes: list[Scheme] = []
    for given in kinds:
        kind, _, rest = given.partition(":")
        if kind in ("bearer", "basic") and not rest and tokens is not None:
            schemes.append(auth.BearerTokens(tokens) if kind == "bearer" else auth.Passwords(tokens))
        elif kind == "api-key" and tokens is not None:
            location, _, parameter = (rest or "header=X-API-Key").partition("=")
            if location not in ("header", "query", "cookie") or not parameter:
                raise UsageFault(f"--auth {given}: write api-key:header=NAME, query=NAME or cookie=NAME.")
            schemes.append(auth.ApiKeys(tokens, location=location, parameter=parameter))  # type: ignore[arg-type]
        elif kind in ("oidc", "jwt") and rest:
            if not options["audience"]:
                raise UsageFault(f"--auth {given} needs --audience: for whom its tokens have to be.")
            if kind == "oidc":
                schemes.append(auth.OpenIdConnect(rest, audience=options["audience"]))
            elif options["jwks"]:
                schemes.append(auth.Jwt(rest, audience=options["audience"], jwks=options["jwks"]))
            else:
                raise UsageFault(f"--auth {given} needs --jwks: the keys that its tokens are signed with.")
        elif kind == "mtls":
            proxies = {"proxies": options["mtls_proxy"]} if options["mtls_proxy"] else {}
            schemes.append(auth.ClientCertificates(header=rest or None, **proxies))
        else:
            raise UsageFault(
                f"--auth {given}: write bearer, basic, api-key, api-key:header=NAME, oidc:ISSUER, jwt:ISSUER, mtls or"
                " mtls:HEADER."
            )
    return schemes


def _scopes(given: tuple[str, ...]) -> dict[str, list[str]]:
    scopes: dict[str, list[str]] = {}
    for pair in given:
        operation, _, scope = pair.partition("=")
        if not operation or not scope:
            raise UsageFault(f"--scope {pair}: write OPERATION=SCOPE, such as SendMessage=tasks:write.")
        scopes.setdefault(operation, []).append(scope)
    return scopes


def rates_of(options: Mapping[str, Any]) -> Rates | None:
    """How much each caller may ask for. Raises ValueError."""
    from tieline.server.rates import Rates

    if options["rate"] is None and options["messages_per_day"] is None:
        return None
    return Rates(requests_per_s=options["rate"], messages_per_day=options["messages_per_day"])


def push_of(options: Mapping[str, Any], warn: Callable[[str], object] | None) -> Push | None:
    """How push notifications are sent; `warn` is told when others can read the key. Raises UsageFault, ValueError."""
    given = [name for name in _OF_PUSH if options[name]]
    if not options["push"]:
        if given:
            raise UsageFault(f"--{given[0].replace('_', '-')} says more of --push, and that is not given.")
        return None
    from tieline.engine.guard import Guard
    from tieline.engine.push import Push

    guard = Guard(
        allow_private=options["push_private"], allow_loopback=options["push_loopback"], allowed=options["push_host"]
    )
    signer = None
    if options["push_key"]:
        try:
            from tieline.engine.signer import Signer
        except ImportError as error:
            raise UsageFault(str(error)) from None
        if not options["public_url"]:
            raise UsageFault("--push-key needs --public-url: by that receivers know whose signature it is.")
        path = Path(options["push_key"])
        try:
            signer = Signer.from_file(path, options["public_url"])
            exposed = exposure(path, "a private key")
        except OSError as error:
            raise UsageFault(f"{path} cannot be read: {error.strerror or error}.") from None
        if warn is not None and exposed is not None:
            warn(exposed)
    give_up = {"give_up_s": options["push_give_up"]} if options["push_give_up"] else {}
    return Push(guard=guard, signer=signer, **give_up)


def tls_of(options: Mapping[str, Any]) -> Tls | None:
    """The certificate to serve with. Raises UsageFault, ValueError."""
    from tieline.server.tls import Tls

    certificate, key, authorities = options["tls_cert"], options["tls_key"], options["tls_client_ca"]
    if certificate is None and key is None and authorities is None:
        return None
    if certificate is None or key is None:
        raise UsageFault("TLS needs --tls-cert and --tls-key.")
    tls = Tls(certificate, key, authorities)
    tls.check()
    return tls
