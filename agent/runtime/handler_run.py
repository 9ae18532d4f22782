"""One call of a handler in a thread of its own, and the rules for it out of the registry."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from agent.core.admission import CommandRules, FirstContact
from agent.core.commands import HandlerRule
from agent.core.signed import SignaturePolicy
from agent.core.values import JournalEntry, JsonObject, Outcome, OutcomeStatus
from agent.errors import AgentError
from agent.handlers.base import CommandContext, Handler, HandlerFailed, HandlerRejected, Verified
from agent.handlers.payloads import ResultTooLarge, copy_result, read_payload
from agent.handlers.registry import HandlerRegistry

if TYPE_CHECKING:
    from agent.runtime.engine import EngineParts

_log = logging.getLogger(__name__)

_ERROR_CHARACTERS: Final = 1000

Work = Callable[[Handler, JsonObject, CommandContext], Outcome | None]
"""What to do with a handler, its payload without the member that names it, and the context of the run."""


class HandlerRun(threading.Thread):
    """One call of a handler.

    Attributes:
        stopping: set when the handler shall end.
        no_restart: set when a handler of the contract ``restarts_device`` had nothing to restart.
        wake: set at its end, its cancel, the stop, and when it has reported progress.
        alive_s: when it last gave a sign of life, ``time.monotonic()``.
        is_over: it has come back.
        is_left: the agent stops and it did not end within the grace: the command stays ``started``.
        is_unstarted: it never began.
        why: why it had to end, ``code: sentence``; empty when it ended by itself.
        result: what it returned.
        error: what it raised, as text.
    """

    def __init__(self, parts: EngineParts, handler: Handler, entry: JournalEntry, work: Work) -> None:
        super().__init__(name=f"run:{handler.name}", daemon=True)
        self.command_id = command_id = entry.command.id
        self.handler = handler.name
        self.stopping = threading.Event()
        self.no_restart = threading.Event()
        self.wake = threading.Event()
        self.alive_s = time.monotonic()
        self.is_over = self.is_left = self.is_unstarted = False
        self.why = self.error = ""
        self.result: Outcome | None = None
        self._progress: JsonObject | None = None
        self._log = HandlerLog(_log.getChild(handler.name), {"handler": handler.name, "command": command_id})
        context = CommandContext(
            command_id=command_id,
            device_id=parts.device_id,
            attempt=entry.attempts + 1,
            restarted=entry.attempts > 0,
            stopping=self.stopping,
            log=self._log,
            controls=parts.controls,
            report_progress=self._report_progress,
            heartbeat=self._give_sign_of_life,
            no_restart=self.no_restart.set,
        )
        key = parts.rules.handler_key
        members = {name: value for name, value in entry.command.payload.items() if name != key}
        self._work = partial(work, handler, members, context)

    def run(self) -> None:
        """Call the handler; nothing that it raises leaves here."""
        self.alive_s = time.monotonic()
        try:
            self.result = self._work()
        except BaseException as error:  # noqa: BLE001 - whatever a plug-in raises ends its command and nothing else
            self.error = f"{type(error).__name__}: {error}"
        self.is_over = True
        self.wake.set()

    def do_not_start(self, outcome: Outcome) -> None:
        """It never begins, and this is how its command ends."""
        self.is_unstarted = True
        self.why = outcome.error or ""
        self.result = outcome

    def outcome(self) -> Outcome:
        """How its command ends: by what it returned, or by why it had to end, with what it said about that."""
        own = self.result or Outcome(OutcomeStatus.FAILED, None, f"handler_error: {self.error}" if self.error else None)
        if not self.why or self.is_unstarted:
            return own
        text = f"{self.why}; {own.error}" if own.error else self.why
        return Outcome(OutcomeStatus.FAILED, own.result if self.is_over else None, text)

    @property
    def has_progress(self) -> bool:
        """It has reported progress that nobody has taken."""
        return self._progress is not None

    def take_progress(self) -> JsonObject | None:
        """The newest report of progress, once; None when there is none."""
        progress, self._progress = self._progress, None
        return progress

    def _report_progress(self, result: JsonObject) -> None:
        self._give_sign_of_life()
        try:
            self._progress = copy_result(result)
        except ResultTooLarge as error:
            self._log.warning("its progress is left out: %s", error)
        except (TypeError, ValueError, RecursionError) as error:
            self._log.warning("its progress is no JSON and is left out: %s", error)
        self.wake.set()

    def _give_sign_of_life(self) -> None:
        self.alive_s = time.monotonic()


class HandlerLog(logging.LoggerAdapter[logging.Logger]):
    """Adds handler and command to each line of a handler's log (:mod:`agent.app.logs`)."""

    def process(self, msg: Any, kwargs: Any) -> tuple[Any, Any]:
        """See :meth:`logging.LoggerAdapter.process`."""
        # Not into the text itself: an id from outside may hold a percent sign.
        return msg, {**kwargs, "extra": {**(kwargs.get("extra") or {}), "members": dict(self.extra or {})}}


