"""``/_emulator/...``: looking after a service that is used to develop against. Loopback callers only."""

from __future__ import annotations

from typing import Final

from sqlalchemy import text

from simulator.service.answers import NO_CONTENT, Answer, ok, show_time
from simulator.service.call import Call
from simulator.service.endpoints import Endpoint, Reply
from simulator.service.faults import ServiceFault
from simulator.service.gate import CONTROL_PREFIX
from simulator.service.records import HealthRecord
from simulator.service.storage.migrate import schema_revision

_TAG: Final = "control"


async def show_health(call: Call) -> Answer:
    """Whether the service can read and write."""
    service = call.service
    if not service.writer.is_alive:
        raise ServiceFault(503, "storage_unavailable", "The writing thread has ended; the log says why.")
    service.read_now(lambda connection: connection.execute(text("SELECT 1")).scalar_one())
    now_ms = service.clock.now_ms()
    return ok(
        {
            "status": "ok",
            "time": show_time(now_ms),
            "uptime_s": (now_ms - service.started_ms) / 1000,
            "storage": "memory" if service.database.in_memory else "file",
            "schema": schema_revision(),
        }
    )


async def reset(call: Call) -> Answer:
    """Delete everything but accounts and keys; counts of the quota begin anew."""
    await call.service.reset()
    return NO_CONTENT


ENDPOINTS: Final = (
    Endpoint(
        "GET",
        f"{CONTROL_PREFIX}health",
        show_health,
        "show_health",
        "Whether the service can read and write",
        _TAG,
        (Reply(200, "It can", HealthRecord),),
        public=True,
    ),
    Endpoint(
        "POST",
        f"{CONTROL_PREFIX}reset",
        reset,
        "reset",
        "Delete everything but accounts and keys",
        _TAG,
        (Reply(204, "Done"),),
        public=True,
    ),
)
