"""``identify``: who is this device?"""

from __future__ import annotations

from agent.core.values import Contract, JsonObject
from agent.handlers.base import CommandContext, Handler, NoPayload


class Identify(Handler):
    """Answers with the device's identity."""

    name = "identify"
    description = "Answers with the device's identity."
    contract = Contract.IDEMPOTENT
    in_safe_mode = True

    def handle(self, payload: NoPayload, context: CommandContext) -> JsonObject:
        """The identity."""
        del payload
        return dict(context.controls.identity())
