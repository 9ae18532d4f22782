"""The public door for plug-in authors: everything that a handler or a sensor needs, and nothing else.

Importing this package costs nothing: each name is imported when it is first used (PEP 562), since root's part of an
update imports this package, too, and takes nothing but the standard library.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

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
]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'agent' has no attribute {name!r}")
    home = "agent.sensors.base" if name.startswith("Sensor") else "agent.handlers.base"
    return getattr(import_module(home), name)
