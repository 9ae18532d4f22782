"""The configuration's sections as the plug-in registries take them, and what commands say of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from agent.config import AgentConfig
from agent.core.schedule import ReportRule, ReportStrategy
from agent.core.values import Priority
from agent.handlers.registry import HandlerRegistry
from agent.plugins import PluginInfo, PluginStatus, states_of
from agent.sensors.reader import SensorReader
from agent.sensors.registry import SensorRegistry

if TYPE_CHECKING:
    from agent.app.status_file import StatusFile


def load_handlers(config: AgentConfig, *, safe_mode: bool = False) -> HandlerRegistry:
    """Every handler that is built in, installed or declared; failing ones are listed, never raised.

    Args:
        config: its sections ``commands.handlers`` and ``executables`` count.
        safe_mode: only those that examine or repair the device.
    """
    return HandlerRegistry.load(config.commands.handlers, config.executables, safe_mode=safe_mode)


def load_sensors(config: AgentConfig) -> SensorRegistry:
    """Every configured sensor; failing ones are listed, never raised."""
    return SensorRegistry.load({sensor.name: sensor for sensor in config.sensors})


def priorities(config: AgentConfig) -> dict[str, Priority]:
    """Sensor name -> the priority of its readings."""
    return {sensor.name: Priority[sensor.priority.upper()] for sensor in config.sensors}


def report_rules(config: AgentConfig) -> dict[str, ReportRule]:
    """Sensor name -> which of its readings are sent."""
    return {
        sensor.name: ReportRule(
            when=ReportStrategy(sensor.report.when),
            deadband=sensor.report.deadband,
            at_least_every_s=sensor.report.at_least_every_s,
        )
        for sensor in config.sensors
    }


@dataclass(frozen=True, slots=True)
class SensorFinding:
    """One configured sensor, read once."""

    name: str
    type: str
    state: str
    reason: str = ""
    values: Mapping[str, float] = field(default_factory=dict)

    @property
    def is_good(self) -> bool:
        """It was read, or is switched off on purpose."""
        return self.state in {"ok", str(PluginStatus.DISABLED)}


def read_sensors(config: AgentConfig, running: StatusFile | None) -> list[SensorFinding]:
    """Read each configured sensor once, all at the same time, each within its timeout.

    Args:
        config: its section ``sensors`` counts.
        running: of the agent that runs. What it says of a sensor counts: it may hold the device that this process
            cannot open. None: no agent runs.
    """
    registry = load_sensors(config)
    reader = SensorReader(registry.ready())
    results = reader.read()
    reader.close()
    findings = []
    for info in registry.listing():
        result = results.get(info.name)
        if result is None:
            found = SensorFinding(info.name, info.type, str(info.status), info.reason)
        elif result.error is not None:
            found = SensorFinding(info.name, info.type, "failing", result.error)
        else:
            found = SensorFinding(info.name, info.type, "ok", "; ".join(result.refused), dict(result.values))
        part = None if running is None else running.parts.get(f"sensor:{info.name}")
        if part is not None and (part.state == "ok") is not found.is_good:
            here = f"the agent that runs says so; here it is {found.state} {found.reason}".rstrip()
            found = replace(found, state=part.state, reason=f"{part.detail}; {here}".removeprefix("; "))
        findings.append(found)
    return findings


def list_handlers(config: AgentConfig, running: StatusFile | None) -> list[PluginInfo]:
    """Every handler with its state, loaded here.

    Args:
        config: its sections ``commands.handlers`` and ``executables`` count.
        running: of the agent that runs. Where it says otherwise of a handler, the reason says so. None: no agent runs.
    """
    listing = load_handlers(config).listing()
    if running is None:
        return listing
    told, here = running.plugins, states_of(listing, running.parts)
    return [
        replace(info, reason=f"the agent that runs has it as: {told.get(name, 'unknown')}; restart it. {info.reason}")
        if told.get(name) != here[name]
        else info
        for info in listing
        for name in [f"{info.kind}:{info.name}"]
    ]


def is_usable(info: PluginInfo) -> bool:
    """Ready, or switched off on purpose."""
    return info.status in {PluginStatus.READY, PluginStatus.DISABLED}
