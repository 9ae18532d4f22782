"""Query and header parameters that several endpoints have, for the document."""

from __future__ import annotations

from typing import Any, Final

from agent.wire import extensions
from agent.wire.base import TIME_RANGE_MS
from agent.wire.limits import PAGE_DEFAULT, PAGE_MAX
from simulator.service.endpoints import Parameter

SINGLE_RECORDS: Final = "single-records"
"""Extension: ``GET`` on the address that a ``Location`` header names, and ``PUT`` on a device's."""

TIME: Final[dict[str, Any]] = {
    "anyOf": [{"type": "string", "format": "date-time"}, {"type": "integer", **TIME_RANGE_MS}],
}
"""RFC 3339 or epoch milliseconds."""

PAGING: Final = (
    Parameter(
        "limit",
        "Items on the page at most. A page also ends at 4 MiB of items: `next_cursor` says whether more follow",
        {"type": "integer", "minimum": 1, "maximum": PAGE_MAX, "default": PAGE_DEFAULT},
    ),
    Parameter("cursor", "`next_cursor` of the page before, with the other parameters unchanged", {"type": "string"}),
    Parameter("order", "Oldest or newest first", {"type": "string", "enum": ["asc", "desc"]}),
)

IDEMPOTENCY_KEY: Final = Parameter(
    "Idempotency-Key",
    "The request is carried out once; its answer is replayed for 24 h",
    {"type": "string", "minLength": 1, "maxLength": 255, "pattern": r"^[!-~]([ -~]*[!-~])?$"},
    place="header",
    extension=extensions.IDEMPOTENCY_KEY,
)


def text_filter(name: str, description: str) -> Parameter:
    """A filter that takes an exact text."""
    return Parameter(name, description, {"type": "string"})
