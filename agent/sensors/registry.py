"""Which sensors this agent reads: one for each section of the configuration, by its ``type``.

A type is built in or comes from the entry-point group ``agent.sensors``; only the types that the configuration uses
are imported. A built-in type is never replaced by a package; of two packages that bring one type neither is used.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cached_property
from importlib import import_module
from importlib.metadata import EntryPoint
from typing import Final

from agent.config.model import SensorConfig
from agent.plugins import (
    PluginFault,
    PluginInfo,
    PluginStatus,
    describe,
    installed_entry_points,
    load_entry_point,
    nearest,
    origin_of,
    parse_settings,
)
from agent.sensors.base import Sensor
from agent.sensors.reader import LoadedSensor

GROUP: Final = "agent.sensors"
BUILT_IN: Final = "built-in"
CONFIGURATION: Final = "configuration"

_BUILT_INS: Final[Mapping[str, str]] = {
    "file": "agent.sensors.file:FileSensor",
    "hwmon": "agent.sensors.hwmon:HwmonSensor",
    "one_wire": "agent.sensors.one_wire:OneWireSensor",
    "program": "agent.sensors.program:ProgramSensor",
    "simulated": "agent.sensors.simulated:SimulatedSensor",
    "system": "agent.sensors.system:SystemSensor",
}

_log = logging.getLogger(__name__)


class SensorRegistry:
    """Every configured sensor by name, the unusable ones with their reason."""

    def __init__(self, sensors: Iterable[LoadedSensor], listing: Iterable[PluginInfo], types: _Types) -> None:
        self._sensors = list(sensors)
        self._listing = list(listing)
        self._types = types

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
        types = _Types(entry_points)
        of_type = Counter(section.type for section in sections.values() if section.enabled)
        sensors: list[LoadedSensor] = []
        listing: list[PluginInfo] = []
        for name, section in sections.items():
            origin = types.origin(section.type)
            try:
                loaded = _create(name, section, types, crowded=of_type[section.type] > 1)
            except PluginFault as fault:
                listing.append(PluginInfo(name, "sensor", origin, fault.status, fault.reason, section.type))
                if fault.status is not PluginStatus.DISABLED:
                    _log.warning("sensor %s is %s: %s", name, fault.status, fault.reason)
                continue
            sensors.append(loaded)
            listing.append(
                PluginInfo(
                    name,
                    "sensor",
                    origin,
                    PluginStatus.READY,
                    type=section.type,
                    timeout_s=loaded.timeout_s,
                    description=loaded.sensor.description,
                )
            )
        return cls(sensors, listing, types)

    def sensors(self) -> list[LoadedSensor]:
        """The ready sensors, in the configuration's order; what a ``SensorReader`` takes."""
        return list(self._sensors)

    def get(self, name: str) -> LoadedSensor | None:
        """The sensor of this name, if it is ready."""
        return next((loaded for loaded in self._sensors if loaded.name == name), None)

    def listing(self) -> list[PluginInfo]:
        """Every configured sensor, in the configuration's order, with its status."""
        return list(self._listing)

    def types(self) -> Mapping[str, str]:
        """Every type that could be configured -> where it comes from, sorted; nothing is imported for it."""
        return self._types.all()


class _Types:
    """The sensor types that are there, imported only when asked for."""

    def __init__(self, points: Iterable[EntryPoint] | None) -> None:
        self._given = points

    @cached_property
    def _points(self) -> dict[str, list[EntryPoint]]:
        # Looked up only when a type is not built in: it reads every installed distribution's metadata.
        found: dict[str, list[EntryPoint]] = {}
        for point in installed_entry_points(GROUP) if self._given is None else self._given:
            found.setdefault(point.name, []).append(point)
        return found

    def origin(self, type_name: str) -> str:
        if type_name in _BUILT_INS:
            return BUILT_IN
        return ", ".join(map(origin_of, self._points.get(type_name, []))) or CONFIGURATION

    def all(self) -> dict[str, str]:
        return {name: self.origin(name) for name in sorted({*_BUILT_INS, *self._points})}

    def load(self, type_name: str) -> type[Sensor]:
        if type_name in _BUILT_INS:
            module, _, attribute = _BUILT_INS[type_name].partition(":")
            built_in: type[Sensor] = getattr(import_module(module), attribute)
            return built_in
        rivals = self._points.get(type_name, [])
        if not rivals:
            reason = f"No sensor type {type_name!r} is installed{nearest(type_name, self.all())}"
            raise PluginFault(PluginStatus.UNKNOWN, f"{reason}; mend the type or install its package.")
        if len(rivals) > 1:
            packages = ", ".join(sorted(map(origin_of, rivals)))
            raise PluginFault(PluginStatus.CLASH, f"{packages} all bring {type_name!r}: uninstall all but one.")
        found = load_entry_point(rivals[0])
        if not (isinstance(found, type) and issubclass(found, Sensor)):
            reason = f"{rivals[0].value} from {origin_of(rivals[0])} is no agent.Sensor class."
            raise PluginFault(PluginStatus.NOT_A_PLUGIN, reason)
        own_type = getattr(found, "type", None)
        if own_type != type_name:
            reason = f"Entry point {type_name!r} of {origin_of(rivals[0])} holds the sensor type {own_type!r}"
            raise PluginFault(PluginStatus.NOT_A_PLUGIN, f"{reason}: give both one name.")
        return found


def _create(name: str, section: SensorConfig, types: _Types, *, crowded: bool) -> LoadedSensor:
    if not section.enabled:
        raise PluginFault(PluginStatus.DISABLED, f"The configuration switched sensor {name!r} off.")
    sensor_class = types.load(section.type)
    settings = parse_settings(sensor_class.Settings, section.settings, f"sensor {name!r}")
    try:
        sensor = sensor_class(settings)
    except (Exception, SystemExit) as error:
        reason = f"sensor {name!r} could not be created: {describe(error)}."
        raise PluginFault(PluginStatus.NOT_CREATED, reason) from error
    try:
        sensor.check()
    except (Exception, SystemExit) as error:
        reason = f"sensor {name!r} cannot be read here: {describe(error)}."
        raise PluginFault(PluginStatus.CHECK_FAILED, reason) from error
    timeout_s = sensor.read_timeout_s() if section.timeout_s is None else section.timeout_s
    prefixed = (crowded and not sensor.named_by_settings) if section.prefix is None else section.prefix
    return LoadedSensor(name, sensor, timeout_s, prefixed)
