"""Which sensors this agent reads: one for each item of ``sensors`` in the configuration, by its ``type``.

A type is built in or comes from the entry-point group ``agent.sensors``; only the types that the configuration uses
are imported.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import partial
from importlib.metadata import EntryPoint
from typing import Final

from agent.config.model import SensorConfig
from agent.plugins import PluginClasses, PluginFault, PluginRegistry, PluginStatus, check_numbers, create_plugin
from agent.sensors.base import Sensor

GROUP: Final = "agent.sensors"

# A new built-in sensor is a class in this package, a line here, and a section in docs/sensors.md.
_BUILT_INS: Final[Mapping[str, str]] = {
    "file": "agent.sensors.file:FileSensor",
    "hwmon": "agent.sensors.hwmon:HwmonSensor",
    "one_wire": "agent.sensors.one_wire:OneWireSensor",
    "program": "agent.sensors.program:ProgramSensor",
    "simulated": "agent.sensors.simulated:SimulatedSensor",
    "system": "agent.sensors.system:SystemSensor",
}


class SensorRegistry(PluginRegistry[Sensor]):
    """Every configured sensor by name, in the configuration's order, the unusable ones with their reason."""

    kind = "sensor"

    @classmethod
    def load(
        cls,
        sections: Mapping[str, SensorConfig],
        *,
        entry_points: Iterable[EntryPoint] | None = None,
    ) -> SensorRegistry:
        """Create and check each configured sensor; a failing one is listed and logged, never raised.

        Args:
            sections: the configuration's ``sensors`` by name, in its order.
            entry_points: what is installed; None looks it up, once per process.
        """
        registry, types = cls(), _types(entry_points)
        of_type = Counter(section.type for section in sections.values() if section.enabled)
        for name, section in sections.items():
            create = partial(_create, name, section, types, is_one_of_many=of_type[section.type] > 1)
            registry.add(name, types.origin(section.type), section.type, create)
        return registry


def sensor_types() -> Mapping[str, str]:
    """Every type that could be configured -> where it comes from, sorted; nothing is imported for it."""
    return _types(None).origins()


def _types(points: Iterable[EntryPoint] | None) -> PluginClasses[Sensor]:
    return PluginClasses(Sensor, "type", _BUILT_INS, GROUP, points)  # type: ignore[type-abstract]


def _create(name: str, section: SensorConfig, types: PluginClasses[Sensor], *, is_one_of_many: bool) -> Sensor:
    if not section.enabled:
        raise PluginFault(PluginStatus.DISABLED, f"The configuration switched sensor {name!r} off.")
    sensor_class = types.load(section.type)
    sensor = create_plugin(sensor_class, sensor_class.Settings, section.settings, f"sensor {name!r}")
    sensor.name = name
    sensor.timeout_s = sensor.timeout_s if section.timeout_s is None else section.timeout_s
    check_numbers(sensor, ["timeout_s"], f"sensor {name!r}")
    sensor.prefixed = (is_one_of_many and not sensor.named_by_settings) if section.prefix is None else section.prefix
    return sensor
