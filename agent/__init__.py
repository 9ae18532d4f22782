"""The public door for plug-in authors: everything that a handler or a sensor needs.

Importing this package costs nothing: each name is imported when it is first used (PEP 562).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from agent.core.values import Contract, JsonObject
    from agent.handlers.base import (
        AgentControls,
        CommandContext,
        Handler,
        HandlerFailed,
        HandlerPayload,
        HandlerRejected,
        HandlerSettings,
        NoPayload,
        Verified,
        handler,
    )
    from agent.sensors.base import Sensor, SensorFailed, SensorSettings

__all__ = [
    "AgentControls",
    "CommandContext",
    "Contract",
    "Handler",
    "HandlerFailed",
    "HandlerPayload",
    "HandlerRejected",
    "HandlerSettings",
    "JsonObject",
    "NoPayload",
    "Sensor",
    "SensorFailed",
    "SensorSettings",
    "Verified",
    "handler",
]

_HOMES: Final = {
    **dict.fromkeys(["Contract", "JsonObject"], "agent.core.values"),
    **dict.fromkeys(["Sensor", "SensorFailed", "SensorSettings"], "agent.sensors.base"),
    **dict.fromkeys(
        [
            "AgentControls",
            "CommandContext",
            "Handler",
            "HandlerFailed",
            "HandlerPayload",
            "HandlerRejected",
            "HandlerSettings",
            "NoPayload",
            "Verified",
            "handler",
        ],
        "agent.handlers.base",
    ),
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'agent' has no attribute {name!r}")
    value: object = getattr(import_module(home), name)
    globals()[name] = value  # the next look-up does not come here
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
