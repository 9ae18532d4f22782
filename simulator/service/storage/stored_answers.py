"""Extension ``idempotency-key``: the answer is stored in the transaction that it reports, and replayed for 24 h."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, bindparam, delete, insert, select

from agent.wire.limits import IDEMPOTENCY_S
from simulator.service.errors import KeyInUse, KeyReused
from simulator.service.storage.tables import stored_answers

PRUNE_ROWS: Final = 5_000
_DELETE: Final = delete(stored_answers).where(
    stored_answers.c.manufacturer_seq == bindparam("account"),
    stored_answers.c.idempotency_key == bindparam("given_key"),
)


@dataclass(frozen=True, slots=True)
class RequestKey:
    """One request by its ``Idempotency-Key``.

    Attributes:
        manufacturer_seq: the account's row.
        key: the header's value.
        fingerprint: SHA-256 of path and body: the same key with another request is a mistake.
    """

    manufacturer_seq: int
    key: str
    fingerprint: bytes


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """An answer as it is stored: nothing here looks inside."""

    status: int
    body: bytes
    headers: tuple[tuple[bytes, bytes], ...]


class RunningKeys:
    """The keys of requests that are under way."""

    def __init__(self) -> None:
        self._running: set[tuple[int, str]] = set()

    @contextlib.contextmanager
    def hold(self, key: RequestKey) -> Iterator[None]:
        """Only one request with a key at a time.

        Raises:
            KeyInUse: the first one still runs.
        """
        name = (key.manufacturer_seq, key.key)
        if name in self._running:
            raise KeyInUse(
                "idempotency_key_in_use",
                "A request with this Idempotency-Key still runs; send it again in a second.",
                retry_after_s=1,
            )
        self._running.add(name)
        try:
            yield
        finally:
            self._running.discard(name)


def find(connection: Connection, keys: Sequence[RequestKey], now_ms: int) -> dict[str, Any]:
    """The stored rows of these keys of one account."""
    rows = connection.execute(
        select(stored_answers).where(
            stored_answers.c.manufacturer_seq == keys[0].manufacturer_seq,
            stored_answers.c.idempotency_key.in_([key.key for key in keys]),
            stored_answers.c.created_at > now_ms - IDEMPOTENCY_S * 1000,
        )
    )
    return {row.idempotency_key: row for row in rows}


def read(key: RequestKey, row: Any) -> StoredAnswer:
    """The answer of a stored row.

    Raises:
        KeyReused: the key was used for another request.
    """
    if row.fingerprint != key.fingerprint:
        raise KeyReused(
            "idempotency_key_reused",
            "This Idempotency-Key was used for another path or body; use a new key for a new request.",
        )
    headers = tuple((name.encode("latin-1"), value.encode("latin-1")) for name, value in json.loads(row.headers))
    return StoredAnswer(row.status, row.body, headers)


def store(connection: Connection, answers: Sequence[tuple[RequestKey, StoredAnswer]], now_ms: int) -> None:
    """Store them; what is there under the same key has outlived its 24 h and makes room."""
    connection.execute(_DELETE, [{"account": key.manufacturer_seq, "given_key": key.key} for key, _ in answers])
    connection.execute(
        insert(stored_answers),
        [
            {
                "manufacturer_seq": key.manufacturer_seq,
                "idempotency_key": key.key,
                "fingerprint": key.fingerprint,
                "status": answer.status,
                "headers": json.dumps([(n.decode("latin-1"), v.decode("latin-1")) for n, v in answer.headers]),
                "body": answer.body,
                "created_at": now_ms,
            }
            for key, answer in answers
        ],
    )


def prune(connection: Connection, now_ms: int) -> int:
    """Delete answers that are older than 24 h, a bounded number at a time; how many."""
    old = (
        select(stored_answers.c.manufacturer_seq, stored_answers.c.idempotency_key)
        .where(stored_answers.c.created_at <= now_ms - IDEMPOTENCY_S * 1000)
        .limit(PRUNE_ROWS)
    )
    rows = connection.execute(old).all()
    if rows:
        keys = [{"account": row.manufacturer_seq, "given_key": row.idempotency_key} for row in rows]
        connection.execute(_DELETE, keys)
    return len(rows)
