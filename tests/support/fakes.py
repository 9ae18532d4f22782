"""The ports, faked: in memory and deterministic; and the agent's own store in memory."""

from __future__ import annotations

import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from agent.core.admission import CommandRules
from agent.core.values import (
    BatchKey,
    CommandPoll,
    CommandState,
    JournalEntry,
    Moment,
    Reading,
    Report,
    SendOutcome,
    StoredReading,
)
from agent.errors import AgentError, StorageError
from agent.health import Health
from agent.runtime.actor import Actor, Context
from agent.runtime.clocks import ServiceClock
from agent.store.outbox import Draft
from agent.store.sqlite import make_tables
from agent.store.store import Store, _Request

START_WALL_S = 1_767_225_600.0
"""2026-01-01T00:00:00Z, where every fake clock starts."""


class FakeClock:
    """A clock that moves when it is told to. Thread-safe."""

    def __init__(self, wall_s: float = START_WALL_S, monotonic_s: float = 1000.0, boot_id: str = "boot-1") -> None:
        self._lock = threading.Lock()
        self._moment = Moment(monotonic_s, wall_s, boot_id)

    def now(self) -> Moment:
        with self._lock:
            return self._moment

    def advance(self, seconds: float) -> Moment:
        """Both clocks go on."""
        with self._lock:
            now = self._moment
            self._moment = Moment(now.monotonic_s + seconds, now.wall_s + seconds, now.boot_id)
            return self._moment

    def set_wall(self, wall_s: float) -> Moment:
        """Somebody sets the wall clock."""
        with self._lock:
            self._moment = replace(self._moment, wall_s=wall_s)
            return self._moment

    def reboot(self, boot_id: str, monotonic_s: float = 10.0) -> Moment:
        """The device starts anew: another boot, the monotonic clock begins again."""
        with self._lock:
            self._moment = Moment(monotonic_s, self._moment.wall_s, boot_id)
            return self._moment


class StoreInMemory(Store):
    """The agent's own store in memory and without its thread: whoever calls does the work. Thread-safe.

    Attributes:
        broken: why each write fails with a StorageError; None while all is well.
    """

    def __init__(self, clock: FakeClock | None = None) -> None:
        super().__init__(Path("in memory"), clock=clock or FakeClock())
        self.broken: str | None = None
        self._guard = threading.RLock()
        self._is_in_transaction = False
        self._db = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
        make_tables(self._db)
        self._last_key = 0

    def call(self, work: Callable[[], Any], *, writes: bool, within_s: float = 0.0) -> Any:
        with self._guard:
            if self._is_in_transaction or not writes:
                return work()
            request = self.submit(work)
            return request.done.result(within_s)

    def submit(self, work: Callable[[], Any], *, writes: bool = True) -> _Request:
        request = _Request(work, writes)
        self._write([request], [])
        return request

    def keep(self, draft: Draft) -> None:
        self._write([], [draft])

    def entries(self) -> dict[str, JournalEntry]:
        """Id -> entry, in the order of admission."""
        return {each.command.id: each for each in self.journal.in_state(*CommandState, limit=1_000_000)}

    def _write(self, requests: list[_Request], drafts: list[Draft]) -> None:
        with self._guard:
            if self.broken is not None:
                raise StorageError(self.broken)
            self._is_in_transaction = True
            try:
                error = self._attempt(requests, drafts, None)
            finally:
                self._is_in_transaction = False
            if error is not None:
                raise error


def make_context(store: StoreInMemory, **members: Any) -> Context:
    """What the agent's actors share, around this store; its wall clock is right."""
    clock = store.clock
    time = ServiceClock(clock, trust_wall=True)
    return Context("d1", store, clock, **{"time": time, "health": Health(clock), "fraction": lambda: 0.5, **members})


class Driven:
    """Drives an actor that has no thread: nothing happens until :meth:`process_all`; the actor is begun at once."""

    def __init__(self, actor: Actor) -> None:
        self.actor = actor
        self.post = actor.post
        actor.begin()

    def process_all(self) -> None:
        """Work off every message and every step that is due by now.

        Raises:
            RuntimeError: there was no end of it: a step leaves itself due, so the thread would spin.
        """
        actor = self.actor
        for _ in range(10_000):
            due_s = actor.due_at()
            if actor._is_closed:
                return
            if due_s is not None and due_s <= actor.now_s():
                actor.step()
            elif not actor._messages.empty():
                actor.receive(actor._messages.get())
            else:
                return
        raise RuntimeError(f"{actor.name} is due again and again without the clock moving on")


class FakeEngine:
    """Takes what is to run, and runs nothing.

    Attributes:
        rules: of admission.
        entries: every entry, in order.
    """

    def __init__(self, rules: CommandRules) -> None:
        self.rules = rules
        self.entries: list[JournalEntry] = []

    def waiting(self) -> dict[str, int]:
        return {}

    def under_way(self) -> dict[str, str | None]:
        return {}

    def is_busy(self) -> bool:
        return False

    def dispatch(self, entry: JournalEntry, *, verify: bool = False) -> None:
        del verify
        self.entries.append(entry)


Scripted = CommandPoll | AgentError | Callable[[], CommandPoll]


class FakeCommandSource:
    """A command source that answers what the test has scripted, then the last answer again and again.

    Attributes:
        acknowledged: every id, in order.
    """

    def __init__(self, answers: Iterable[Scripted] = ()) -> None:
        self.answers: deque[Scripted] = deque(answers)
        self.acknowledged: list[str] = []
        self._last: Scripted = CommandPoll()

    def poll(self, wait_s: float) -> CommandPoll:
        del wait_s
        if self.answers:
            self._last = self.answers.popleft()
        if isinstance(self._last, AgentError):
            raise self._last
        return self._last if isinstance(self._last, CommandPoll) else self._last()

    def acknowledge(self, command_ids: Sequence[str]) -> None:
        self.acknowledged.extend(command_ids)

    def canceled(self, command_ids: Sequence[str]) -> frozenset[str]:
        del command_ids
        return frozenset()

    def interrupt(self) -> None:
        """No poll waits."""


class FakeUplink:
    """An uplink that takes everything, unless the test queues errors or refusals.

    Attributes:
        stored: idempotency key -> reading, what "the service" has.
        sent: every batch as it came.
        reports: every report that was taken.
        send_errors, report_errors: raised by the next calls, one each.
        refuse: key -> reason for readings to refuse for good.
        lose_answers: so many next sends are stored, and then their answer is lost.
    """

    def __init__(self) -> None:
        self.stored: dict[str, Reading] = {}
        self.sent: list[tuple[StoredReading, ...]] = []
        self.reports: list[Report] = []
        self.send_errors: deque[AgentError] = deque()
        self.report_errors: deque[AgentError] = deque()
        self.refuse: dict[int, str] = {}
        self.lose_answers: deque[AgentError] = deque()

    def send(self, readings: Sequence[StoredReading], batch: BatchKey | None = None) -> SendOutcome:
        if self.send_errors:
            raise self.send_errors.popleft()
        self.sent.append(tuple(readings))
        refused = {each.key: self.refuse[each.key] for each in readings if each.key in self.refuse}
        delivered = [each for each in readings if each.key not in refused]
        self.stored.update({each.idempotency_key: each.reading for each in delivered})
        if self.lose_answers:
            raise self.lose_answers.popleft()
        return SendOutcome(tuple(each.key for each in delivered), refused)

    def report(self, report: Report) -> None:
        if self.report_errors:
            raise self.report_errors.popleft()
        self.reports.append(report)
