"""Stores readings of many requests in one write, with their ``Idempotency-Key`` and the rules that they fire."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection

from simulator.service.answers import Answer, replayed
from simulator.service.errors import ServiceError, not_found
from simulator.service.rules import Rules
from simulator.service.storage import readings, stored_answers
from simulator.service.storage.readings import NewReading
from simulator.service.storage.stored_answers import RequestKey


@dataclass(slots=True)
class IncomingReading(NewReading):
    """A reading, and what its request is to be answered when it is a request of its own.

    Attributes:
        key: its ``Idempotency-Key``, if it came with one.
    """

    answer: Answer | None = None
    key: RequestKey | None = None


@dataclass(frozen=True, slots=True)
class Stored:
    """Result of storing a reading.

    Attributes:
        device_seq: its device's row; None when the answer was replayed.
        answer: for its request.
        changed: rows of devices that got commands of rules that it fired.
    """

    device_seq: int | None
    answer: Answer | None
    changed: tuple[int, ...] = ()


class ReadingStore:
    """Stores readings of many requests, and lets the rules look at them. Runs in the writing thread.

    Args:
        rules: those that readings may fire.
    """

    def __init__(self, rules: Rules) -> None:
        self._rules = rules

    def __call__(self, connection: Connection, items: Sequence[IncomingReading]) -> list[Stored | ServiceError]:
        """Store them; an error for each whose device is not there, the stored answer for each that came before."""
        if any(item.key is not None for item in items):
            return self._store_keyed(connection, items)
        return self._store(connection, items)

    def _store(self, connection: Connection, items: Sequence[IncomingReading]) -> list[Stored | ServiceError]:
        device_seqs = readings.add(connection, items)
        known = [(item, seq) for item, seq in zip(items, device_seqs, strict=True) if seq is not None]
        changed = self._rules.observe(connection, known)
        results: list[Stored | ServiceError] = []
        place = 0
        for item, device_seq in zip(items, device_seqs, strict=True):
            if device_seq is None:
                results.append(not_found("device", item.device_id))
                continue
            results.append(Stored(device_seq, item.answer, changed.get(place, ())))
            place += 1
        return results

    def _store_keyed(self, connection: Connection, items: Sequence[IncomingReading]) -> list[Stored | ServiceError]:
        """As :meth:`_store`, where some carry an ``Idempotency-Key``: their answers are stored beside them."""
        before = _find_replays(connection, items)
        fresh = [item for place, item in enumerate(items) if place not in before]
        stored = iter(self._store(connection, fresh) if fresh else ())
        results = [before[place] if place in before else next(stored) for place in range(len(items))]
        answers = [
            (item.key, item.answer.stored())
            for place, (item, result) in enumerate(zip(items, results, strict=True))
            if item.key is not None and item.answer is not None and place not in before and isinstance(result, Stored)
        ]
        if answers:
            stored_answers.store(connection, answers, items[0].received_at)
        return results


def _find_replays(connection: Connection, items: Sequence[IncomingReading]) -> dict[int, Stored | ServiceError]:
    """Place -> the answer that is stored for its key."""
    by_account: dict[int, list[RequestKey]] = {}
    for item in items:
        if item.key is not None:
            by_account.setdefault(item.manufacturer_seq, []).append(item.key)
    now_ms = items[-1].received_at
    rows = {account: stored_answers.find(connection, keys, now_ms) for account, keys in by_account.items()}
    return {
        place: _replay(item.key, rows[item.manufacturer_seq][item.key.key])
        for place, item in enumerate(items)
        if item.key is not None and item.key.key in rows[item.manufacturer_seq]
    }


def _replay(key: RequestKey, row: object) -> Stored | ServiceError:
    try:
        return Stored(None, replayed(stored_answers.read(key, row)))
    except ServiceError as error:
        return error
