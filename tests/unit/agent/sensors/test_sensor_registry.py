from __future__ import annotations

from agent.config.model import SensorConfig
from agent.plugins import PluginStatus
from agent.sensors.registry import SensorRegistry

SCALE = """
from agent import Sensor, SensorSettings

class Scale(Sensor):
    type = "scale"
    description = "A scale."
    timeout_s = 3.0

    class Settings(SensorSettings):
        weight: float = 1.5

    def read(self):
        return {"weight_kg": self.settings.weight}
"""


def sensor(type_name: str, **members) -> SensorConfig:
    return SensorConfig(name="x", type=type_name, **members)


def load(sections, *points) -> SensorRegistry:
    return SensorRegistry(sections, points=points)


def test_every_built_in_type_is_known_and_can_be_created():
    settings = {"file": {"path": "/x", "reading": "x"}, "program": {"argv": ["true"]}}
    types = [name for name, origin in SensorRegistry().origins().items() if origin == "built-in"]
    assert types == ["file", "hwmon", "one_wire", "program", "simulated", "system"]
    registry = load({name: sensor(name, settings=settings.get(name, {})) for name in types})
    assert list(registry.ready) == types
    assert all(info.description and info.timeout_s for info in registry.listing)


def test_a_sensor_of_a_package_is_found_and_only_when_it_is_used_imported(entry_point):
    broken = entry_point("broken", "Scale", "raise RuntimeError('imported')")
    sections = {"shop": sensor("scale", timeout_s=1, settings={"weight": 2}), "off": sensor("broken", enabled=False)}
    registry = load(sections, entry_point("scale", "Scale", SCALE), broken)
    (scale,) = registry.ready.values()
    assert (scale.name, scale.read(), scale.timeout_s, scale.prefixed) == ("shop", {"weight_kg": 2.0}, 1, False)
    assert registry.listing[1].status is PluginStatus.DISABLED


def test_sensors_of_one_type_are_prefixed_unless_their_settings_name_their_readings():
    registry = load(
        {
            "north": sensor("one_wire"),
            "south": sensor("one_wire", prefix=False),
            "a": sensor("simulated", settings={"reading": "a"}),
            "b": sensor("simulated", settings={"reading": "b"}, prefix=True),
            "board": sensor("system"),
        }
    )
    prefixed = {each.name for each in registry.ready.values() if each.prefixed}
    assert prefixed == {"north", "b"}
