"""`tieline token create | list | revoke`: who may call a server of yours, as a file of hashes."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from tieline.cli.amounts import read_limit
from tieline.cli.errors import CliError, UsageFault
from tieline.cli.files import FILES
from tieline.cli.guarding import TOKENS_VARIABLE, tokens_path
from tieline.cli.options import PRESENTATION, Command, Group
from tieline.cli.store import output_of

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from tieline.server.auth.tokens import Token

__all__ = ["create", "list_", "revoke", "token"]

token = Group(
    "token",
    {
        "create": ("tieline.cli.token", "create", "Make a token, and show it once."),
        "list": ("tieline.cli.token", "list_", "Show who has a token."),
        "revoke": ("tieline.cli.token", "revoke", "Make tokens invalid."),
    },
    help="Say who may call a server of yours: tieline serve --auth bearer|api-key|basic reads what is made here.",
)

_EMPTY: Final = "There are no tokens in {path}. Make one: tieline token create NAME"


def _file() -> click.Option:
    return click.Option(
        ["--tokens"],
        envvar=TOKENS_VARIABLE,
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        help="Where they are kept.  [default: in your config folder]",
    )


def _read(path: Path) -> list[Token]:
    from tieline.server.auth.tokens import read_tokens

    if not path.exists():
        return []
    try:
        return read_tokens(path)
    except ValueError as error:
        words = str(error)
        raise CliError(FILES, f"{words[0].upper()}{words[1:]}.") from None


def _write(path: Path, tokens: Sequence[Token]) -> None:
    from tieline.server.auth.tokens import write_tokens

    try:
        write_tokens(path, tokens)
    except OSError as error:
        raise CliError(FILES, f"{path} cannot be written: {error.strerror or error}.") from None


@contextmanager
def _changing(path: Path) -> Iterator[list[Token]]:
    """The tokens of a file that nobody else changes meanwhile: what two commands do at a time, both have done."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = os.open(path.with_name(f".{path.name}.lock"), os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise CliError(FILES, f"{path} cannot be written: {error.strerror or error}.") from None
    try:
        if fcntl is not None:
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield _read(path)
    finally:
        os.close(lock)


def _told(each: Token) -> dict[str, Any]:
    """What may be seen of a token."""
    return {
        "id": each.id,
        "principal": each.principal,
        "kind": each.kind,
        **({"tenant": each.tenant} if each.tenant else {}),
        "scopes": list(each.scopes),
        "created": None if each.created is None else each.created.isoformat(),
        "expires": None if each.expires is None else each.expires.isoformat(),
        "expired": each.expired,
        **({"note": each.note} if each.note else {}),
    }


@click.command(
    "create",
    cls=Command,
    settings=PRESENTATION,
    params=[
        click.Argument(["name"], metavar="NAME"),
        _file(),
        click.Option(["--tenant"], default="", metavar="NAME", help="The only tenant that it may call for."),
        click.Option(["--scope"], multiple=True, metavar="SCOPE", help="What it may do. Repeatable."),
        click.Option(
            ["--lasts"],
            callback=read_limit,
            metavar="SECONDS",
            help="For how long it is valid: 12h, 90d.  [default: for ever]",
        ),
        click.Option(["--note"], default="", metavar="TEXT", help="What it is for."),
        click.Option(
            ["--save"],
            type=click.Path(dir_okay=False, path_type=Path),
            metavar="FILE",
            help="Write it to a new file that you alone can read, instead of showing it.",
        ),
        click.Option(
            ["--password"],
            is_flag=True,
            help="For --auth basic: a password, asked for here, or the first line of stdin.",
        ),
    ],
)
@click.pass_context
def create(
    context: click.Context,
    name: str,
    tokens: Path | None,
    tenant: str,
    scope: tuple[str, ...],
    lasts: float | None,
    note: str,
    save: Path | None,
    password: bool,
) -> int:
    """Make a token for NAME, who then owns what it begins. It is shown once; only its hash is kept.

    The same token serves as bearer token and as API key.
    """
    out = output_of(context)
    path = tokens_path(tokens)
    if password and save is not None:
        raise UsageFault("--save is for a token that is made here, and --password for one that you choose.")
    secret = _password() if password else ""
    with _changing(path) as there:
        shown, made = _made(there, name, secret, tenant, scope, lasts, note)
        if shown is not None and save is not None:
            _save(save, shown)
        _write(path, [*there, made])
    value = _told(made) | ({} if shown is None or save is not None else {"token": shown})
    fields = [] if shown is None else [("Token", shown if save is None else f"in {save}")]
    out.document(
        value, [*fields, ("Id", made.id), ("Owner", made.principal), ("Valid", _until(made)), ("In", str(path))]
    )
    return 0


