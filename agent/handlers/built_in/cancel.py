"""``cancel``: take another command of this device back.

It has a lane of its own that no other handler shares, so it gets through while others run, hang or wait. A command
that waits is concluded as ``rejected`` and never runs; one that runs is asked to end, and ends as ``failed``, both with
the reason ``canceled``. Either is remembered over a crash.
"""

from __future__ import annotations

from pydantic import Field

from agent.core.values import Contract, JsonObject
from agent.handlers.base import CommandContext, Handler, HandlerPayload, HandlerRejected


class Cancel(Handler):
    """Takes a waiting or running command back."""

    name = "cancel"
    description = "Takes another command back: one that waits never runs, one that runs is ended."
    contract = Contract.IDEMPOTENT
    timeout_s = 30.0
    lane = "cancel"
    in_safe_mode = True

    class Payload(HandlerPayload):
        """The payload: the command to cancel."""

        command_id: str = Field(min_length=1, max_length=255, description="The service's id of the command.")

    def handle(self, payload: Payload, context: CommandContext) -> JsonObject:
        """How the command was found: ``waiting``, ``running``, ``over`` or ``unknown``; what ended says so itself.

        Raises:
            HandlerRejected: ``cannot_cancel_itself``.
        """
        if payload.command_id == context.command_id:
            raise HandlerRejected("cannot_cancel_itself", "name another command")
        found = context.controls.cancel_command(payload.command_id, f"by command {context.command_id}")
        return {"command_id": payload.command_id, "found": found, "canceled": found in {"waiting", "running"}}
