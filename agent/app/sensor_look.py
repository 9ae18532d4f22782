"""Configured sensors, read once in this process."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import field

from agent.app.plugins import load_sensors
from agent.config import AgentConfig
from agent.frozen import dataclass
from agent.plugins import PluginStatus
from agent.sensors.reader import SensorReader


@dataclass(frozen=True, slots=True)
class SensorFinding:
    """One configured sensor, read once."""

    name: str
    type: str
    state: str
    reason: str = ""
    values: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SensorFindings:
    """All configured sensors, and the types that could be configured."""

    sensors: tuple[SensorFinding, ...]
    types: Mapping[str, str]

    @property
    def all_good(self) -> bool:
        """Each was read, or is switched off on purpose."""
        return all(sensor.state in {"ok", str(PluginStatus.DISABLED)} for sensor in self.sensors)


def read_in_process(config: AgentConfig, without: Container[str] = ()) -> SensorFindings:
    """Read each configured sensor once, all at the same time, each within its timeout.

    Args:
        config: its section ``sensors`` counts.
        without: the names of those that are left out, and not imported.
    """
    kept = tuple(sensor for sensor in config.sensors if sensor.name not in without)
    registry = load_sensors(config.model_copy(update={"sensors": kept}))
    reader = SensorReader(registry.sensors())
    results = reader.read()
    reader.close()
    findings: list[SensorFinding] = []
    for info in registry.listing():
        result = results.get(info.name)
        if result is None:
            findings.append(SensorFinding(info.name, info.type, str(info.status), info.reason))
        elif result.error is not None:
            findings.append(SensorFinding(info.name, info.type, "failing", result.error))
        else:
            left_out = "; ".join(result.refused)
            findings.append(SensorFinding(info.name, info.type, "ok", left_out, dict(result.values)))
    return SensorFindings(tuple(findings), registry.types())
