"""Thousands of labels through onboarding: open arrivals, one quota, retries that never register twice, resume.

One label's way: scan, then the intent on the disk, then the registration. When its answer is lost (no answer, 5xx, or
something unreadable), the list of the user's devices is read before anything else is asked: what is in it is
registered, whoever got the answer. A run that was killed goes on from its journal the same way.
"""

from __future__ import annotations

import hashlib
import random
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Final

from agent.core.backoff import Backoff
from agent.errors import AgentError, ErrorAnswer, Forbidden, ServiceError, Unauthorized
from agent.wire.devices import Device
from simulator.onboarding.case_labels import ProductAccount
from simulator.onboarding.cleanup import is_at, note_outcome, user_devices
from simulator.onboarding.journal import Place, leftovers, place_of
from simulator.onboarding.journey import Action, Answer
from simulator.onboarding.listing import Lister, compare_with_list
from simulator.onboarding.outcomes import CampaignReport, LabelResult, ListAudit, Outcome, Plan
from simulator.onboarding.quota import Timing
from simulator.onboarding.steps import LabelSession, Observed, RunContext, Subject

_BASE_S: Final = 0.5
_CAP_S: Final = 15.0
_LOST: Final = frozenset({Answer.FAULT, Answer.NONE, Answer.NONSENSE})
_SHOWN: Final = frozenset({Answer.SHOWN, Answer.SHOWN_SILENT})


