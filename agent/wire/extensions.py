"""What a server announces in its discovery document, ``GET /.well-known/device-service``: names of extensions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

LONG_POLL: Final = "long-poll"
"""``wait=`` on the device poll."""
COMMAND_RESULTS: Final = "command-results"
"""``POST /devices/{device_id}/commands/{command_id}/result``."""
BATCH_SENSOR_DATA: Final = "batch-sensor-data"
"""An array as the body of ``POST /sensor-data``."""
IDEMPOTENCY_KEY: Final = "idempotency-key"
"""The ``Idempotency-Key`` header on POST."""
READING_KEYS: Final = "reading-keys"
"""``idempotency_key`` in each reading of an array."""
KEY_REUSED: Final = "idempotency_key_reused"
"""``error`` of the 422 that says: this key has been used, for another body."""
COMMAND_EVENTS: Final = "command-events"
"""``GET /commands/events``, server-sent events."""
COMMAND_STATUS: Final = "command-status"
"""``status=`` on the list of a device's commands; the list with ``status=open`` is the truth about what is open."""
COMMAND_TTL: Final = "command-ttl"
"""``ttl_seconds`` in ``POST /commands/send``."""
RECORDED_AT: Final = "recorded-at"
"""``recorded_at`` in ``POST /sensor-data``."""
LIST_PARAMETERS: Final = "list-parameters"
"""Filters, ``order``, ``limit`` and ``cursor`` on lists, by the names in docs/service.md."""

ALL: Final = frozenset(
    {
        LONG_POLL,
        COMMAND_RESULTS,
        BATCH_SENSOR_DATA,
        IDEMPOTENCY_KEY,
        READING_KEYS,
        COMMAND_EVENTS,
        COMMAND_STATUS,
        COMMAND_TTL,
        RECORDED_AT,
        LIST_PARAMETERS,
    }
)
NONE: Final[frozenset[str]] = frozenset()
"""A plain server."""

_VERSION_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class Announcement:
    """What the discovery document says.

    Attributes:
        extensions: their names; none for a plain server.
        version: ``version`` of the document, else the ``Server`` header; empty without both.
    """

    extensions: frozenset[str] = NONE
    version: str = ""


def read_announcement(value: object, server: str = "") -> Announcement:
    """The announcement in a JSON value, whatever it is.

    Args:
        value: the document.
        server: the ``Server`` header.
    """
    document = value if isinstance(value, dict) else {}
    names, version = document.get("extensions"), document.get("version")
    return Announcement(
        frozenset(name for name in names if isinstance(name, str)) if isinstance(names, list) else NONE,
        (version if isinstance(version, str) and version else server)[:_VERSION_MAX],
    )