def command_rules(
    registry: HandlerRegistry, *, handler_key: str, first_contact: str, signatures: SignaturePolicy | None = None
) -> CommandRules:
    """The rules of admission: which handlers there are, with their contracts and lanes."""

    def judge(payload: JsonObject) -> str | None:
        # The decision holds the store's thread, where no plug-in's code may run: its payload is checked in the run.
        try:
            registry.find(payload, handler_key)
        except HandlerRejected as refusal:
            return str(refusal)
        return None

    return CommandRules(
        handlers={handler.name: rule_of(handler) for handler in registry.ready()},
        judge=judge,
        handler_key=handler_key,
        first_contact=FirstContact(first_contact),
        signatures=signatures,
    )


def rule_of(handler: Handler) -> HandlerRule:
    """What admission and recovery need of a handler."""
    return HandlerRule(
        handler.contract,
        handler.lane or handler.name,
        start_timeout_s=handler.start_timeout_s,
        max_attempts=handler.max_attempts,
        verifies=handler.verifies(),
    )


class VerifyInconclusive(AgentError):
    """A verify hook does not know how the command ended."""


def call_handler(handler: Handler, members: JsonObject, context: CommandContext) -> Outcome:
    """Check the payload and run the handler; whatever they raise becomes an outcome.

    Args:
        handler: runs it.
        members: the payload without the member that names the handler.
        context: of this run.
    """
    try:
        result = handler.handle(read_payload(handler, members), context)
    except HandlerFailed as error:
        status = OutcomeStatus.REJECTED if isinstance(error, HandlerRejected) else OutcomeStatus.FAILED
        return Outcome(status, error=_bounded(str(error)))
    except (Exception, SystemExit) as error:
        context.log.warning("the handler raised", exc_info=True)
        return Outcome(OutcomeStatus.FAILED, error=_bounded(f"handler_error: {type(error).__name__}: {error}"))
    return _outcome_of(result, handler.name)


def ask_handler(handler: Handler, members: JsonObject, context: CommandContext) -> Outcome | None:
    """Ask the handler how an earlier run of the command ended; None when it was not done and may run.

    Raises:
        Exception: the handler does not know; the text says why.
    """
    try:
        found = handler.verify(read_payload(handler, members), context)
    except HandlerRejected as error:
        raise VerifyInconclusive(str(error)) from error
    if not isinstance(found, Verified):
        raise VerifyInconclusive("it does not know" if found is None else "it returned no Verified")
    if found.outcome is None:
        return None
    if found.outcome.error is not None:
        return Outcome(found.outcome.status, error=_bounded(found.outcome.error))
    return _outcome_of(found.outcome.result, handler.name)


def _outcome_of(result: object, handler: str) -> Outcome:
    """What the handler returned, if it can travel as JSON."""
    if result is None:
        return Outcome(OutcomeStatus.SUCCEEDED)
    if not isinstance(result, dict):
        text = f"bad_result: {handler!r} returned {type(result).__name__}, not a JSON object or None; it did run"
        return Outcome(OutcomeStatus.FAILED, error=text)
    try:
        copied: JsonObject = copy_result(result)
    except ResultTooLarge as error:
        return Outcome(OutcomeStatus.FAILED, error=f"result_too_large: {handler!r} did run, but {error}")
    except (TypeError, ValueError, RecursionError) as error:
        text = f"bad_result: {handler!r} returned what is no JSON: {error}; it did run"
        return Outcome(OutcomeStatus.FAILED, error=_bounded(text))
    return Outcome(OutcomeStatus.SUCCEEDED, copied)


def _bounded(text: str) -> str:
    line = " ".join(text[: 4 * _ERROR_CHARACTERS].split())
    return line if len(line) <= _ERROR_CHARACTERS else f"{line[:_ERROR_CHARACTERS]}..."
