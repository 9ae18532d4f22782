"""``ping``: is the agent there, and what time does it believe it is?"""

from __future__ import annotations

import time
from typing import Any

from pydantic import Field

from agent.core.values import Contract, JsonObject
from agent.handlers.base import CommandContext, Handler, HandlerPayload
from agent.wire.times import to_rfc3339


class Ping(Handler):
    """Answers at once."""

    name = "ping"
    description = "Answers with the echo, the device's time and the agent's uptime."
    contract = Contract.IDEMPOTENT
    timeout_s = 10.0
    in_safe_mode = True

    class Payload(HandlerPayload):
        """Any value, which the result repeats."""

        echo: Any = Field(default=None, description="Comes back unchanged; any JSON value.")

    def handle(self, payload: Payload, context: CommandContext) -> JsonObject:
        """The echo, the device's wall clock (RFC 3339) and seconds since the agent started."""
        return {
            "pong": True,
            "echo": payload.echo,
            "agent_time": to_rfc3339(time.time()),
            "agent_uptime_s": context.controls.identity()["agent_uptime_s"],
            "device_id": context.device_id,
        }
