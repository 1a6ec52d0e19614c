"""`tieline card sign | verify | keygen`: signed cards (A2A 1.0 §8.4); and the keys of `serve`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from tieline.cli.errors import CARD_INVALID, CliError, UsageFault
from tieline.cli.files import FILES, exposure, replacing
from tieline.cli.notes import Notes
from tieline.cli.options import CONNECTION, PRESENTATION, Command, give
from tieline.cli.session import Session, execute
from tieline.cli.store import output_of
from tieline.errors import CardNotVerified, InvalidParams
from tieline.wire import cards
from tieline.wire.signing import CardSigner, SignatureState

if TYPE_CHECKING:
    from tieline.client.verification import CardVerification

__all__ = ["card_signer", "keygen", "sign", "signed_fields", "verify"]

CARD_NOT_SIGNED: Final = "TIELINE_ERR_CARD_NOT_SIGNED"  # ours: a card could not be signed

_ALGORITHMS: Final = click.Choice(("ES256", "EdDSA", "RS256", "PS256"))


@click.command(
    "sign",
    cls=Command,
    settings=PRESENTATION,
    params=[
        click.Argument(["card"], metavar="CARD.json"),
        click.Option(["--key"], required=True, metavar="FILE", help="The private key: PEM, a JWK or a JWK set."),
        click.Option(["--kid"], metavar="ID", help="The key's id; of a set, also which one.  [default: its own]"),
        click.Option(["--jku"], metavar="URL", help="Where others find the public key, as a JWK set."),
        click.Option(["--alg"], type=_ALGORITHMS, help="How to sign, where the key leaves a choice."),
        click.Option(["--out"], metavar="FILE", help="Write the signed card there.  [default: stdout]"),
    ],
)
@click.pass_context
def sign(
    context: click.Context, card: str, key: str, kid: str | None, jku: str | None, alg: str | None, out: str | None
) -> int:
    """Sign the card in CARD.json (`-` is stdin). Signatures with other keys stay; one's own is replaced."""
    output = output_of(context)
    signer = card_signer(Path(key), Notes().warn, key_id=kid, key_url=jku, algorithm=alg)
    document = _read(card)
    try:
        cards.read(document)
        signed = msgspec.json.format(signer.sign(document), indent=2) + b"\n"
    except InvalidParams as error:
        raise CliError(CARD_INVALID, f"{_name(card)} is not a valid agent card: {error}.") from None
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        raise CliError(CARD_INVALID, f"{_name(card)} is not an agent card: it is not JSON.") from None
    except ValueError as error:
        raise CliError(CARD_NOT_SIGNED, f"{_name(card)} cannot be signed: {error}.") from None
    if out is None:
        click.echo(signed, nl=False)
        return 0
    with replacing(Path(out)) as file:
        file.write(signed)
    output.document(
        {"card": out, "keyId": signer.key_id, "algorithm": signer.algorithm},
        [("Card", out), ("Signed by", f"key {signer.key_id!r} ({signer.algorithm})")],
    )
    return 0


@click.command(
    "verify",
    cls=Command,
    settings=(*CONNECTION, *PRESENTATION),
    params=[
        click.Argument(["agent"], required=False, metavar="AGENT|CARD.json"),
        click.Option(["--keys"], multiple=True, metavar="FILE|URL", help="As --card-keys."),
        click.Option(["--require"], is_flag=True, help="As --require-signed-card."),
    ],
)
@click.pass_context
def verify(context: click.Context, agent: str | None, keys: tuple[str, ...], require: bool) -> int:
    """Check the signatures of an agent's card, or of the one in a file.

    It fails with exit code 1 when the card was changed or a signature is none, and with --require also when it is not
    signed, or by a key that is not known. Keys that the card names itself are believed at its own origin only, and not
    at all where --keys are given.
    """

    for name, value in (("agent-card", agent), ("card-keys", keys), ("require-signed-card", require)):
        if value:
            give(context, name, value)

    async def work(session: Session) -> None:
        session.verifying = True
        try:
            found = await session.fetch()
        except CardNotVerified:
            if session.verification is not None and not session.as_json:
                session.out.document({}, _fields(session.ref, session.verification))
            raise
        verification = session.verification
        assert verification is not None
        session.out.document(_json(found.where, verification), _fields(found.where, verification))

    return execute(context, work)


