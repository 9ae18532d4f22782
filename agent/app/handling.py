"""Commands meet the handlers' registry: the rules of triage, and one command with its handler as a job of a lane."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from agent.core.commands import HandlerRule, RunLimits
from agent.core.triage import CommandRules, FirstContact
from agent.core.values import Command, JsonObject, Outcome, OutcomeStatus
from agent.errors import AgentError
from agent.handlers.base import AgentControls, CommandContext, HandlerFailed, HandlerRejected, Verified
from agent.handlers.loaded import InvalidPayload, LoadedHandler, ResultTooLarge, copy_result
from agent.handlers.registry import HandlerRegistry
from agent.runtime.jobs import Attempt

if TYPE_CHECKING:
    from agent.core.signed import SignaturePolicy

_log = logging.getLogger(__name__)

_ERROR_CHARACTERS: Final = 1000

# The default of a handler's unwind_s.
_UNWIND_S: Final = 1.0


def command_rules(
    registry: HandlerRegistry,
    *,
    handler_key: str,
    first_contact: str,
    signatures: SignaturePolicy | None = None,
) -> CommandRules:
    """The rules of triage: which handlers there are, their contracts and lanes, and the configured bounds."""

    def judge(payload: JsonObject) -> str | None:
        # Triage holds the store's thread, where no plug-in's code may run: its payload is checked in the run.
        found = registry.find(payload, handler_key)
        return str(found) if isinstance(found, InvalidPayload) else None

    handlers: dict[str, HandlerRule] = {}
    for name in registry.names():
        loaded = registry.get(name)
        if loaded is not None:
            handlers[name] = HandlerRule(
                loaded.contract,
                loaded.lane,
                start_timeout_s=loaded.start_timeout_s,
                max_attempts=loaded.max_attempts,
                verifies=loaded.handler.verifies(),
            )
    return CommandRules(
        handlers=handlers,
        judge=judge,
        handler_key=handler_key,
        first_contact=FirstContact(first_contact),
        signatures=signatures,
    )


class VerifyInconclusive(AgentError):
    """A verify hook looked and does not know."""


class HandlerJob:
    """One payload with its handler; see :class:`agent.runtime.jobs.Job`.

    Args:
        loaded: the handler.
        members: the payload without the member that names the handler. The handler's model checks it in the run.
        device_id, controls: passed to the handler.
    """

    def __init__(self, loaded: LoadedHandler, members: JsonObject, device_id: str, controls: AgentControls) -> None:
        self.handler = loaded.name
        self.contract = loaded.contract
        self.limits = RunLimits(loaded.timeout_s, loaded.inactivity_timeout_s)
        self._loaded = loaded
        self._members = members
        self._device_id = device_id
        self._controls = controls

    @property
    def unwind_s(self) -> float:
        """How long it may take to end once it was asked to, seconds."""
        try:
            return self._loaded.handler.unwind_s()
        except (Exception, SystemExit):  # noqa: BLE001 - a plug-in may raise anything
            return _UNWIND_S

    def run(self, attempt: Attempt) -> Outcome:
        """Check the payload and run the handler; whatever they raise becomes an outcome."""
        context = self._context(attempt)
        try:
            result = self._call("handle", context)
        except HandlerRejected as error:
            return Outcome(OutcomeStatus.REJECTED, error=_bounded(f"{error.code}: {error.message}"))
        except HandlerFailed as error:
            return Outcome(OutcomeStatus.FAILED, error=_bounded(f"{error.code}: {error.message}"))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a plug-in may raise anything; its command fails
            _log.warning("handler=%s command=%s raised", self.handler, attempt.command_id, exc_info=True)
            return Outcome(OutcomeStatus.FAILED, error=_bounded(f"handler_error: {type(error).__name__}: {error}"))
        return _outcome_of(result, self.handler)

    def verify(self, attempt: Attempt) -> Outcome | None:
        """Ask the handler how an earlier run of the command ended; None when it was not done and may run."""
        try:
            found = self._call("verify", self._context(attempt))
        except HandlerRejected as error:
            raise VerifyInconclusive(f"{error.code}: {error.message}") from error
        if not isinstance(found, Verified):
            raise VerifyInconclusive("it does not know" if found is None else "it returned no Verified")
        if found.outcome is None:
            return None
        if found.outcome.error is not None:
            return Outcome(found.outcome.status, error=_bounded(found.outcome.error))
        return _outcome_of(found.outcome.result, self.handler)

    def _call(self, method: str, context: CommandContext) -> object:
        payload = self._loaded.validate(self._members)
        if isinstance(payload, InvalidPayload):
            raise HandlerRejected(payload.code, payload.message)
        return getattr(self._loaded.handler, method)(payload, context)

    def _context(self, attempt: Attempt) -> CommandContext:
        log = _HandlerLog(_log.getChild(self.handler), {"handler": self.handler, "command": attempt.command_id})

        def report_progress(result: JsonObject) -> None:
            attempt.life.give()
            try:
                attempt.report_progress(copy_result(result))
            except ResultTooLarge as error:
                log.warning("its progress is left out: %s", error)
            except (TypeError, ValueError, RecursionError) as error:
                log.warning("its progress is no JSON and is left out: %s", error)

        return CommandContext(
            command_id=attempt.command_id,
            device_id=self._device_id,
            attempt=attempt.number,
            restarted=attempt.restarted,
            stopping=attempt.stopping,
            log=log,
            controls=self._controls,
            report_progress=report_progress,
            heartbeat=attempt.life.give,
            no_restart=attempt.no_restart.set,
        )


class RegistryJobs:
    """Makes a job out of a command.

    Args:
        registry: the handlers.
        device_id, controls: passed to every handler.
        handler_key: the payload's member that names the handler.
    """

    def __init__(self, registry: HandlerRegistry, *, device_id: str, controls: AgentControls, handler_key: str) -> None:
        self._registry = registry
        self._device_id = device_id
        self._controls = controls
        self._handler_key = handler_key

    def prepare(self, command: Command) -> HandlerJob | Outcome:
        """A job, or the outcome ``rejected`` with its reason. Runs no handler code."""
        loaded = self._registry.find(command.payload, self._handler_key)
        if isinstance(loaded, InvalidPayload):
            return Outcome(OutcomeStatus.REJECTED, error=str(loaded))
        members = {name: value for name, value in command.payload.items() if name != self._handler_key}
        return HandlerJob(loaded, members, self._device_id, self._controls)


class _HandlerLog(logging.LoggerAdapter[logging.Logger]):
    """Adds handler and command to each line of a handler's log (:mod:`agent.app.logs`)."""

    def process(self, msg: Any, kwargs: Any) -> tuple[Any, Any]:
        # Not into the text itself: an id from outside may hold a percent sign.
        return msg, {**kwargs, "extra": {**(kwargs.get("extra") or {}), "members": dict(self.extra or {})}}


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
