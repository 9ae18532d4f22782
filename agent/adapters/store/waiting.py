"""What waits for the store's writer: requests with a caller behind them, readings, and a setting without a hurry."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import field
from typing import Any, NamedTuple, Protocol

from agent.adapters.store.failures import damage
from agent.core.gaps import Gap
from agent.core.outbox import ROW_BYTES, DropReason
from agent.core.values import Moment, Priority, Reading
from agent.frozen import dataclass


@dataclass(frozen=True, slots=True)
class EncodedReading:
    """A reading on its way into the store, with its JSON text."""

    at: Moment
    body: str
    priority: Priority = Priority.NORMAL


def encode_reading(reading: Reading) -> EncodedReading:
    """The reading with its JSON text.

    Raises:
        ValueError: a value is not a finite number.
    """
    body = json.dumps(reading.values, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return EncodedReading(reading.at, body, reading.priority)


def decode_values(body: str) -> dict[str, float]:
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


@dataclass(slots=True, eq=False)
class Request:
    """Work for the writer whose caller waits.

    Attributes:
        work: what to do, called with the store.
        writes: it takes part in a commit.
        may_write: the result of a look is the work of a write, or None.
        of_readings: it stores readings, which must leave what little room there is to commands.
        done: set when ``result`` or ``error`` is there.
    """

    work: Callable[[Any], Any]
    writes: bool
    may_write: bool = False
    of_readings: bool = False
    done: threading.Event = field(default_factory=threading.Event)
    result: Any = None
    error: BaseException | None = None

    def resolve(self, error: BaseException | None = None) -> None:
        """Let the one who waits go on."""
        if error is not None:
            self.error = error
        self.done.set()


class Load(NamedTuple):
    """What one commit takes along.

    Attributes:
        drafts: readings, oldest first.
        gap: readings that had to be dropped, if there are any.
    """

    drafts: list[EncodedReading]
    gap: Gap | None


class Buffer:
    """Readings that wait for their commit, and what had to be dropped.

    Args:
        max_rows: how many may wait beside those of a commit that is under way.
    """

    def __init__(self, max_rows: int) -> None:
        self.drafts: deque[EncodedReading] = deque()
        self.due_s: float | None = None
        self._gap: Gap | None = None
        self._max_rows = max_rows

    @property
    def is_full(self) -> bool:
        """The next one costs the oldest one."""
        return len(self.drafts) >= self._max_rows

    def add(self, draft: EncodedReading) -> None:
        """Take one; the oldest gives way when there are too many."""
        self.drafts.append(draft)
        self._drop_too_many()

    def load(self, limit_bytes: int, *, readings: bool) -> Load:
        """Hand over what the next commit takes: the oldest up to this size, or only what was dropped."""
        taken: list[EncodedReading] = []
        while readings and self.drafts and (limit_bytes > 0 or not taken):
            limit_bytes -= len(self.drafts[0].body) + ROW_BYTES
            taken.append(self.drafts.popleft())
        load = Load(taken, self._gap)
        self._gap = None
        return load

    def unload(self, load: Load) -> None:
        """The commit failed: all of it waits again."""
        self.drafts.extendleft(reversed(load.drafts))
        if load.gap is not None:
            self._gap = load.gap if self._gap is None else load.gap.joined(self._gap)
        self._drop_too_many()

    def _drop_too_many(self) -> None:
        while len(self.drafts) > self._max_rows:
            at = self.drafts.popleft().at
            gap = Gap(DropReason.UNSAVED, 1, at, at)
            self._gap = gap if self._gap is None else self._gap.joined(gap)


def putting(draft: EncodedReading) -> Request:
    """A reading whose caller waits until it is on the disk."""
    return Request(lambda store: store.outbox.accept([draft]), writes=True, of_readings=True)


class PiggybackSetting(Protocol):
    """A small value that is written with a commit that happens anyway."""

    def pending(self, *, last: bool = False) -> tuple[str, str] | None:
        """The setting and its value, if it is time; no commit is made for it alone, except the last one."""
        ...

    def committed(self) -> None:
        """The commit is on the disk."""
        ...
