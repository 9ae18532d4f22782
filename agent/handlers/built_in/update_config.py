"""``update_config``: another configuration, kept only if the agent stays well with it.

What the command brings is a layer over the local file. It is checked in full, written beside the layer before it, and
the agent restarts with it. When the probation is over and nothing is worse than before, the command succeeds; when
something is worse, or when the starts with it keep dying, the layer before it counts again and the command fails.
Either is reported once, by whichever process comes to the end of it.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from agent.core.values import Contract, JsonObject
from agent.handlers.base import (
    CommandContext,
    Handler,
    HandlerFailed,
    HandlerPayload,
    HandlerSettings,
)

DEFAULT_ALLOW = (
    "logging",
    "outbox",
    "commands.poll",
    "commands.long_poll_s",
    "sensors.*.enabled",
    "sensors.*.interval_s",
    "sensors.*.timeout_s",
    "sensors.*.report",
)
"""What may change unless the settings say otherwise: nothing that runs programs, reads files or leads elsewhere."""


class UpdateConfig(Handler):
    """Changes the configuration."""

    name = "update_config"
    description = "Changes the configuration; kept only if the agent stays well with it, else taken back."
    contract = Contract.RESTARTS_DEVICE
    timeout_s = 120.0
    in_safe_mode = True

    class Payload(HandlerPayload):
        """What is laid over the local file."""

        config: str | dict[str, Any] = Field(
            description="The whole layer, as YAML text or as an object; an empty one takes it away."
        )

    class Settings(HandlerSettings):
        """The keys that a command may change, and how long a trial lasts."""

        allow: tuple[str, ...] = Field(
            default=DEFAULT_ALLOW, description="Dotted keys that may change; '*' stands for one name."
        )
        probation_s: Annotated[float, Field(ge=1, le=86400)] = Field(
            default=120.0, description="How long the agent must stay well, s; as long again when it is not at once."
        )

    def handle(self, payload: Payload, context: CommandContext) -> JsonObject | None:
        """Put it on trial; the answer comes from the trial's end.

        Raises:
            HandlerRejected: it is not allowed, not valid, or another one is on trial; nothing was changed.
            HandlerFailed: the agent ended before the trial began; nothing was changed.
        """
        if context.restarted:
            # Had the trial begun, its end would have answered, and nobody would have run this.
            raise HandlerFailed("interrupted", "the agent ended before it took the configuration; send it again")
        context.controls.upkeep.try_configuration(context.command_id, payload.config, self.settings)
        return None
