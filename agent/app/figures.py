"""Counts at the ports: what goes through journal, command source and uplink is counted on its way.

The rest of the agent knows nothing of the counting, and without the section ``metrics`` there is none: this module is
imported only then.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, cast

from agent.app.links import Links
from agent.core.values import (
    Admission,
    BatchKey,
    CommandPoll,
    JournalEntry,
    JournalLookup,
    Moment,
    Report,
    SendOutcome,
    StoredReading,
)
from agent.errors import InvalidMessage, RateLimited, ServiceError
from agent.runtime.retry_policy import describe

if TYPE_CHECKING:
    from agent.ports import Clock, CommandSource, Uplink
    from agent.store.journal import Journal

DURATIONS_S: Final = (0.01, 0.1, 1.0, 10.0, 60.0, 600.0)
"""Upper bounds of the histogram of how long commands run; above the last one is one more."""

OTHER: Final = "other"
"""Stands for every handler that this agent does not have: names come from outside and would grow without end."""


class Figures:
    """What was counted since the start. Thread-safe.

    Args:
        clock: when something answered last.

    Attributes:
        handlers: those with a metrics label of their own.
        commands: (handler, outcome) -> how many ended so.
        requests: (``poll``, ``readings`` or ``report``; result) -> how many.
        durations: how many commands ran at most as long as each of :data:`DURATIONS_S`, and longer.
        duration_sum_s: of all of them.
        rate_limited: answers 429.
        last_contact: when the other side answered last.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self.handlers: frozenset[str] = frozenset()
        self.commands: Counter[tuple[str, str]] = Counter()
        self.requests: Counter[tuple[str, str]] = Counter()
        self.durations = [0] * (len(DURATIONS_S) + 1)
        self.duration_sum_s = 0.0
        self.rate_limited = 0
        self.last_contact: Moment | None = None

    def journal(self, inner: Journal) -> Journal:
        """The same journal; commands that end in it are counted."""
        return cast("Journal", _CountedJournal(inner, self))

    def links(self, inner: Links) -> Links:
        """The same links; requests are counted."""
        source = cast("CommandSource", _CountedSource(inner.source, self))
        return replace(inner, source=source, uplink=cast("Uplink", _CountedUplink(inner.uplink, self)))

    def concluded(self, entries: Iterable[JournalEntry]) -> None:
        """Commands ended, or were refused before they began."""
        with self._lock:
            for entry in entries:
                if entry.outcome is None:
                    continue
                handler = entry.handler if entry.handler in self.handlers else OTHER
                self.commands[handler, str(entry.outcome.status)] += 1
                took_s = _duration_s(entry)
                if took_s is not None:
                    self.durations[bisect_left(DURATIONS_S, took_s)] += 1
                    self.duration_sum_s += took_s

    def answered(self, kind: str, result: str = "ok") -> None:
        """The other side answered."""
        with self._lock:
            self.requests[kind, result] += 1
            self.last_contact = self._clock.now()

    def failed(self, kind: str, error: ServiceError | InvalidMessage) -> None:
        """A request did not go well."""
        with self._lock:
            self.requests[kind, describe(error)[0]] += 1
            self.rate_limited += isinstance(error, RateLimited)

    def copy(self) -> tuple[dict[tuple[str, str], int], dict[tuple[str, str], int], list[int], float]:
        """Commands, requests, durations and their sum, all at one instant."""
        with self._lock:
            return dict(self.commands), dict(self.requests), list(self.durations), self.duration_sum_s


def _duration_s(entry: JournalEntry) -> float | None:
    begun, ended = entry.started, entry.finished
    # Over a reboot it is not known how long it ran.
    if begun is None or ended is None or begun.boot_id != ended.boot_id:
        return None
    return max(0.0, ended.monotonic_s - begun.monotonic_s)


class _Counted:
    """Whatever is not counted goes through as it is."""

    def __init__(self, inner: Any, figures: Figures) -> None:
        self._inner = inner
        self._figures = figures

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class _CountedJournal(_Counted):
    def finish(self, *arguments: Any, **options: Any) -> JournalEntry:
        entry: JournalEntry = self._inner.finish(*arguments, **options)
        self._figures.concluded([entry])
        return entry

    def admit(self, entries: Sequence[JournalEntry], settings: Mapping[str, str] | None = None) -> None:
        self._inner.admit(entries, settings or {})
        self._figures.concluded(entries)

    def decide(
        self,
        command_ids: Sequence[str],
        choose: Callable[[JournalLookup], Admission | None],
        settings: Sequence[str] = (),
    ) -> None:
        chosen: list[JournalEntry] = []

        def listen(found: JournalLookup) -> Admission | None:
            admission = choose(found)
            chosen[:] = () if admission is None else admission.entries
            return admission

        self._inner.decide(command_ids, listen, settings)
        self._figures.concluded(chosen)


class _CountedSource(_Counted):
    def poll(self, wait_s: float) -> CommandPoll:
        try:
            poll: CommandPoll = self._inner.poll(wait_s)
        except (ServiceError, InvalidMessage) as error:
            self._figures.failed("poll", error)
            raise
        self._figures.answered("poll", "unchanged" if poll.unchanged else "ok")
        return poll


class _CountedUplink(_Counted):
    def send(self, readings: Sequence[StoredReading], batch: BatchKey | None = None) -> SendOutcome:
        try:
            outcome: SendOutcome = self._inner.send(readings, batch)
        except (ServiceError, InvalidMessage) as error:
            self._figures.failed("readings", error)
            raise
        self._figures.answered("readings")
        return outcome

    def report(self, report: Report) -> float | None:
        try:
            server_time: float | None = self._inner.report(report)
        except (ServiceError, InvalidMessage) as error:
            self._figures.failed("report", error)
            raise
        self._figures.answered("report")
        return server_time
