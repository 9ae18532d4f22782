"""The state of each part of the agent, for the status line, the status file and the log. Thread-safe."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

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


# --- lines that repeat ------------------------------------------------------------------------------------------------

FLOOD_S: Final = 1.0
"""Of refusals for one reason, of which there may be very many, at most one line in this time."""
REPEAT_AFTER_S: Final = 300.0
"""The same complaint is written again only after this long: a dead network must not fill the flash with logs."""
# So many different failures are remembered; beyond it the oldest is forgotten and may be reported anew.
_MOST: Final = 256


@dataclass(slots=True)
class _Reported:
    at_s: float
    unsaid: int = 0


class FailureLog:
    """One service's failures. Used from that service's thread only.

    Args:
        log: where to.
        monotonic: seconds on the monotonic clock.
        every_s: how soon the same failure may be reported again, seconds.
    """

    def __init__(self, log: logging.Logger, monotonic: Callable[[], float], every_s: float) -> None:
        self._log = log
        self._monotonic = monotonic
        self._every_s = every_s
        self._reported: dict[str, _Reported] = {}

    def report(self, topic: str, text: str, *, every_s: float | None = None, level: int = logging.WARNING) -> None:
        """Write a line unless the same failure was reported lately.

        Args:
            topic: what makes two failures the same.
            text: one line: what happened, and what to do about it.
            every_s: instead of the usual time between two lines.
            level: of the line.
        """
        now_s = self._monotonic()
        last = self._reported.get(topic)
        if last is not None and now_s - last.at_s < (self._every_s if every_s is None else every_s):
            last.unsaid += 1
            return
        again = f" (and {last.unsaid} times more since the last line)" if last is not None and last.unsaid else ""
        self._log.log(level, "%s%s", text, again)
        self._reported.pop(topic, None)
        self._reported[topic] = _Reported(now_s)
        if len(self._reported) > _MOST:
            del self._reported[next(iter(self._reported))]

    def recovered(self, topic: str, text: str) -> None:
        """The failure is over: say so, if it was ever reported."""
        if self._reported.pop(topic, None) is not None:
            self._log.info("%s", text)
