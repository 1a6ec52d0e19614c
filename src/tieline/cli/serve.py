"""`tieline serve`: publish an agent from a file or module. Words go to stderr; stdout stays clean."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource

from tieline.cli.amounts import read_lease, read_limit, read_seconds, read_size
from tieline.cli.errors import CliError, UsageFault
from tieline.cli.guarding import OF_THE_APP, auth_of, guarded, push_of, rates_of, tls_of
from tieline.cli.opened import STORES, VARIABLE, named_store
from tieline.cli.operating import Lines, operating_options, set_up, telemetry_of
from tieline.cli.options import CONTEXT, settings_of

if TYPE_CHECKING:
    from tieline.engine.agent import Agent
    from tieline.server.workers import Worker
    from tieline.stores import Store
    from tieline.wire.signing import CardSigner

__all__ = ["serve"]

log = logging.getLogger("tieline.server")

CANNOT_SERVE: Final = "TIELINE_ERR_CANNOT_SERVE"  # ours: the CLI specification knows of no serving

_LEAVE_S: Final = 3.0
_OF_THE_APP: Final = (
    "store",
    "public_url",
    "trust_proxy",
    "allow_host",
    "cors_origin",
    "a2a_version",
    "strict",
    "old_at_once",
    "grpc_url",
    "card_key",
    "card_key_id",
    "card_jku",
    "drain",
    "max_body",
    "concurrent_runs",
    "run_seconds",
    "ttl",
    "remember",
    "lease",
    *OF_THE_APP,
)


@click.command("serve", context_settings=CONTEXT)
@click.argument("target", metavar="FILE|FILE:NAME|MODULE:NAME")
@click.option("--host", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="Address to listen on.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="Port to listen on; 0 is a free one."
)
@click.option(
    "--grpc-port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="Serve gRPC, too, on this port; 0 is a free one.  [default: no gRPC]",
)
@click.option("--grpc-url", metavar="URL", help="What the card says of gRPC, instead of HOST:PORT.")
@click.option(
    "--store",
    envvar=VARIABLE,
    metavar=STORES,
    help="Where tasks are kept. A URL with a password is better off in TIELINE_STORE than in the process list.  "
    "[default: SQLite, a file for each agent in your state folder]",
)
@click.option(
    "--workers",
    type=click.IntRange(1, 256),
    default=1,
    show_default=True,
    metavar="N",
    help="Processes to serve with; more than one need a store that they can share.",
)
@click.option(
    "--lease",
    default="10s",
    show_default=True,
    callback=read_lease,
    metavar="SECONDS",
    help="How soon others take over the tasks of a process that died; 5s at least.",
)
@click.option("--public-url", metavar="URL", help="Where callers reach this server; needed behind a proxy.")
@click.option("--trust-proxy", is_flag=True, help="Believe the X-Forwarded headers of a proxy.")
@click.option("--allow-host", multiple=True, metavar="NAME", help="Answer for this host name, too. Repeatable.")
@click.option("--cors-origin", multiple=True, metavar="ORIGIN", help="Let web pages of this origin call. Repeatable.")
@click.option(
    "--a2a-version",
    multiple=True,
    metavar="VERSION",
    help="Serve this version of A2A only: 1.0, 0.3, 0.2 or 0.1. Repeatable.  [default: all]",
)
@click.option("--strict", is_flag=True, help="Refuse requests of 1.0 that do not say so in A2A-Version.")
@click.option(
    "--old-at-once",
    is_flag=True,
    help="Answer message/send of A2A 0.3 that says nothing of `blocking` at once, not when the task rests.",
)
@click.option("--card-key", metavar="FILE", help="Sign the card with this private key: PEM, a JWK or a JWK set.")
@click.option("--card-key-id", metavar="ID", help="The key's id; of a set, also which one.  [default: its own]")
@click.option(
    "--card-jku",
    metavar="URL",
    help="Where others find the public key.  [default: /.well-known/jwks.json of the agent]",
)
@click.option(
    "--drain",
    default="5s",
    show_default=True,
    callback=read_seconds,
    metavar="SECONDS",
    help="How long agents at work may go on when the server is stopped.",
)
@click.option(
    "--max-body", default="64M", show_default=True, callback=read_size, metavar="BYTES", help="Largest request taken."
)
@click.option(
    "--concurrent-runs",
    type=click.IntRange(1),
    default=20_000,
    show_default=True,
    metavar="N",
    help="Tasks that may be at work at the same time, for each agent.",
)
@click.option(
    "--run-seconds",
    default="24h",
    show_default=True,
    callback=read_limit,
    metavar="SECONDS",
    help="How long an agent may work on a message.",
)
@click.option(
    "--ttl",
    callback=read_limit,
    metavar="SECONDS",
    help="How long ended tasks are kept: 30m, 24h, 7d, none.  [default: what the store keeps]",
)
@click.option(
    "--remember",
    callback=read_seconds,
    metavar="SECONDS",
    help="How long a message that comes again has the outcome of the first: 1h, none; 0 is not at all.  "
    "[default: what the store keeps]",
)
@guarded
@operating_options
@click.pass_context
def serve(context: click.Context, /, target: str, **options: Any) -> int:
    """Publish the agent in FILE, or in a module: its card, JSON-RPC, HTTP+JSON, event streams, and gRPC if asked for.

    A file with several agents serves each below its name. It runs until Ctrl-C or SIGTERM, and ends when the agents at
    work have finished, or --drain is over.
    """
    # Until the server hears of it itself. The first process of a container has no default for it: it would be lost.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    from tieline.engine.service import Limits
    from tieline.server.asgi import App
    from tieline.server.loading import CannotServe, load_agents
    from tieline.server.serve import serve as run
    from tieline.server.workers import Worker
    from tieline.wire.dialects import VERSIONS

    notes = set_up(options, debug=bool(settings_of(context)["debug"]))
    telemetry = telemetry_of(options)
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # what grpcio writes to stderr is not for users
    grpc: list[str] = []  # the address, when there is one
    ops: list[str] = []  # likewise
    worker = Worker.of_environment()
    try:
        warn = log.warning if worker is None else None  # a worker's parent has warned already
        signer, push = _signer(options, warn), push_of(options, warn)
        if options["workers"] > 1 and worker is None:
            return _serve_with(options, notes)
        operating: dict[str, Any] = {
            "listening": None if worker is None else worker.socket,
            "telemetry": telemetry,
            "ops_port": options["ops_port"] if worker is None else None,
            "ops_host": options["ops_host"],
            "ops_link": None if worker is None else worker.ops,
            "on_ops": ops.append,
            "drain_delay_s": options["drain_delay"] or 0.0,
            "tls": tls_of(options),
        }
        found = load_agents(target)
        if isinstance(found, App):
            _refuse_options(context, target)
            where = "as the app has it"
            _check_shared(worker, found.store, where)
            run(
                found,
                host=options["host"],
                port=options["port"],
                grpc_port=options["grpc_port"],
                on_grpc=grpc.append,
                on_ready=_ready(notes, grpc, ops, where, worker),
                leave_s=_LEAVE_S,
                **operating,
            )
            return 0
        where, store = _store(options["store"], target, found, options["ttl"], options["remember"], context)
        _check_shared(worker, store, where)
        run(
            found,
            host=options["host"],
            port=options["port"],
            grpc_port=options["grpc_port"],
            store=store,
            public_url=options["public_url"],
            trust_forwarded=options["trust_proxy"],
            allowed_hosts=options["allow_host"],
            cors_origins=options["cors_origin"],
            versions=options["a2a_version"] or VERSIONS,
            strict=options["strict"],
            old_at_once=options["old_at_once"],
            grpc_url=options["grpc_url"],
            drain_s=options["drain"],
            max_body_bytes=options["max_body"],
            card_signer=signer,
            limits=Limits(
                run_s=options["run_seconds"],
                concurrent_runs=options["concurrent_runs"],
                queued_runs=options["queued_runs"],
                runs_per_caller=options["runs_per_caller"],
                lease_s=options["lease"],
            ),
            auth=auth_of(options),
            rates=rates_of(options),
            push=push,
            on_grpc=grpc.append,
            on_ready=_ready(notes, grpc, ops, where, worker),
            on_drain=None if worker else lambda busy: _draining(notes, busy, options["drain"]),
            leave_s=_LEAVE_S,
            **operating,
        )
    except CannotServe as error:
        raise CliError(CANNOT_SERVE, str(error)) from None
    except ValueError as error:
        raise UsageFault(str(error), hint="See: tieline serve --help") from None
    if worker is None:
        notes.line("Stopped.")
    return 0


def _serve_with(options: Mapping[str, Any], notes: Lines) -> int:
    """Serve with several processes: this command once more in each of them."""
    from tieline.server.serve import begin_to_listen, bind, http_url
    from tieline.server.workers import supervise, worker_command

    if os.name == "nt":
        raise UsageFault("--workers does not work on Windows: start several servers behind a proxy.")
    if options["grpc_port"] == 0:
        raise UsageFault("--grpc-port 0 would be another port in each worker: name one.")
    if options["metrics"] and options["ops_port"] is None:
        raise UsageFault("--metrics with --workers needs --ops-port: each process counts for itself.")
    listening = bind(options["host"], options["port"])
    ops = None if options["ops_port"] is None else bind(options["ops_host"], options["ops_port"], "--ops-port")
    if ops is not None:
        begin_to_listen(ops, "--ops-port")

    def say(said: dict[str, Any]) -> None:
        at = [] if ops is None else [http_url(*ops.getsockname()[:2])]
        _ready(notes, said["grpc"], at, said["where"], None, options["workers"])(said["urls"])

    with listening:
        code = supervise(
            worker_command(sys.argv[1:]), listening, options["workers"], on_ready=say, note=notes.warning, ops=ops
        )
    if not code:
        notes.line("Stopped.")
    return code


def _signer(options: Mapping[str, Any], warn: Callable[[str], object] | None) -> CardSigner | None:
    """What signs the cards. Raises CliError."""
    if options["card_key"] is None:
        for name in ("card_key_id", "card_jku"):
            if options[name] is not None:
                raise UsageFault(f"--{name.replace('_', '-')} says more of a key: name it with --card-key.")
        return None
    from tieline.cli.signing import card_signer

    return card_signer(Path(options["card_key"]), warn, key_id=options["card_key_id"], key_url=options["card_jku"])


def _check_shared(worker: Worker | None, store: Store, where: str) -> None:
    """Raises UsageFault when several processes cannot share the store."""
    if worker is not None and not store.shared:
        raise UsageFault(
            f"--workers needs a store that processes can share, and {where} is none:"
            " give --store postgresql://HOST/DATABASE or redis://HOST."
        )


def _refuse_options(context: click.Context, target: str) -> None:
    """An App is served as it was made: an option that would make another one must not look as if it did something."""
    for name in _OF_THE_APP:
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            flag = f"--{name.replace('_', '-')}"
            raise UsageFault(f"{target} is an app: give {flag} where it is made, to tieline.app(...).")


def _store(
    given: str | None,
    target: str,
    found: Agent | Mapping[str, Agent],
    ttl_s: float | None,
    remember_s: float | None,
    context: click.Context,
) -> tuple[str, Store]:
    """The store, and what to call it. Raises UsageFault when `given` names none."""
    from msgspec.structs import replace

    from tieline.engine.agent import Agent, slug_of
    from tieline.stores import shown

    if given is None:
        from platformdirs import user_state_path

        where = target.partition(":")[0]
        name = found.name if isinstance(found, Agent) else Path(where).stem
        project = str(Path(where).resolve()) if Path(where).exists() else str(Path.cwd() / where)
        mark = sha256(project.encode("utf-8", "surrogateescape")).hexdigest()[:8]  # two projects may use one name
        given = f"sqlite:{user_state_path('tieline') / f'{slug_of(name)}-{mark}.db'}"
    store = named_store(given)
    if context.get_parameter_source("ttl") is ParameterSource.COMMANDLINE:
        store.retention = replace(store.retention, ttl_s=ttl_s)
    if context.get_parameter_source("remember") is ParameterSource.COMMANDLINE:
        messages = replace(store.retention.messages, ttl_s=remember_s)
        store.retention = replace(store.retention, messages=messages)
    return shown(given), store


def _ready(
    notes: Lines, grpc: Sequence[str], ops: Sequence[str], where: str, worker: Worker | None, workers: int = 1
) -> Callable[[Sequence[str]], None]:
    def say(urls: Sequence[str]) -> None:
        if worker is not None:
            worker.ready({"urls": list(urls), "grpc": list(grpc), "where": where})
            return
        lines = []
        for url in urls:
            lines += [f"Serving {url}", f"  card   {url.rstrip('/')}/.well-known/agent-card.json"]
        lines += [f"  grpc   {address}" for address in grpc]
        lines += [f"  ops    {url}/readyz" for url in ops]
        lines.append(f"  tasks  {where}")
        if workers > 1:
            lines.append(f"  by     {workers} processes")
        lines += [f'Try:  tieline send -a {urls[0]} "Hello"', "Ctrl-C stops it."]
        notes.serving(lines, urls=list(urls), grpc=list(grpc), ops=list(ops), store=where)

    return say


def _draining(notes: Lines, busy: int, drain_s: float | None) -> None:
    if busy:
        agents = "1 agent is" if busy == 1 else f"{busy} agents are"
        notes.line(f"Stopping: {agents} at work and may finish within {drain_s:g} s. Ctrl-C again stops at once.")
    else:
        notes.line("Stopping.")
