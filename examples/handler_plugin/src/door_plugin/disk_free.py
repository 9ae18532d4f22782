"""The command ``disk_free``: the shortest handler."""

from __future__ import annotations

import shutil

from pydantic import Field

from agent import CommandContext, Contract, Handler, HandlerPayload, HandlerRejected, JsonObject


class DiskFree(Handler):
    """Tells how much space is left on a file system."""

    name = "disk_free"
    description = "Tells how much space is left on a file system."
    contract = Contract.IDEMPOTENT
    timeout_s = 10.0

    class Payload(HandlerPayload):
        """Which file system."""

        path: str = Field(default="/", description="Any path on it.")

    def handle(self, payload: Payload, context: CommandContext) -> JsonObject:
        """Its size and what is free of it, bytes."""
        try:
            usage = shutil.disk_usage(payload.path)
        except OSError as error:
            raise HandlerRejected("unknown_path", f"{payload.path} cannot be read: {error.strerror}") from error
        context.log.info("%d bytes are free on %s", usage.free, payload.path)
        return {"path": payload.path, "total_bytes": usage.total, "free_bytes": usage.free}
