"""The handlers that maintain the agent, its configuration, log and diagnostics."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from agent.core.values import Contract, JsonObject
from agent.handlers.base import CommandContext, Handler, HandlerFailed, HandlerPayload, HandlerSettings


class LogLevel(Handler):
    """More or fewer log lines for a time, without a restart."""

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

    def handle(self, payload: Payload, context: CommandContext) -> JsonObject:
        """What is in force now, for how long, and what was before."""
        return context.controls.upkeep.set_log_level(payload.level, payload.for_s)


INLINE_BYTES: Final = 45_000
"""What fits into a result of 64 KiB as base64, with the summary beside it."""


class CollectDiagnostics(Handler):
    """What a person needs to find out what is wrong here, in one file and without secrets."""

    name = "collect_diagnostics"
    description = "Writes a bundle without secrets: status, configuration, log, store, system."
    contract = Contract.IDEMPOTENT
    timeout_s = 60.0
    in_safe_mode = True

    class Payload(HandlerPayload):
        """Whether the bundle itself shall come along."""

        inline: bool = Field(default=False, description="Put the file itself into the result, as base64, if it fits.")

    def handle(self, payload: Payload, context: CommandContext) -> JsonObject:
        """``path``, ``size_bytes``, ``sha256``; with ``inline`` also ``base64``, or why it is not there.

        Raises:
            HandlerRejected: it could not be written.
        """
        result = context.controls.upkeep.collect_diagnostics()
        if payload.inline and result["size_bytes"] <= INLINE_BYTES:
            result["base64"] = base64.b64encode(Path(result["path"]).read_bytes()).decode()
        elif payload.inline:
            result["not_inline"] = (
                f"{result['size_bytes']} bytes are more than the {INLINE_BYTES} that fit into a result; fetch the file"
            )
        return result


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
    """Another configuration, kept only if the agent stays well with it.

    What the command brings is a layer over the local file. It is checked in full, written beside the layer before it,
    and the agent restarts with it. When the probation is over and nothing is worse than before, the command succeeds;
    when something is worse, or when the starts with it keep dying, the layer before it counts again and the command
    fails. Either is reported once, by whichever process comes to the end of it.
    """

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
