"""What the threads are to each other. For the type checker alone."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from agent.runtime.lane_items import LaneItem


class Post(Protocol):
    """A running service, as far as the dispatcher sees it."""

    def post(self, message: LaneItem) -> bool:
        """Post a message; False when the mailbox is full or closed."""
        ...


class ReadResult(Protocol):
    """What one read of one sensor gave."""

    @property
    def values(self) -> Mapping[str, float]:
        """Reading name -> number; empty when the read failed."""
        ...

    @property
    def error(self) -> str | None:
        """Why there is nothing, or None."""
        ...

    @property
    def refused(self) -> tuple[str, ...]:
        """One sentence for each reading that was left out."""
        ...


class Read(Protocol):
    """One read of one sensor, under way or ended."""

    @property
    def timeout_s(self) -> float:
        """How long it may take, seconds."""
        ...

    @property
    def result(self) -> Future[Any]:
        """A :class:`ReadResult`, and never an exception."""
        ...

    def outcome(self, *, skipped: bool = False) -> ReadResult:
        """What it gave, or why there is nothing yet; see :class:`agent.sensors.reader.Read`."""
        ...


class Reader(Protocol):
    """Reads sensors in bounded time and never raises for what a sensor does."""

    def names(self) -> list[str]:
        """The ready sensors, in the configuration's order."""
        ...

    def read(self, names: list[str] | None = None) -> Mapping[str, ReadResult]:
        """One result per name; ``KeyError`` for a name that is none."""
        ...

    def begin(self, name: str) -> Read:
        """Begin to read a sensor, or join the read that is under way; ``KeyError`` for a name that is none."""
        ...
