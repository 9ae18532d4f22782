"""The state of each part of the agent, for the status line, the status file and the log. Thread-safe."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agent.ports import Clock


@dataclass(frozen=True, slots=True)
class Part:
    """How one part of the agent is.

    Attributes:
        state: one word: ``ok``, ``failing``, ``unauthorized``, ``blocked``, ...
        since_wall_s: since when, epoch seconds as the device believes.
        detail: one sentence that names the fix; empty when all is well.
    """

    state: str
    since_wall_s: float
    detail: str = ""


class Health:
    """The parts by name, such as ``commands``, ``readings``, ``results``, ``sensor:board``, ``lane:ping``.

    Args:
        clock: for ``since_wall_s``.
        on_change: called after a part's state changed, from whichever thread changed it; must be quick.
    """

    def __init__(self, clock: Clock, on_change: Callable[[], None] = lambda: None) -> None:
        self._clock = clock
        self._on_change = on_change
        self._lock = threading.Lock()
        self._parts: dict[str, Part] = {}
        self._counts: Counter[tuple[str, str]] = Counter()
        self._ok_wall_s: dict[str, float] = {}

    def put(self, name: str, state: str, detail: str = "") -> None:
        """Set a part's state; a detail that changes under the same state is kept without waking anybody."""
        with self._lock:
            self._counts[name, state] += 1
            if state == "ok":
                self._ok_wall_s[name] = self._clock.now().wall_s
            before = self._parts.get(name)
            same = before is not None and before.state == state
            since_wall_s = before.since_wall_s if before is not None and same else self._clock.now().wall_s
            self._parts[name] = Part(state, since_wall_s, detail)
        if not same:
            self._on_change()

    def parts(self) -> dict[str, Part]:
        """All parts, sorted by name."""
        with self._lock:
            return dict(sorted(self._parts.items()))

    def counts(self) -> dict[tuple[str, str], int]:
        """(part, state) -> how often it was set, since the start."""
        with self._lock:
            return dict(sorted(self._counts.items()))

    def last_ok_wall_s(self, name: str) -> float:
        """When a part was last well, epoch seconds as the device believes; 0 for never."""
        with self._lock:
            return self._ok_wall_s.get(name, 0.0)

    def summary(self) -> str:
        """One line for a person: ``commands ok, readings failing``."""
        return ", ".join(f"{name} {part.state}" for name, part in self.parts().items()) or "starting"
