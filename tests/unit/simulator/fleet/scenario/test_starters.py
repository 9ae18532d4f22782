"""The scenarios that ship: whole, by the schema, and where ``init`` finds them."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator

from agent.core.values import Moment
from agent.errors import ConfigurationError
from simulator.fleet.device.handlers import VOCABULARY, HandlerContext, parse_payload
from simulator.fleet.plan.forecast import forecast
from simulator.fleet.plan.forecast_text import describe
from simulator.fleet.plan.plan import Plan
from simulator.fleet.scenario.load import CommandSettings
from simulator.fleet.scenario.model import scenario_schema
from simulator.fleet.scenario.reading import read_scenario, read_scenario_file
from simulator.fleet.scenario.starters import starter_names, starter_text

ROOT = Path(__file__).resolve().parents[5]
FILES = sorted((ROOT / "configs" / "scenarios").glob("*.yaml"))
SCHEMA = Draft202012Validator(scenario_schema())


def assert_ends_as_expected(command: CommandSettings) -> None:
    handler = VOCABULARY[command.payload["command"]]
    around = HandlerContext("device-1", Moment(1.0, 1e9, "boot"), {"temperature_celsius": 21.0}, 30.0)
    work = handler.handle(parse_payload(handler, command.payload), around)
    assert work.outcome.status == command.expect, work.outcome.error
    if command.payload["command"] == "set_interval":
        assert work.interval_s == command.payload["interval_s"] != around.interval_s


def test_the_nine_of_the_documentation_are_there():
    assert {path.stem for path in FILES} == {
        "smoke", "onboarding-storm", "steady-10k", "command-round-trip", "outage-recovery", "soak",
        "mqtt-10k", "backfill",
    }  # fmt: skip
    assert starter_names()[0] == "smoke"
    assert set(starter_names()) == {path.stem for path in FILES}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_starter_is_valid_named_as_its_file_and_says_how_to_run_it(path):
    scenario = read_scenario(path)
    text = path.read_text(encoding="utf-8")
    assert scenario.scenario == path.stem
    assert scenario.description
    assert starter_text(path.stem) == text
    assert f"fleet-simulator run configs/scenarios/{path.name} --up" in text
    assert "\n".join(describe(forecast(Plan(scenario), "0" * 32, cores=2))).startswith(f"{path.stem}: ")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_commands_of_a_starter_end_at_a_virtual_device_as_the_starter_says(path):
    for command in read_scenario(path).commands:
        assert_ends_as_expected(command)


def test_a_starter_has_a_command_that_changes_what_devices_do():
    names = {(path.stem, command.payload["command"]) for path in FILES for command in read_scenario(path).commands}
    assert {("smoke", "set_interval"), ("smoke", "read_sensors"), ("command-round-trip", "set_interval")} <= names


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_starter_fits_the_json_schema(path):
    SCHEMA.validate(yaml.safe_load(path.read_text(encoding="utf-8")))


@pytest.mark.parametrize(
    "wrong",
    [
        {"fleet": {"devices": 0}},
        {"fleet": {"devices": 1, "model": []}},
        {"phases": [{"name": "a", "kind": "hold", "duration_s": "30 s"}]},
        {"phases": [{"name": "a", "kind": "halt", "duration_s": 30}]},
        {"phases": []},
        {"workers": "some"},
        {"seed": -1},
        {"kind": "loud"},
    ],
)
def test_the_schema_refuses_what_reading_refuses(wrong):
    good = {"scenario": "s", "fleet": {"devices": 1}, "phases": [{"name": "a", "kind": "hold", "duration_s": "30s"}]}
    assert SCHEMA.is_valid(good)
    assert not SCHEMA.is_valid({**good, **wrong})


def test_the_wheel_has_them_out_of_one_folder():
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel["force-include"] == {"configs/scenarios": "simulator/fleet/scenario/starters"}


def test_a_python_file_is_run_only_when_that_is_allowed(tmp_path):
    (tmp_path / "many.py").write_text(
        "def scenario():\n"
        "    models = [{'name': f'm{n}', 'share': 0.25} for n in range(4)]\n"
        "    phases = [{'name': 'hold', 'kind': 'hold', 'duration_s': '1m'}]\n"
        "    return {'scenario': 'many', 'fleet': {'devices': 8, 'models': models}, 'phases': phases}\n"
    )
    with pytest.raises(ConfigurationError, match="give --allow-python if you trust it"):
        read_scenario_file(tmp_path / "many.py")
    made = read_scenario_file(tmp_path / "many.py", allow_python=True)
    assert len(made.scenario.fleet.models) == 4
    assert '"m3"' in made.text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def scenario():\n    return 1 / 0\n", "line 2: ZeroDivisionError"),
        ("def scenario(:\n", "line 1: SyntaxError"),
        ("x = 1\n", "needs a function 'scenario()'"),
        ("def scenario():\n    return {'seed': {1, 2}}\n", "returns something that JSON cannot hold"),
        ("def scenario():\n    return {'sede': 1}\n", "sede: is no key of a scenario; did you mean 'seed'?"),
    ],
)
def test_a_python_file_that_is_no_scenario_is_one_line(tmp_path, text, said):
    (tmp_path / "wrong.py").write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        read_scenario_file(tmp_path / "wrong.py", allow_python=True)
    assert said in "\n".join(caught.value.faults)