class Campaign:
    """One start of a campaign.

    Args:
        plan: what to do.
        context: of the run, with its journal.
        home: the same account, for lists.
        timing: clock and sleep; a sleep ends early once ``stop`` is set.
        stop: set to end early: what is in flight is finished, nothing more is begun.
        draw: a random number in [0, 1).
    """

    def __init__(
        self,
        plan: Plan,
        context: RunContext,
        home: ProductAccount,
        timing: Timing,
        *,
        stop: threading.Event | None = None,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._plan = plan
        self._context = context
        self._home = home
        self._timing = timing
        self._stop = stop or threading.Event()
        self._draw = draw
        self._lock = threading.Lock()
        self._lister = Lister(lambda: user_devices(home, plan.user_id))
        self._ambiguous = 0
        self._unsettled_in_a_row = 0
        self._stopped_by: AgentError | None = None
        self._broken: Exception | None = None
        left = leftovers(context.journal.entries)
        self._doubtful = set(left.in_doubt)
        self._made = {place: device_id for device_id, place in left.devices.items()}
        self._settled = {
            place_of(entry): LabelResult(
                Subject("", str(entry["product_id"]), str(entry["device_identifier"])),
                Outcome(entry["outcome"]),
                str(entry.get("device_id", "")),
                str(entry.get("detail", "")),
                settled_by="journal",
            )
            for entry in context.journal.entries
            if entry["event"] == "settled"
        }

    def run(self, subjects: Sequence[Subject], on_label: Callable[[int, int], None] | None = None) -> CampaignReport:
        """Onboard all labels that are not settled yet.

        Raises:
            ConfigurationError: the journal cannot be written; nothing was registered that is not in it.
        """
        began_s = self._timing.clock()
        results: dict[int, LabelResult] = {}
        waiting: list[tuple[int, Subject]] = []
        for index, subject in enumerate(subjects):
            settled = self._settled.get(self._place(subject))
            if settled is None:
                waiting.append((index, subject))
            else:
                results[index] = replace(settled, subject=subject)
        was_interrupted = self._dispatch(waiting, results, on_label, len(subjects))
        if self._broken is not None:
            raise self._broken
        ordered = [results[index] for index in sorted(results)]
        is_gone = isinstance(self._stopped_by, ServiceError) and not isinstance(self._stopped_by, ErrorAnswer)
        if is_gone:
            audited = ListAudit(problem=str(self._stopped_by))
        else:
            audited, ordered = compare_with_list(ordered, self._lister, self._plan.user_id)
        return CampaignReport(
            tuple(ordered),
            len(subjects) - len(ordered),
            self._ambiguous,
            audited,
            self._timing.clock() - began_s,
            self._stopped_by,
            was_interrupted,
        )

    # --- arrivals -----------------------------------------------------------------------------------------------------

    def _dispatch(
        self,
        waiting: Sequence[tuple[int, Subject]],
        results: dict[int, LabelResult],
        on_label: Callable[[int, int], None] | None,
        total: int,
    ) -> bool:
        """Begin each label when it is due and there is room; whether Ctrl-C ended it."""
        slots = threading.Semaphore(self._plan.concurrency)
        began_s = self._timing.clock()
        began_at = self._context.wall()
        done = len(results)

        def onboard(index: int, subject: Subject, due_s: float) -> None:
            nonlocal done
            try:
                begun_s = self._timing.clock()
                result = self._onboard(subject, began_at + due_s - began_s)
                took_s = self._timing.clock() - begun_s
                with self._lock:
                    results[index] = replace(result, begun_late_s=max(0.0, begun_s - due_s), took_s=took_s)
                    done += 1
                    if on_label:
                        on_label(done, total)
            except Exception as problem:  # noqa: BLE001 - raised again by the caller's thread
                self._broken = self._broken or problem
                self._stop.set()
            finally:
                slots.release()

        with ThreadPoolExecutor(self._plan.concurrency, thread_name_prefix="onboard") as pool:
            try:
                for number, (index, subject) in enumerate(waiting):
                    due_s = began_s if self._plan.rate is None else began_s + number / self._plan.rate
                    while not self._stop.is_set() and (early_s := due_s - self._timing.clock()) > 0:
                        self._timing.sleep(early_s)
                    slots.acquire()
                    due_s = self._timing.clock() if self._plan.rate is None else due_s
                    if self._stop.is_set():
                        break
                    pool.submit(onboard, index, subject, due_s)
            except KeyboardInterrupt:
                self._stop.set()
                return True
        return False

    # --- one label ----------------------------------------------------------------------------------------------------

    def _onboard(self, subject: Subject, intended_at: float) -> LabelResult:
        session = LabelSession(self._context, subject, self._timing.clock)
        place = self._place(subject)
        try:
            result = self._registered(session, place, intended_at)
            if result.outcome is Outcome.REGISTERED and self._plan.remove:
                result = self._removed(session, place, result)
        except ServiceError as error:  # the list could not be read
            result = self._unsettled(subject, error, f"list: {error}")
        result = replace(result, is_new=session.is_new)
        self._note(place, result)
        return result

    def _registered(self, session: LabelSession, place: Place, intended_at: float) -> LabelResult:
        """How the label comes to be registered.

        Raises:
            ServiceError: the list cannot be read.
        """
        subject = session.subject
        made, in_doubt = self._made.get(place), place in self._doubtful
        if made is not None:
            session.device_id = made
            return LabelResult(subject, Outcome.REGISTERED, made, settled_by="journal")
        if in_doubt and (found := self._claim(session, place)):
            return found
        scanned = self._again(session, Action.SCAN, intended_at)
        if scanned.answer is Answer.SHOWN_REGISTERED:
            # What was in doubt may have come through just now, between the list and the scan.
            claimed = self._claim(session, place) if in_doubt else None
            return claimed or LabelResult(subject, Outcome.FOUND, detail="the scan says that it is registered")
        if scanned.answer not in _SHOWN:
            return self._failed(subject, scanned, "scan")
        return self._register(session, place, in_doubt=in_doubt)

    def _register(self, session: LabelSession, place: Place, *, in_doubt: bool) -> LabelResult:
        subject = session.subject
        backoff = Backoff(_BASE_S, _CAP_S)
        while True:
            observed = session.perform(Action.REGISTER, attempt=backoff.failures + 1)
            if observed.answer in {Answer.LINKED, Answer.LINKED_AGAIN}:
                return LabelResult(subject, Outcome.REGISTERED, observed.device_id, observed.detail)
            if observed.answer is Answer.CONFLICT and not in_doubt:
                outcome = Outcome.FOUND if self._listed(place) else Outcome.TAKEN
                return LabelResult(subject, outcome, detail=observed.detail)
            if observed.answer is Answer.CONFLICT:
                return self._claim(session, place) or LabelResult(subject, Outcome.TAKEN, detail=observed.detail)
            if observed.answer not in _LOST:
                return self._failed(subject, observed, "register")
            in_doubt = True
            with self._lock:
                self._ambiguous += 1
            if found := self._claim(session, place):
                return found
            if backoff.failures + 1 >= self._plan.attempts or self._stop.is_set():
                return self._failed(subject, observed, "register")
            backoff, wait_s = backoff.failed(self._draw(), _asked_s(observed))
            self._timing.sleep(wait_s)

    def _removed(self, session: LabelSession, place: Place, result: LabelResult) -> LabelResult:
        if not session.device_id and (listed := self._listed(place)):  # a plain server may not have named it before
            session.device_id = listed[0].device_id
        observed = self._again(session, Action.REMOVE)
        if observed.answer is Answer.NOT_FOUND:
            self._context.journal.add("removed", account="", device_id=session.device_id)
        if observed.answer in {Answer.REMOVED, Answer.NOT_FOUND}:
            return replace(result, outcome=Outcome.REMOVED, device_id=session.device_id)
        return self._failed(session.subject, observed, "remove")

    def _again(self, session: LabelSession, action: Action, intended_at: float | None = None) -> Observed:
        """An action that is harmless to repeat, until there is a clear answer."""
        backoff = Backoff(_BASE_S, _CAP_S)
        while True:
            attempt = backoff.failures + 1
            observed = session.perform(action, attempt=attempt, intended_at=intended_at if attempt == 1 else None)
            if observed.answer not in _LOST or attempt >= self._plan.attempts or self._stop.is_set():
                return observed
            backoff, wait_s = backoff.failed(self._draw(), _asked_s(observed))
            self._timing.sleep(wait_s)

    def _listed(self, place: Place) -> list[Device]:
        """The devices of this place that our user's list has by now.

        Raises:
            ServiceError: the list cannot be read.
        """
        return [device for device in self._lister.read() if is_at(device, place)]

    def _claim(self, session: LabelSession, place: Place) -> LabelResult | None:
        """What became of a registration whose answer was lost; None when the list does not have the device (yet)."""
        listed = self._listed(place)
        if not listed:
            return None
        note_outcome(self._context.journal, place, listed)
        session.device_id = listed[0].device_id
        return LabelResult(
            session.subject, Outcome.REGISTERED, session.device_id, "found in the list", settled_by="list"
        )

    def _failed(self, subject: Subject, observed: Observed, what: str) -> LabelResult:
        detail = f"{what}: {observed.answer.value}: {observed.detail}"
        if isinstance(observed.error, (Unauthorized, Forbidden)):
            self._end(observed.error)
            return LabelResult(subject, Outcome.UNSETTLED, detail=detail)
        if observed.answer in _LOST or observed.answer is Answer.RATE_LIMITED:
            return self._unsettled(subject, observed.error, detail)
        is_wrong = observed.answer in {Answer.CONTRADICTED, Answer.SHOWN_ANOTHER}
        return LabelResult(subject, Outcome.CONTRADICTED if is_wrong else Outcome.REFUSED, detail=detail)

    def _unsettled(self, subject: Subject, error: AgentError | None, detail: str) -> LabelResult:
        """No clear answer; as many in a row as may be in flight, and the service is taken for gone."""
        with self._lock:
            self._unsettled_in_a_row += 1
            is_over = self._unsettled_in_a_row >= self._plan.concurrency
        if is_over and error is not None:
            self._end(error)
        return LabelResult(subject, Outcome.UNSETTLED, detail=detail)

    def _end(self, error: AgentError) -> None:
        self._stopped_by = self._stopped_by or error
        self._stop.set()

    def _note(self, place: Place, result: LabelResult) -> None:
        if result.outcome is Outcome.UNSETTLED:
            return
        with self._lock:
            self._unsettled_in_a_row = 0
        self._context.journal.add(
            "settled",
            account="",
            user_id=place.user_id,
            product_id=place.product_id,
            device_identifier=place.device_identifier,
            outcome=result.outcome.value,
            device_id=result.device_id,
            detail=result.detail,
        )

    def _place(self, subject: Subject) -> Place:
        return Place("", self._plan.user_id, subject.product_id, subject.device_identifier)


def _asked_s(observed: Observed) -> float | None:
    return observed.error.retry_after_s if isinstance(observed.error, ErrorAnswer) else None


def key_of(run: str) -> Callable[[str, str], str]:
    """The idempotency key of each registration of a run: the same one however often it is sent."""

    def key(product_id: str, device_identifier: str) -> str:
        digest = hashlib.sha256(f"{product_id}\n{device_identifier}".encode()).hexdigest()
        return f"onboard-{run}-{digest[:32]}"

    return key