def _made(
    there: Sequence[Token],
    name: str,
    password: str,
    tenant: str,
    scope: tuple[str, ...],
    lasts: float | None,
    note: str,
) -> tuple[str | None, Token]:
    """What its owner shows, where that is made here, and the line. Raises UsageFault."""
    from tieline.server.auth.tokens import make_password, make_token

    span = None if lasts is None else timedelta(seconds=lasts)
    try:
        if password:
            if any(each.kind == "password" and each.principal == name for each in there):
                raise UsageFault(f"{name} has a password already: tieline token revoke {name}")
            return None, make_password(name, password, tenant=tenant, scopes=scope, lasts=span, note=note)
        return make_token(name, tenant=tenant, scopes=scope, lasts=span, note=note)
    except (ValueError, OverflowError) as error:
        raise UsageFault(f"{error}.") from None


def _password() -> str:
    """What somebody chooses. Raises UsageFault for nothing."""
    if sys.stdin.isatty():
        given = str(click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True))
    else:
        given = sys.stdin.readline().rstrip("\r\n")
    if not given:
        raise UsageFault("A password must not be empty.")
    return given


def _save(path: Path, shown: str) -> None:
    try:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(shown + "\n")
    except FileExistsError:
        raise UsageFault(f"{path} is there already: name a new file.") from None
    except OSError as error:
        raise CliError(FILES, f"{path} cannot be written: {error.strerror or error}.") from None


def _until(each: Token) -> str:
    if each.expires is None:
        return "for ever"
    if each.expired:
        return "no more"
    return f"until {each.expires.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


@click.command("list", cls=Command, settings=PRESENTATION, params=[_file()])
@click.pass_context
def list_(context: click.Context, tokens: Path | None) -> int:
    """Show whose tokens there are, without the tokens: those are kept nowhere."""
    out = output_of(context)
    path = tokens_path(tokens)
    there = _read(path)
    fields = [field for each in there for field in _fields(each)]
    out.document(
        {"file": str(path), "tokens": [_told(each) for each in there]},
        fields or [("Tokens", _EMPTY.format(path=path))],
    )
    return 0


def _fields(each: Token) -> list[tuple[str, str]]:
    return [
        ("Owner", each.principal),
        ("Id", each.id),
        ("Kind", each.kind),
        ("Valid", _until(each)),
        ("Tenant", each.tenant),
        ("Scopes", " ".join(each.scopes)),
        ("Note", each.note),
    ]


@click.command(
    "revoke",
    cls=Command,
    settings=PRESENTATION,
    params=[click.Argument(["names"], nargs=-1, required=True, metavar="ID|NAME..."), _file()],
)
@click.pass_context
def revoke(context: click.Context, names: tuple[str, ...], tokens: Path | None) -> int:
    """Make tokens invalid: one by its id, or all of a name. Servers notice within a second."""
    out = output_of(context)
    path = tokens_path(tokens)
    with _changing(path) as there:
        gone = [each for each in there if each.id in names or each.principal in names]
        unknown = [name for name in names if not any(name in (each.id, each.principal) for each in there)]
        if unknown:
            raise UsageFault(f"There is no token of {', '.join(unknown)} in {path}.", hint="See: tieline token list")
        _write(path, [each for each in there if each not in gone])
    out.document(
        {"revoked": [_told(each) for each in gone], "at": datetime.now(UTC).isoformat(timespec="seconds")},
        [("Revoked", f"{each.principal}  {each.id}") for each in gone],
    )
    return 0
