"""Which extensions this service has, and its OpenAPI document. Both are read before one has keys."""

from __future__ import annotations

from typing import Final

from agent.wire import extensions, paths
from simulator.service.answers import Answer, ok
from simulator.service.call import Call
from simulator.service.endpoints import Endpoint, Reply
from simulator.service.records import DiscoveryRecord
from simulator.service.routes import rules
from simulator.service.routes.parameters import SINGLE_RECORDS

OFFERED: Final = (
    extensions.BATCH_SENSOR_DATA,
    extensions.COMMAND_EVENTS,
    extensions.COMMAND_RESULTS,
    extensions.COMMAND_STATUS,
    extensions.COMMAND_TTL,
    extensions.IDEMPOTENCY_KEY,
    extensions.LIST_PARAMETERS,
    extensions.LONG_POLL,
    extensions.RECORDED_AT,
    SINGLE_RECORDS,
    rules.FIRINGS,
    rules.MANAGEMENT,
)


async def discover(_call: Call) -> Answer:
    """The extensions of this service; a plain server answers 404 here."""
    return ok({"extensions": OFFERED})


ENDPOINTS: Final = (
    Endpoint(
        "GET",
        paths.DISCOVERY,
        discover,
        "discover",
        "The extensions of this service; a plain server answers 404 here",
        "discovery",
        (Reply(200, "Their names", DiscoveryRecord),),
        extension="discovery",
        public=True,
    ),
)
