"""The state of each part of the agent, for the status line, the status file and the log. Thread-safe."""

from __future__ import annotations

import threading
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

    def put(self, name: str, state: str, detail: str = "") -> None:
        """Set a part's state; a detail that changes under the same state is kept without waking anybody."""
        with self._lock:
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

    def summary(self) -> str:
        """One line for a person: ``commands ok, readings failing``."""
        return ", ".join(f"{name} {part.state}" for name, part in self.parts().items()) or "starting"
