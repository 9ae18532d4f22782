"""``log_level``: more or fewer log lines for a time, without a restart."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from agent.core.values import Contract, JsonObject
from agent.handlers.base import CommandContext, Handler, HandlerPayload


class LogLevel(Handler):
    """Sets the level of the log."""

    name = "log_level"
    description = "Sets the log level for a time; it goes back by itself."
    contract = Contract.IDEMPOTENT
    timeout_s = 10.0
    in_safe_mode = True

    class Payload(HandlerPayload):
        """The payload: the level, and for how long."""

        level: Literal["debug", "info", "warning", "error"] = Field(description="The least severe lines to write.")
        for_s: float = Field(
            default=600.0,
            ge=0,
            le=86400,
            allow_inf_nan=False,
            description="Then the configuration's level counts again, s; 0 at once. A restart ends it, too.",
        )
        logger: str = Field(
            default="",
            max_length=200,
            pattern=r"^[A-Za-z0-9_.]*$",
            description="Only this part, such as 'agent.runtime.readings'; empty for all.",
        )

    def handle(self, payload: Payload, context: CommandContext) -> JsonObject:
        """What is in force now, until when, and what was before.

        Raises:
            HandlerRejected: this logger would write secrets.
        """
        return context.controls.upkeep.set_log_level(payload.level, payload.for_s, payload.logger)
