"""Where tasks and their logs are kept."""

from tieline.stores.base import Retention, Store, StoreError
from tieline.stores.memory import MemoryStore

__all__ = ["MemoryStore", "Retention", "Store", "StoreError", "open_store"]


def open_store(where: str | Store) -> Store:
    """The store that `where` names: "memory", "sqlite:PATH" (`sqlite:///PATH` too), or a Store as it is.

    Raises:
        ValueError: `where` names no kind of store that there is.
    """
    if not isinstance(where, str):
        return where
    kind, _, rest = where.partition(":")
    if kind == "memory":
        return MemoryStore()
    if kind == "sqlite" and rest.strip("/:") == "memory":
        raise ValueError(f"{where!r} would be a file of that name: give memory to keep nothing")
    if kind == "sqlite" and rest.strip(":"):
        from tieline.stores.sqlite import SQLiteStore

        return SQLiteStore(rest.removeprefix("//").replace("//", "/", 1) if rest.startswith("///") else rest)
    raise ValueError(f"{where!r} is not a store: give memory or sqlite:PATH")
