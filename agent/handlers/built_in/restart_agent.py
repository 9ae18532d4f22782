"""``restart_agent``: end the agent's process in order; the service manager starts it again.

The command is concluded by the process that comes after: it finds the command started by a process that is no more
and runs the handler again with ``context.restarted``, so ``succeeded`` is reported once and only if the agent is back.
"""

from __future__ import annotations

from pydantic import Field

from agent.core.values import Contract, JsonObject
from agent.handlers.base import CommandContext, Handler, HandlerPayload


class RestartAgent(Handler):
    """Restarts the agent."""

    name = "restart_agent"
    description = "Restarts the agent; succeeds once it is back."
    contract = Contract.RESTARTS_DEVICE
    timeout_s = 60.0
    in_safe_mode = True

    class Payload(HandlerPayload):
        """Why."""

        reason: str = Field(default="", max_length=200, description="Written into the agent's log.")

    def handle(self, payload: Payload, context: CommandContext) -> JsonObject | None:
        """Before the restart: ask for it and return nothing. After it: the identity of the agent that is back."""
        if context.restarted:
            return {"restarted": True, "identity": context.controls.identity()}
        reason = f"command {context.command_id}: {payload.reason or 'restart_agent'}"
        context.controls.request_restart(reason)
        return None
