"""Which sensors there are: the built-in types, those of plug-ins, and what the configuration makes of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import partial
from importlib.metadata import EntryPoint
from typing import Final

from agent.config.model import SensorConfig
from agent.plugins import PluginFault, PluginRegistry, PluginStatus, create_plugin
from agent.sensors.base import Sensor

# A new built-in sensor is a class in this package, a line here, and a section in docs/sensors.md.
_BUILT_INS: Final = {
    "file": "agent.sensors.basic:FileSensor",
    "hwmon": "agent.sensors.hwmon:HwmonSensor",
    "one_wire": "agent.sensors.one_wire:OneWireSensor",
    "program": "agent.sensors.basic:ProgramSensor",
    "simulated": "agent.sensors.basic:SimulatedSensor",
    "system": "agent.sensors.system:SystemSensor",
}


class SensorRegistry(PluginRegistry[Sensor]):
    """Every configured sensor by name, in the configuration's order; a failing one is listed and logged, never raised.

    Only the types that the configuration uses are imported.

    Args:
        sections: the configuration's ``sensors`` by name, in its order.
        points: what is installed; None looks it up, once per process.
    """

    kind = "sensor"
    base = Sensor
    key = "type"
    group = "agent.sensors"
    built_ins = _BUILT_INS

    def __init__(
        self, sections: Mapping[str, SensorConfig] | None = None, *, points: Iterable[EntryPoint] | None = None
    ) -> None:
        super().__init__(points)
        sections = sections or {}
        of_type = Counter(section.type for section in sections.values() if section.enabled)
        for name, section in sections.items():
            create = partial(self._create, name, section, is_one_of_many=of_type[section.type] > 1)
            self.add(name, self.origin(section.type), section.type, create)

    def _create(self, name: str, section: SensorConfig, *, is_one_of_many: bool) -> Sensor:
        if not section.enabled:
            raise PluginFault(PluginStatus.DISABLED, f"The configuration switched sensor {name!r} off.")
        sensor_class = self.load_class(section.type)
        sensor = create_plugin(sensor_class, sensor_class.Settings, section.settings, f"sensor {name!r}")
        sensor.name = name
        sensor.timeout_s = sensor.timeout_s if section.timeout_s is None else section.timeout_s
        is_prefixed = is_one_of_many and not sensor.named_by_settings
        sensor.prefixed = is_prefixed if section.prefix is None else section.prefix
        return sensor
