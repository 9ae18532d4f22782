"""A body of readings taken apart and put together again, for the faults that spoil what is in it."""

from __future__ import annotations

import json
from typing import Any
from zlib import crc32

from agent.core.values import JsonObject


def open_body(content: bytes) -> tuple[list[JsonObject], bool] | None:
    """The readings in a body of ``POST /sensor-data``, and whether they are an array.

    Returns:
        None when the body is not what a device sends: another fault was there before.
    """
    try:
        document = json.loads(content)
    except ValueError:
        return None
    readings = document if isinstance(document, list) else [document]
    if not all(isinstance(reading, dict) and isinstance(reading.get("sensor_data"), dict) for reading in readings):
        return None
    return readings, isinstance(document, list)


def close_body(readings: list[JsonObject], *, array: bool) -> bytes:
    """The body again. NaN and infinities are written as Python and JavaScript would, which is not JSON."""
    document: Any = readings if array else readings[0]
    return json.dumps(document, separators=(",", ":"), allow_nan=True).encode()


def identity_of(reading: JsonObject) -> int:
    """A number that identifies a reading, however often and with whichever others it is sent."""
    return crc32(json.dumps([reading.get("recorded_at"), reading["sensor_data"]], sort_keys=True).encode())
