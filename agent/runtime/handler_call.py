"""A command meets its handler: the rules of triage out of the registry, and one call with all that it may raise."""

from __future__ import annotations

from agent.core.commands import HandlerRule
from agent.core.signed import SignaturePolicy
from agent.core.triage import CommandRules, FirstContact
from agent.core.values import JsonObject, Outcome, OutcomeStatus
from agent.errors import AgentError
from agent.handlers.base import CommandContext, Handler, HandlerFailed, HandlerRejected, Verified
from agent.handlers.payloads import ResultTooLarge, copy_result, read_payload
from agent.handlers.registry import HandlerRegistry

_ERROR_CHARACTERS = 1000


def command_rules(
    registry: HandlerRegistry, *, handler_key: str, first_contact: str, signatures: SignaturePolicy | None = None
) -> CommandRules:
    """The rules of triage: which handlers there are, with their contracts and lanes."""

    def judge(payload: JsonObject) -> str | None:
        # Triage holds the store's thread, where no plug-in's code may run: its payload is checked in the run.
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
    """What triage and recovery need of a handler."""
    return HandlerRule(
        handler.contract,
        handler.lane or handler.name,
        start_timeout_s=handler.start_timeout_s,
        max_attempts=handler.max_attempts,
        verifies=handler.verifies(),
    )


class VerifyInconclusive(AgentError):
    """A verify hook looked and does not know."""


def call_handler(handler: Handler, members: JsonObject, context: CommandContext) -> Outcome:
    """Check the payload and run the handler; whatever they raise becomes an outcome.

    Args:
        handler: runs it.
        members: the payload without the member that names the handler.
        context: of this run.
    """
    try:
        result = handler.handle(read_payload(handler, members), context)
    except HandlerRejected as error:
        return Outcome(OutcomeStatus.REJECTED, error=_bounded(f"{error.code}: {error.message}"))
    except HandlerFailed as error:
        return Outcome(OutcomeStatus.FAILED, error=_bounded(f"{error.code}: {error.message}"))
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
        raise VerifyInconclusive(f"{error.code}: {error.message}") from error
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
