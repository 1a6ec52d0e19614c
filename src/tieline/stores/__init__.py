"""Where tasks and their logs are kept."""

from __future__ import annotations

from urllib.parse import urlsplit, urlunsplit

from tieline.stores.base import Retention, Store, StoreError
from tieline.stores.memory import MemoryStore

__all__ = ["MemoryStore", "Retention", "Store", "StoreError", "open_store", "shown"]


def open_store(where: str | Store, retention: Retention | None = None) -> Store:
    """The store that `where` names, or a Store as it is.

    "memory"; "sqlite:PATH" (`sqlite:///PATH` too); "postgresql://USER@HOST/DATABASE?schema=NAME" (extra `postgres`);
    "redis://HOST:PORT/NUMBER?prefix=NAME", and `rediss://` (extra `redis`). `retention` None keeps the store's own.

    Raises:
        ValueError: `where` names no kind of store that there is, or what it needs is not installed.
    """
    store = _made(where) if isinstance(where, str) else where
    if retention is not None:
        store.retention = retention
    return store


def _made(where: str) -> Store:
    kind, _, rest = where.partition(":")
    if kind == "memory":
        return MemoryStore()
    if kind == "sqlite" and rest.strip("/:") == "memory":
        raise ValueError(f"{where!r} would be a file of that name: give memory to keep nothing")
    if kind == "sqlite" and rest.strip(":"):
        from tieline.stores.sqlite import SQLiteStore

        return SQLiteStore(rest.removeprefix("//").replace("//", "/", 1) if rest.startswith("///") else rest)
    try:
        if kind in ("postgresql", "postgres"):
            from tieline.stores.postgres import PostgresStore

            return PostgresStore(where)
        if kind in ("redis", "rediss"):
            from tieline.stores.redis import RedisStore

            return RedisStore(where)
    except ImportError as error:
        raise ValueError(str(error)) from None
    raise ValueError(f"{shown(where)!r} is not a store: give memory, sqlite:PATH, postgresql://... or redis://...")


def shown(where: str) -> str:
    """The name of a store as people may see it: a URL without its password."""
    if "://" not in where:
        return where
    try:
        parts = urlsplit(where)
    except ValueError:
        return where.partition("://")[0] + "://..."
    user, at, host = parts.netloc.rpartition("@")
    pairs = [pair for pair in parts.query.split("&") if pair and "password" not in pair.partition("=")[0].lower()]
    return urlunsplit((parts.scheme, user.partition(":")[0] + at + host, parts.path, "&".join(pairs), ""))