def _json(where: str, verification: CardVerification) -> dict[str, Any]:
    def told(each: Any) -> dict[str, Any]:
        return {
            "state": each.state,
            "reason": each.reason,
            "keyId": each.key_id,
            "keySource": each.key_source,
            "algorithm": each.algorithm,
        }

    return {"card": where, **told(verification), "signatures": [told(each) for each in verification.signatures]}


def _fields(where: str, verification: CardVerification) -> list[tuple[str, str]]:
    fields = [("Card", where), ("State", str(verification.state)), ("Reason", verification.reason)]
    return [*fields, *signed_fields(verification)]


def signed_fields(verification: CardVerification) -> list[tuple[str, str]]:
    """By whom a verified card is signed."""
    if verification.state is not SignatureState.VERIFIED:
        return []
    key = "a key" if verification.key_id is None else f"key {verification.key_id!r}"
    return [("Signed by", f"{key} ({verification.algorithm})"), ("Key from", verification.key_source or "")]


@click.command(
    "keygen",
    cls=Command,
    settings=PRESENTATION,
    params=[
        click.Argument(["file"], metavar="FILE"),
        click.Option(["--alg"], type=_ALGORITHMS, default="ES256", show_default=True, help="What it signs by."),
        click.Option(["--public"], metavar="FILE", help="Write the public key there, as a JWK set."),
        click.Option(["--kid"], metavar="ID", help="The key's id in it.  [default: its thumbprint]"),
    ],
)
@click.pass_context
def keygen(context: click.Context, file: str, alg: str, public: str | None, kid: str | None) -> int:
    """Make a private key to sign cards with, in FILE (PEM), which only you can read."""
    try:
        from tieline.signing_keys import new_private_key
    except ImportError as error:
        raise CliError(CARD_NOT_SIGNED, f"{error}.") from None
    output = output_of(context)
    path = Path(file)
    for each, what in ((path, "a key that signs cards"), (Path(public) if public is not None else None, "a key set")):
        if each is not None and (each.exists() or each.is_symlink()):
            raise UsageFault(f"{each} is there already: {what} is not overwritten.")
    key = new_private_key(alg)
    signer = CardSigner(key, key_id=kid, algorithm=alg)
    with ExitStack() as files:  # both, or neither
        if public is not None:
            out = files.enter_context(replacing(Path(public)))
            out.write(msgspec.json.format(signer.jwks, indent=2) + b"\n")
        with replacing(path, private=True) as out:
            out.write(key)
    output.document(
        {"key": file, "keyId": signer.key_id, "algorithm": alg, "public": public},
        [("Key", file), ("Key ID", signer.key_id), *([("Public key", public)] if public else [])],
    )
    return 0


def card_signer(
    path: Path,
    warn: Callable[[str], object] | None,
    *,
    key_id: str | None = None,
    key_url: str | None = None,
    algorithm: str | None = None,
) -> CardSigner:
    """What signs cards with the key in a file; `warn` is told when others can read it. Raises CliError."""
    if key_url is not None and not key_url.startswith(("https://", "http://")):
        raise UsageFault(f"{key_url!r} is no URL of keys: it begins with https://.")
    try:
        data = path.read_bytes()
        exposed = exposure(path, "a private key")
    except OSError as error:
        raise CliError(FILES, f"The key {path} cannot be read: {error.strerror or error}.") from None
    try:
        signer = CardSigner(data, key_id=key_id, key_url=key_url, algorithm=algorithm)
    except ImportError as error:
        raise CliError(CARD_NOT_SIGNED, f"{error}.") from None
    except ValueError as error:
        raise UsageFault(
            f"{path} cannot sign cards: {error}.", hint="Make a key with: tieline card keygen FILE"
        ) from None
    if warn is not None and exposed is not None:
        warn(exposed)
    return signer


def _read(card: str) -> bytes:
    """The document that is to be signed. Raises CliError."""
    try:
        return sys.stdin.buffer.read() if card == "-" else Path(card).read_bytes()
    except OSError as error:
        raise CliError(FILES, f"{card} cannot be read: {error.strerror or error}.") from None


def _name(card: str) -> str:
    return "The card on stdin" if card == "-" else card
