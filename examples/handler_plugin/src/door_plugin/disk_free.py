"""The command ``disk_free``: a handler that is only a function."""

from __future__ import annotations

import shutil

from pydantic import Field

from agent import CommandContext, Contract, HandlerPayload, HandlerRejected, JsonObject, handler


class DiskFree(HandlerPayload):
    """Which file system."""

    path: str = Field(default="/", description="Any path on it.")


@handler("disk_free", contract=Contract.IDEMPOTENT, timeout_s=10)
def disk_free(payload: DiskFree, context: CommandContext) -> JsonObject:
    """Tells how much space is left on a file system."""
    try:
        usage = shutil.disk_usage(payload.path)
    except OSError as error:
        raise HandlerRejected("unknown_path", f"{payload.path} cannot be looked at: {error.strerror}") from error
    context.log.info("%d bytes are free on %s", usage.free, payload.path)
    return {"path": payload.path, "total_bytes": usage.total, "free_bytes": usage.free}
