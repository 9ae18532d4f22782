"""``collect_diagnostics``: what a person needs to find out what is wrong here, in one file and without secrets."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Annotated, Final

from pydantic import Field

from agent.core.values import Contract, JsonObject
from agent.handlers.base import CommandContext, Handler, HandlerPayload, HandlerSettings

INLINE_BYTES: Final = 45_000
"""What fits into a result of 64 KiB as base64, with the summary beside it."""


class CollectDiagnostics(Handler):
    """Writes a bundle of diagnostics."""

    name = "collect_diagnostics"
    description = "Writes a bundle without secrets: status, configuration, log, store, system."
    contract = Contract.IDEMPOTENT
    timeout_s = 60.0
    in_safe_mode = True

    class Payload(HandlerPayload):
        """Whether the bundle itself shall come along."""

        inline: bool = Field(default=False, description="Put the file itself into the result, as base64, if it fits.")

    class Settings(HandlerSettings):
        """How much of the disk bundles may take."""

        keep: Annotated[int, Field(ge=1, le=50)] = Field(default=3, description="So many bundles are kept.")
        max_bytes: Annotated[int, Field(ge=16 * 1024, le=64 * 1024 * 1024)] = Field(
            default=1024 * 1024, description="The largest bundle."
        )

    def handle(self, payload: Payload, context: CommandContext) -> JsonObject:
        """``path``, ``size_bytes``, ``sha256``, ``summary``; with ``inline`` also ``base64``, or why it is not there.

        Raises:
            HandlerRejected: it could not be written.
        """
        result = context.controls.upkeep.collect_diagnostics(self.settings)
        if payload.inline and result["size_bytes"] <= INLINE_BYTES:
            result["base64"] = base64.b64encode(Path(result["path"]).read_bytes()).decode()
        elif payload.inline:
            result["not_inline"] = (
                f"{result['size_bytes']} bytes are more than the {INLINE_BYTES} that fit into a result; fetch the file"
            )
        return result
