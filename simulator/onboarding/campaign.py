"""Thousands of labels through onboarding: open arrivals, retries that never register twice, resume.

One label's way: scan, then the intent on the disk, then the registration. When its answer is lost (no answer, 5xx, or
something unreadable), the list of the user's devices is read before anything else is asked: what is in it is
registered, whoever got the answer. A run that was killed goes on from its file the same way.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final

from agent.errors import AgentError, ErrorAnswer, Forbidden, ServiceError, TransportError, Unauthorized
from agent.wire.models import Device
from simulator.onboarding.agreement import Known, contradictions, is_same
from simulator.onboarding.journey import Action, Answer
from simulator.onboarding.listing import SharedList
from simulator.onboarding.run_file import MARK, DeviceRow, Outcome
from simulator.onboarding.session import Accounts, LabelSession, Observed, Subject

_LOST: Final = frozenset({Answer.FAULT, Answer.NONE, Answer.NONSENSE})
_SHOWN: Final = frozenset({Answer.SHOWN, Answer.SHOWN_SILENT})
_GOOD: Final = frozenset({Outcome.REGISTERED, Outcome.REMOVED, Outcome.FOUND})
_HELD: Final = frozenset({Outcome.REGISTERED, Outcome.FOUND})
_FOUND: Final = (Outcome.REGISTERED, "found in the list")


@dataclass(frozen=True, slots=True)
class CampaignReport:
    """What a campaign did, earlier starts included.

    Attributes:
        outcomes: how many labels ended so.
        devices: identifier -> device id, as far as the service named one.
        faults: one sentence for each label that did not end well, or of which the list says something else.
        unjudged: why something could not be judged; empty when all was.
        took_s, late_s: the 50th, 95th and 99th percentile of how long labels took, and began after they were due;
            empty when this start did none.
        stopped_by: why it stopped early.
        was_interrupted: by Ctrl-C.
    """

    outcomes: dict[str, int]
    devices: dict[str, str]
    faults: tuple[str, ...]
    unjudged: str
    took_s: tuple[float, ...]
    late_s: tuple[float, ...]
    stopped_by: AgentError | None
    was_interrupted: bool

    @property
    def passed(self) -> bool:
        """Whether every label ended well, and the list was read and agrees."""
        return not (self.faults or self.unjudged or self.stopped_by or self.was_interrupted)


@dataclass(slots=True)
class Campaign:
    """One start of a campaign.

    Attributes:
        accounts: who makes the requests; its file has the labels.
        listed: reads the list of our user.
        remove: remove each device of our user, also one that was there before.
        rate: labels that arrive in a second; None begins one as soon as another is done.
        concurrency: labels in flight at once.
        stop: set to end early: what is in flight is finished, nothing more is begun.
    """

    accounts: Accounts
    listed: SharedList
    remove: bool
    rate: float | None
    concurrency: int
    stop: threading.Event
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    _lost_in_a_row: int = field(default=0, init=False)
    _error: AgentError | None = field(default=None, init=False)

    def run(self, on_label: Callable[[int, int], None]) -> CampaignReport:
        """Onboard all labels of the file that are not settled yet.

        Args:
            on_label: called after each, with the labels done and in all.

        Raises:
            sqlite3.Error: the file cannot be written.
        """
        rows = self.accounts.made.devices()
        left = [row for row in rows if row.outcome in {Outcome.WAITING, Outcome.BEGUN} or self._is_to_remove(row)]
        before = len(rows) - len(left)
        was_interrupted = self._dispatch(left, lambda done: on_label(before + done, len(rows)))
        done = {row.key for row in left}
        rows = self.accounts.made.devices()
        timed = [row for row in rows if row.key in done and row.took_s is not None]
        faults, unjudged = self._audit(rows)
        return CampaignReport(
            dict(Counter(row.outcome.value for row in rows)),
            {row.device_identifier: row.device_id for row in rows if row.device_id},
            tuple(faults),
            unjudged,
            _percentiles([row.took_s or 0.0 for row in timed]),
            _percentiles([row.late_s or 0.0 for row in timed]),
            self._error,
            was_interrupted,
        )

    def _is_to_remove(self, row: DeviceRow) -> bool:
        return self.remove and row.outcome in _HELD

    def _dispatch(self, rows: Sequence[DeviceRow], on_done: Callable[[int], object]) -> bool:
        """Begin each label when it is due and there is room; whether Ctrl-C ended it."""
        slots = threading.Semaphore(self.concurrency)
        began_s, done = time.monotonic(), 0

        def onboard(row: DeviceRow, due_s: float) -> None:
            nonlocal done
            try:
                begun_s = time.monotonic()
                self._onboard(row)
                took_s = time.monotonic() - begun_s
                self.accounts.made.note(row, late_s=max(0.0, begun_s - due_s), took_s=took_s)
                with self._lock:
                    done += 1
                    on_done(done)
            except BaseException:
                self.stop.set()
                raise
            finally:
                slots.release()

        begun: list[Future[None]] = []
        was_interrupted = False
        with ThreadPoolExecutor(self.concurrency, thread_name_prefix="onboard") as pool:
            try:
                for number, row in enumerate(rows):
                    due_s = began_s if self.rate is None else began_s + number / self.rate
                    self.stop.wait(max(0.0, due_s - time.monotonic()))
                    slots.acquire()
                    if self.stop.is_set():
                        break
                    begun.append(pool.submit(onboard, row, time.monotonic() if self.rate is None else due_s))
            except KeyboardInterrupt:
                self.stop.set()
                was_interrupted = True
        for one in begun:
            one.result()
        return was_interrupted

    def _onboard(self, row: DeviceRow) -> None:
        name = self.accounts.made.mark + row.device_identifier
        session = LabelSession(self.accounts, Subject(row.text, row.product_id, row.device_identifier, name))
        try:
            if row.outcome in _HELD:
                session.know(row.device_id)
                outcome, detail = row.outcome, row.detail
            else:
                outcome, detail = self._registered(session, row)
            if outcome in _HELD:
                self.accounts.made.note(row, outcome=outcome, device_id=session.device_id, detail=detail)
                if self.remove:
                    outcome, detail = self._removed(session)
        except ServiceError as error:  # no clear answer; the file keeps what was begun
            self._lost(error)
            self.accounts.made.note(row, detail=str(error))
            return
        with self._lock:
            self._lost_in_a_row = 0
        self.accounts.made.note(row, outcome=outcome, device_id=session.device_id, detail=detail)

    def _registered(self, session: LabelSession, row: DeviceRow) -> tuple[Outcome, str]:
        """How the label comes to be registered.

        Raises:
            ServiceError: no clear answer could be had.
        """
        in_doubt = row.outcome is Outcome.BEGUN

        def is_ours() -> bool:
            """Whether a registration whose answer was lost is in the list by now, as this run made it."""
            listed = [device for device in self._listed(row) if (device.device_name or MARK).startswith(MARK)]
            if listed:
                session.device_id = listed[0].device_id
            return bool(listed)

        def register() -> tuple[Outcome, str]:
            nonlocal in_doubt
            if in_doubt and is_ours():
                return _FOUND
            observed = session.perform(Action.REGISTER)
            if observed.answer in _LOST:
                in_doubt = True
                raise _error_of(observed)
            if observed.answer is Answer.CONFLICT:
                return _FOUND if in_doubt and is_ours() else self._whose(session, row)
            if observed.answer in {Answer.LINKED, Answer.LINKED_AGAIN}:
                return Outcome.REGISTERED, observed.detail
            return _refused(observed, "register")

        if in_doubt and is_ours():
            return _FOUND
        scanned = self._again(session, Action.SCAN)
        if scanned.answer is Answer.SHOWN_REGISTERED:
            # What was in doubt may have come through just now, between the list and the scan.
            return _FOUND if in_doubt and is_ours() else self._whose(session, row)
        if scanned.answer not in _SHOWN:
            return _refused(scanned, "scan")
        try:
            return self.accounts.patience.repeat(register)
        except ServiceError:
            if in_doubt and is_ours():
                return _FOUND
            raise

    def _whose(self, session: LabelSession, row: DeviceRow) -> tuple[Outcome, str]:
        """Of a device that was registered before: our user's when the list has it."""
        if listed := self._listed(row):
            session.device_id = listed[0].device_id
            return Outcome.FOUND, "it was registered before"
        if self.listed.read().may_be_cut:
            return Outcome.FOUND, "it was registered before; whose it is, a list that may be cut does not say"
        return Outcome.TAKEN, "it is registered, and not to this user"

    def _removed(self, session: LabelSession) -> tuple[Outcome, str]:
        observed = self._again(session, Action.REMOVE)
        if observed.answer in {Answer.REMOVED, Answer.NOT_FOUND}:
            return Outcome.REMOVED, ""
        return _refused(observed, "remove")

    def _again(self, session: LabelSession, action: Action) -> Observed:
        """An action that is harmless to repeat, until there is a clear answer.

        Raises:
            ServiceError: there was none.
        """

        def ask() -> Observed:
            observed = session.perform(action)
            if observed.answer in _LOST:
                raise _error_of(observed)
            return observed

        return self.accounts.patience.repeat(ask)

    def _listed(self, row: DeviceRow) -> list[Device]:
        known = Known(row.device_identifier, row.product_id)
        return [device for device in self.listed.read().devices if is_same(known, device)]

    def _lost(self, error: ServiceError) -> None:
        """No clear answer: as many in a row as may be in flight, or refused credentials, end the run."""
        with self._lock:
            self._lost_in_a_row += 1
            is_over = self._lost_in_a_row >= self.concurrency or isinstance(error, (Unauthorized, Forbidden))
            if is_over and self._error is None:
                self._error = error
        if is_over:
            self.stop.set()

    def _audit(self, rows: Sequence[DeviceRow]) -> tuple[list[str], str]:
        """Hold the list against the answers: each device exactly once, as it was registered; and why it cannot be."""
        faults = [f"{row.device_identifier}: {row.outcome}: {row.detail}" for row in rows if row.outcome not in _GOOD]
        if isinstance(self._error, (Unauthorized, Forbidden)) or (
            self._error is not None and not isinstance(self._error, ErrorAnswer)
        ):
            return faults, f"the list was not read: {self._error}"
        try:
            listed = self.listed.read()
        except ServiceError as error:
            return faults, f"the list cannot be read: {error}"
        near: dict[str, list[Device]] = {}
        for device in listed.devices:
            for key in {device.device_id, device.device_identifier} - {"", None}:
                near.setdefault(str(key), []).append(device)
        unjudged = ""
        for row in rows:
            if row.outcome not in _GOOD:
                continue
            known = Known(row.device_identifier, row.product_id, row.user_id, row.device_id)
            both = {id(one): one for key in (row.device_id, row.device_identifier) for one in near.get(key, ())}
            found = [device for device in both.values() if is_same(known, device)]
            is_kept = row.outcome is not Outcome.REMOVED
            if is_kept and not found and listed.may_be_cut:
                unjudged = (
                    f"the list has exactly {len(listed.devices)} devices and does not say whether there are more: it "
                    "may be cut, so what is missing in it cannot be judged"
                )
            elif is_kept and not found:
                faults.append(f"{row.device_identifier}: registered, and not in the list of {row.user_id}")
            elif not is_kept and found:
                faults.append(f"{row.device_identifier}: removed, and still in the list of {row.user_id}")
            elif len(found) > 1:
                faults.append(f"{row.device_identifier}: {len(found)} times in the list of {row.user_id}")
            elif found and (wrong := contradictions(known, found[0])):
                faults.append(f"{row.device_identifier}: {'; '.join(wrong)}")
        return faults, unjudged


def _percentiles(values: Sequence[float]) -> tuple[float, ...]:
    if not values:
        return ()
    if len(values) == 1:
        return (values[0],) * 3
    cuts = statistics.quantiles(values, n=100, method="inclusive")
    return cuts[49], cuts[94], cuts[98]


def _refused(observed: Observed, what: str) -> tuple[Outcome, str]:
    """What becomes of a label that was refused.

    Raises:
        ServiceError: it is not about this label.
    """
    if isinstance(observed.error, (Unauthorized, Forbidden)) or observed.answer is Answer.RATE_LIMITED:
        raise _error_of(observed)
    is_wrong = observed.answer in {Answer.CONTRADICTED, Answer.SHOWN_ANOTHER}
    detail = f"{what}: {observed.answer.value}: {observed.detail}"
    return (Outcome.CONTRADICTED if is_wrong else Outcome.REFUSED), detail


def _error_of(observed: Observed) -> ServiceError:
    error = observed.error
    return error if isinstance(error, ServiceError) else TransportError(observed.detail or observed.answer.value)
