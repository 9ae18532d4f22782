"""The names of what is measured: ``FAMILY.OPERATION``."""

from __future__ import annotations

from typing import Final

from simulator.fleet.metrics.ages import AGE_OPERATIONS
from simulator.fleet.metrics.stages import STAGE_OPERATIONS

HELD: Final = frozenset({"http.long_poll"})
"""Held by the service on purpose: what they take says nothing about how quick it is."""

OPERATIONS: Final = frozenset(
    {
        "http.poll",
        "http.sensor_data",
        "http.report",
        "http.send_command",
        "http.scan_qr",
        "http.register",
        "http.remove",
        "http.read_back",
        "http.devices",
        "mqtt.connect",
        "mqtt.sensor_data",
        "mqtt.receipt",
        "mqtt.report",
        "mqtt.status",
        "mqtt.command",
    }
    | HELD
    | set(STAGE_OPERATIONS)
    | set(AGE_OPERATIONS)
)
