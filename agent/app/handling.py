"""Between the handlers' registry and the lanes: the registry's side of :class:`agent.runtime.jobs.Jobs`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.core.commands import WAITING_MAX, WAITING_PER_LANE_MAX, CommandRules, FirstContact, HandlerRule
from agent.core.values import Command, JsonObject, Outcome, OutcomeStatus
from agent.handlers.loaded import InvalidPayload
from agent.handlers.registry import HandlerRegistry

if TYPE_CHECKING:
    from agent.app.handler_job import HandlerJob
    from agent.core.signed import SignaturePolicy
    from agent.handlers.base import AgentControls


def command_rules(
    registry: HandlerRegistry,
    *,
    handler_key: str,
    max_payload_bytes: int,
    first_contact: str,
    signatures: SignaturePolicy | None = None,
    max_waiting: int = WAITING_MAX,
    max_waiting_per_lane: int = WAITING_PER_LANE_MAX,
) -> CommandRules:
    """What triage goes by, out of the registry and the configuration."""

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
        max_payload_bytes=max_payload_bytes,
        first_contact=FirstContact(first_contact),
        signatures=signatures,
        max_waiting=max_waiting,
        max_waiting_per_lane=max_waiting_per_lane,
    )


class RegistryJobs:
    """Makes a job out of a command.

    Args:
        registry: the handlers.
        device_id, controls: what every handler gets.
        handler_key: the payload's member that names the handler.
    """

    def __init__(self, registry: HandlerRegistry, *, device_id: str, controls: AgentControls, handler_key: str) -> None:
        self._registry = registry
        self._device_id = device_id
        self._controls = controls
        self._handler_key = handler_key

    def prepare(self, command: Command) -> HandlerJob | Outcome:
        """See :meth:`agent.runtime.jobs.Jobs.prepare`."""
        loaded = self._registry.find(command.payload, self._handler_key)
        if isinstance(loaded, InvalidPayload):
            return Outcome(OutcomeStatus.REJECTED, error=str(loaded))
        from agent.app.handler_job import HandlerJob  # with the first command

        members = {name: value for name, value in command.payload.items() if name != self._handler_key}
        return HandlerJob(loaded, members, self._device_id, self._controls)
