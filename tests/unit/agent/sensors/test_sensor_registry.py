from __future__ import annotations

import itertools
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

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

_numbers = itertools.count()


@pytest.fixture
def entry_point(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))

    def make(name: str, text: str = SCALE) -> EntryPoint:
        module = f"sensor_of_a_test_{next(_numbers)}"
        Path(tmp_path, f"{module}.py").write_text(text)
        return EntryPoint(name, f"{module}:Scale", "agent.sensors")

    return make


def load(sections, *points) -> SensorRegistry:
    return SensorRegistry.load(sections, entry_points=points)


def test_every_built_in_type_is_known_and_can_be_created(tmp_path):
    settings = {"file": {"path": "/x", "reading": "x"}, "program": {"argv": ["true"]}}
    types = load({}).types()
    sections = {name: SensorConfig(name="x", type=name, settings=settings.get(name, {})) for name in types}
    registry = load(sections)
    assert list(types) == ["file", "hwmon", "one_wire", "program", "simulated", "system"]
    assert [info.status for info in registry.listing()] == [PluginStatus.READY] * 6
    assert all(info.description and info.timeout_s for info in registry.listing())


def test_a_sensor_of_a_package_is_found_and_only_when_it_is_used_imported(entry_point):
    broken = entry_point("broken", "raise RuntimeError('imported')")
    registry = load(
        {"shop": SensorConfig(name="x", type="scale", timeout_s=1, settings={"weight": 2})},
        entry_point("scale"),
        broken,
    )
    loaded = registry.get("shop")
    assert (loaded.sensor.read(), loaded.timeout_s, loaded.prefixed) == ({"weight_kg": 2.0}, 1, False)
    assert registry.get("other") is None
    assert "broken" in registry.types()


@pytest.mark.parametrize(
    ("text", "status", "reason"),
    [
        ("import no_such_driver", PluginStatus.NOT_LOADED, "ModuleNotFoundError"),
        ("Scale = 5", PluginStatus.NOT_A_PLUGIN, "is no agent.Sensor class"),
        (SCALE.replace('"scale"', '"other"'), PluginStatus.NOT_A_PLUGIN, "give both one name"),
        (SCALE.replace("def read", "def raed"), PluginStatus.NOT_CREATED, "abstract method"),
        (SCALE + "\n    def check(self): raise OSError('no bus')", PluginStatus.CHECK_FAILED, "read here: no bus."),
        (SCALE.replace("= 1.5", ""), PluginStatus.INVALID_SETTINGS, "'weight' is missing"),
    ],
)
def test_a_sensor_that_fails_has_a_status_and_a_sentence_and_the_others_go_on(
    entry_point, caplog, text, status, reason
):
    registry = load(
        {"shop": SensorConfig(name="x", type="scale"), "sim": SensorConfig(name="x", type="simulated")},
        entry_point("scale", text),
    )
    info = registry.listing()[0]
    assert info.status is status
    assert reason in info.reason
    assert [loaded.name for loaded in registry.sensors()] == ["sim"]
    assert f"sensor shop is {status}" in caplog.text


def test_an_unknown_type_comes_with_the_nearest_one():
    (info,) = load({"board": SensorConfig(name="x", type="sytem")}).listing()
    assert info.status is PluginStatus.UNKNOWN
    assert "did you mean 'system'" in info.reason


def test_a_sensor_that_is_switched_off_is_listed_and_not_loaded(entry_point):
    point = entry_point("scale", "raise RuntimeError('imported')")
    (info,) = load({"shop": SensorConfig(name="x", type="scale", enabled=False)}, point).listing()
    assert info.status is PluginStatus.DISABLED


def test_a_package_never_replaces_a_built_in_type(entry_point):
    registry = load({"board": SensorConfig(name="x", type="system")}, entry_point("system"))
    assert type(registry.get("board").sensor).__name__ == "SystemSensor"
    assert registry.types()["system"] == "built-in"


def test_of_two_packages_with_one_type_neither_is_used(entry_point):
    (info,) = load({"shop": SensorConfig(name="x", type="scale")}, entry_point("scale"), entry_point("scale")).listing()
    assert info.status is PluginStatus.CLASH


def test_sensors_of_one_type_are_prefixed_unless_their_settings_name_their_readings():
    registry = load(
        {
            "north": SensorConfig(name="x", type="one_wire"),
            "south": SensorConfig(name="x", type="one_wire", prefix=False),
            "a": SensorConfig(name="x", type="simulated", settings={"reading": "a"}),
            "b": SensorConfig(name="x", type="simulated", settings={"reading": "b"}, prefix=True),
            "board": SensorConfig(name="x", type="system"),
        }
    )
    assert {loaded.name: loaded.prefixed for loaded in registry.sensors()} == {
        "north": True,
        "south": False,
        "a": False,
        "b": True,
        "board": False,
    }
