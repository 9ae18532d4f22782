"""Failures: the state of each part for status and log, lines that do not repeat, when to try again,
and threads whose end is noticed.

Source: M. Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015 (full jitter); RFC 9110, section
10.2.3 (``Retry-After``).
"""

from __future__ import annotations

import contextlib
import logging
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from agent.errors import AgentError, ErrorAnswer, InvalidMessage, ServiceError

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
    """The parts by name, such as ``commands``, ``readings``, ``results``, ``sensor:board``, ``lane:ping``. Thread-safe.

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


# --- when what failed is tried again ----------------------------------------------------------------------------------
# Full jitter, doubled with each failure in a row, capped; the service's own ``Retry-After`` is never undercut. The
# caller waits, and calls RetryPolicy.succeeded when the other side answers well again.

BASE_S: Final = 1.0
CAP_S: Final = 300.0
RETRY_AFTER_CAP_S: Final = 3600.0
"""A service that asks for more is asked again after this: a typo there must not silence a device for a month."""

# Full jitter may draw a delay of nothing; this much lies between two attempts whatever is drawn.
_FLOOR_S: Final = 0.1
# 2 ** 32 s is beyond any cap, and keeps the power a small number after a year without network.
_DOUBLINGS_MAX: Final = 32


@dataclass(frozen=True, slots=True)
class Backoff:
    """The failures of one connection in a row, and the next wait.

    Attributes:
        base_s: the first delay is drawn from 0 to this.
        cap_s: no drawn delay is longer.
        failures: failures in a row.
    """

    base_s: float = BASE_S
    cap_s: float = CAP_S
    failures: int = 0

    def failed(self, fraction: float, retry_after_s: float | None = None) -> tuple[Backoff, float]:
        """The state after one more failure, and how long to wait now, seconds.

        Args:
            fraction: a random number in [0, 1).
            retry_after_s: what the service asked for; never undercut, and jitter of up to ``base_s`` or a tenth of it
                comes on top, so that a fleet that was sent the same number does not come back in one step.
        """
        ceiling_s = min(self.cap_s, self.base_s * 2.0 ** min(self.failures, _DOUBLINGS_MAX))
        wait_s = max(_FLOOR_S, fraction * ceiling_s)
        if retry_after_s is not None and retry_after_s > 0:
            asked_s = min(retry_after_s, RETRY_AFTER_CAP_S)
            wait_s = max(wait_s, asked_s + fraction * max(self.base_s, asked_s / 10))
        return replace(self, failures=self.failures + 1), wait_s

    def succeeded(self) -> Backoff:
        """The state after a success: the next failure starts small again."""
        return replace(self, failures=0) if self.failures else self


HOURLY_S: Final = 3600.0
# Wrong keys do not mend themselves in seconds, and a service may lock out a client that keeps trying.
_REFUSED_BASE_S: Final = 60.0
_REFUSED_CAP_S: Final = 900.0


class RetryPolicy:
    """When one thing that failed is tried again: a connection, a disk, a download. Used from one thread.

    Full jitter, doubled with each failure in a row; never sooner than the service asks (``Retry-After``); refusals that
    only a person ends (wrong keys, an unknown device) are tried every 30 s to 15 min.

    Args:
        fraction: random numbers in [0, 1).
        base_s: the first back-off is drawn from 0 to this, seconds.
        cap_s: no drawn back-off is longer, seconds.
    """

    __slots__ = ("_fraction", "_refused", "_usual")

    def __init__(
        self,
        fraction: Callable[[], float] = random.random,
        *,
        base_s: float = BASE_S,
        cap_s: float = CAP_S,
    ) -> None:
        self._fraction = fraction
        self._usual = Backoff(base_s, cap_s)
        self._refused = Backoff(max(base_s, _REFUSED_BASE_S), max(cap_s, _REFUSED_CAP_S))

    def failed(self, error: AgentError | None = None) -> float:
        """How long to wait now, seconds.

        Args:
            error: why it failed, where that changes the wait.
        """
        retry_after_s = error.retry_after_s if isinstance(error, ErrorAnswer) else None
        if isinstance(error, ServiceError) and error.only_a_person_ends_it:
            self._refused, delay_s = self._refused.failed(self._fraction(), retry_after_s)
            # Full jitter may draw nearly nothing, which is right for a network and wrong for a refusal.
            return max(delay_s, self._refused.base_s / 2)
        self._usual, delay_s = self._usual.failed(self._fraction(), retry_after_s)
        return delay_s

    def succeeded(self) -> None:
        """The other side is well."""
        if self._usual.failures or self._refused.failures:
            self._usual, self._refused = self._usual.succeeded(), self._refused.succeeded()


def describe(error: ServiceError | InvalidMessage) -> tuple[str, str, float | None]:
    """One word for the state, one sentence that names the fix, and how often to say it (None: as usual)."""
    if isinstance(error, InvalidMessage):
        return "refused", str(error), None
    sentence = f"{error.meaning} ({error}); {error.fix}" if error.meaning else str(error)
    return error.state, sentence, HOURLY_S if error.only_a_person_ends_it else None


# --- threads ----------------------------------------------------------------------------------------------------------
# Each thread that is to live as long as its process is a WatchedThread. Whatever ends one of them by an exception is
# logged with its traceback and reported; the program then ends with exit code 1, and the service manager starts it
# again. Half a program looks healthy and is not.

_log = logging.getLogger(__name__)

OnCrash = Callable[[str], None]
"""Called with a thread's name, in that thread, when an exception has ended it."""


def only_logged(_name: str) -> None:
    """For a thread in a program that has no supervisor, such as a test or a command."""


@contextlib.contextmanager
def reporting_crash(name: str, on_crash: OnCrash) -> Iterator[None]:
    """Log and report whatever is raised inside, ``SystemExit`` included; nothing leaves it."""
    try:
        yield
    except BaseException:  # noqa: BLE001 - logged with its traceback, and it ends the process
        _log.exception("thread=%s state=crashed: the process ends, so that it is started anew", name)
        on_crash(name)


class WatchedThread(threading.Thread):
    """A daemon thread that reports an exception which ends it.

    Args:
        target: what it does; it returns only when it was stopped.
        name: of the thread.
        on_crash: such as :meth:`agent.runtime.supervisor.Supervisor.crashed`.
    """

    def __init__(self, target: Callable[[], object], *, name: str, on_crash: OnCrash = only_logged) -> None:
        super().__init__(target=target, name=name, daemon=True)
        self._on_crash = on_crash

    def run(self) -> None:
        """Run the thread's function, and report its end."""
        with reporting_crash(self.name, self._on_crash):
            super().run()

    def has_ended(self, within_s: float) -> bool:
        """Wait for its end; True when it has ended in time, or was never started."""
        if self.ident is None:
            return True
        self.join(max(0.0, within_s))
        return not self.is_alive()
