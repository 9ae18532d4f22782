"""What the store's tables share: their methods run in the store's thread, whoever calls them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from functools import partial, wraps
from typing import TYPE_CHECKING, Concatenate, Final, ParamSpec, TypeVar

if TYPE_CHECKING:
    from agent.store.store import Store

P = ParamSpec("P")
T = TypeVar("T")
AnyTable = TypeVar("AnyTable", bound="Table")

# ASCII, so that a lone surrogate, which SQLite cannot store, stays an escape.
to_json: Final = partial(json.dumps, separators=(",", ":"), ensure_ascii=True)


class Table:
    """A part of the store.

    Args:
        store: whose.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    @property
    def _db(self) -> sqlite3.Connection:
        return self._store.connection()

    def _count(self, name: str, by: int) -> None:
        """Add to a counter."""
        self._db.execute(
            "INSERT INTO counter VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = value + excluded.value",
            (name, by),
        )

    def _counter(self, name: str) -> int:
        row = self._db.execute("SELECT value FROM counter WHERE name = ?", (name,)).fetchone()
        return 0 if row is None else int(row[0])


def read(method: Callable[Concatenate[AnyTable, P], T]) -> Callable[Concatenate[AnyTable, P], T]:
    """A method that reads; its caller waits for the result."""

    @wraps(method)
    def in_store(self: AnyTable, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._store.call(lambda: method(self, *args, **kwargs), writes=False)

    return in_store


def write(method: Callable[Concatenate[AnyTable, P], T]) -> Callable[Concatenate[AnyTable, P], T]:
    """A method that writes; it returns after the commit, and all of it is undone where it raises."""

    @wraps(method)
    def in_store(self: AnyTable, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._store.call(lambda: method(self, *args, **kwargs), writes=True)

    return in_store
