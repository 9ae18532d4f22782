"""A change of the recorded agent: after each durable commit it writes down what it now takes for safe.

It is written from the agent's own connection after ``COMMIT`` has returned, into a file outside of the state directory:
the promise that a power cut is held against. Checkpoints are made more often than usual, so that a short recording has
many of them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager

from agent.adapters import sqlite_store
from agent.adapters.sqlite_store import SqliteStore
from agent.adapters.store import schema

# Of the log of a store with the usual bounds: about 40 pages.
_CHECKPOINT_SHARE = 100


def write_promises_down() -> None:
    """Change the store of this process."""
    schema._CHECKPOINT_SHARE = _CHECKPOINT_SHARE  # type: ignore[misc]
    transaction = SqliteStore.transaction

    @contextmanager
    def promising(self: SqliteStore, *, durable: bool = True) -> Iterator[None]:
        is_outer = not self._in_transaction
        with transaction(self, durable=durable):
            yield
        if is_outer and durable:
            _write_down(self)

    sqlite_store.SqliteStore.transaction = promising  # type: ignore[method-assign]


def _write_down(store: SqliteStore) -> None:
    rows = store._db.execute("SELECT body FROM reading WHERE body IS NOT NULL").fetchall()
    promise = {
        "commands": {row[0]: [row[1], row[2]] for row in store._db.execute("SELECT id, state, attempts FROM command")},
        "readings": [json.loads(body) for (body,) in rows],
        "settings": dict(store._db.execute("SELECT name, value FROM setting").fetchall()),
    }
    descriptor = os.open(os.environ["FAULT_PROMISES"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, (json.dumps(promise) + "\n").encode())
    finally:
        os.close(descriptor)
