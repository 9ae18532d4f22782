"""A reading as the store keeps it: its moment, its JSON text, its priority."""

from __future__ import annotations

import json

from agent.adapters.store.failures import damage
from agent.core.values import Moment, Priority, Reading
from agent.frozen import dataclass


@dataclass(frozen=True, slots=True)
class EncodedReading:
    """A reading on its way into the store, with its JSON text."""

    at: Moment
    body: str
    priority: Priority = Priority.NORMAL


def to_draft(reading: Reading) -> EncodedReading:
    """The reading with its JSON text.

    Raises:
        ValueError: a value is not a finite number.
    """
    body = json.dumps(reading.values, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return EncodedReading(reading.at, body, reading.priority)


def to_values(body: str) -> dict[str, float]:
    """The JSON text's named numbers.

    Raises:
        sqlite3.DatabaseError: it is none: the file is damaged where SQLite does not look.
    """
    try:
        values = json.loads(body)
    except (ValueError, TypeError, RecursionError) as error:
        raise damage(f"a reading cannot be read: {error}") from error
    if not isinstance(values, dict):
        raise damage("a reading is not an object")
    return values
