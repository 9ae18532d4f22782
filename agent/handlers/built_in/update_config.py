"""``update_config``: another configuration, kept only if the agent stays well with it.

What the command brings is a layer over the local file. It is checked in full, put on the disk as a candidate, and the
agent restarts with it. When the probation is over and nothing is worse than before, the candidate becomes the layer in
force and the command succeeds; when something is worse, or when the starts with it keep dying, the layer before it
counts again and the command fails. Either is reported once, by whichever process comes to the end of it.
"""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from agent.core.values import Contract, JsonObject
from agent.handlers.base import (
    CommandContext,
    Handler,
    HandlerFailed,
    HandlerPayload,
    HandlerRejected,
    HandlerSettings,
)
from agent.handlers.upkeep import ConfigChange, UpkeepRefused

DEFAULT_ALLOW = (
    "logging",
    "outbox",
    "commands.poll",
    "commands.long_poll",
    "commands.long_poll_wait_s",
    "sensors.*.enabled",
    "sensors.*.interval_s",
    "sensors.*.timeout_s",
    "sensors.*.report",
)
"""What may change unless the settings say otherwise: nothing that runs programs, reads files or leads elsewhere."""

_SHA256 = r"^[0-9a-f]{64}$"


class UpdateConfig(Handler):
    """Changes the configuration."""

    name = "update_config"
    description = "Changes the configuration; kept only if the agent stays well with it, else taken back."
    contract = Contract.RESTARTS_DEVICE
    timeout_s = 120.0
    in_safe_mode = True

    class Payload(HandlerPayload):
        """The whole layer, or what changes in it."""

        config: str | dict[str, Any] | None = Field(
            default=None, description="The whole layer, as YAML text or as an object; an empty one takes it away."
        )
        patch: dict[str, Any] | None = Field(
            default=None, description="What changes in the layer in force (RFC 7396); null takes a key out of the file."
        )
        base_sha256: str | None = Field(
            default=None, pattern=_SHA256, description="Of the layer that this one replaces; another one refuses it."
        )

        @model_validator(mode="after")
        def _check_one_given(self) -> Self:
            if (self.config is None) == (self.patch is None):
                raise ValueError("give either 'config' or 'patch'")
            return self

    class Settings(HandlerSettings):
        """The keys that a command may change, and how long a trial lasts."""

        allow: tuple[str, ...] = Field(
            default=DEFAULT_ALLOW, description="Dotted keys that may change; '*' stands for one name."
        )
        probation_s: Annotated[float, Field(ge=1, le=86400)] = Field(
            default=120.0, description="How long the agent must stay well, s; as long again when it is not at once."
        )
        max_starts: Annotated[int, Field(ge=1, le=20)] = Field(
            default=3, description="So many starts may fail on probation before the layer is taken back."
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
        settings = self.settings if isinstance(self.settings, self.Settings) else self.Settings()
        change = ConfigChange(
            command_id=context.command_id,
            config=payload.config,
            patch=payload.patch,
            base_sha256=payload.base_sha256,
            allow=settings.allow,
            probation_s=settings.probation_s,
            max_starts=settings.max_starts,
        )
        try:
            context.controls.upkeep.try_configuration(change)
        except UpkeepRefused as error:
            raise HandlerRejected(error.code, error.message) from error
        return None
