"""The names of what is measured: ``FAMILY.OPERATION``."""

from __future__ import annotations

from typing import Final

from simulator.fleet.metrics.stages import STAGE_OPERATIONS

OPERATIONS: Final = frozenset(
    {
        "http.poll",
        "http.long_poll",
        "http.sensor_data",
        "http.report",
        "http.send_command",
        "http.scan_qr",
        "http.register",
        "http.remove",
        "http.connect",
        "http.read_back",
        "mqtt.connect",
        "mqtt.subscribe",
        "mqtt.sensor_data",
        "mqtt.report",
        "mqtt.command",
    }
    | set(STAGE_OPERATIONS)
)
