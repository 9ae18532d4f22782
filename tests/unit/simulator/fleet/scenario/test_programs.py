"""Readings that a program gives: asked, checked, and part of the plan."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from agent.errors import ConfigurationError
from simulator.fleet.plan.digest import digest_of
from simulator.fleet.plan.plan import plan_of
from simulator.fleet.scenario.reading import read_scenario_file
from simulator.fleet.signals.base import Individual
from simulator.fleet.workload.models import build_models

SCENARIO = """
def scenario():
    signals = {"one": {"kind": "constant", "value": 1}}
    states = {"idle": {"stay_s": 60, "next": {"busy": 1}},
              "busy": {"stay_s": 60, "next": {"idle": 1}, "signals": {"one": {"kind": "constant", "value": 2}}}}
    return {
        "scenario": "programmed",
        "seed": 7,
        "fleet": {"devices": 3, "models": [{"name": "m", "signals": signals, "states": states}]},
        "phases": [{"name": "hold", "kind": "hold", "duration_s": 1}],
    }
"""
GOOD = """
def telemetry(device, time):
    return {**device.readings, "two": device.index + device.chance("x") + time % 10}
"""
DOCS = Path(__file__).resolve().parents[5] / "docs" / "scenarios.md"


def written(tmp_path: Path, telemetry: str, scenario: str = SCENARIO) -> Path:
    path = tmp_path / "programmed.py"
    path.write_text(scenario + telemetry)
    return path


def test_a_program_gives_the_readings_of_each_device_in_every_state(tmp_path):
    file = read_scenario_file(written(tmp_path, GOOD), allow_python=True)
    (model,) = build_models(file.scenario, file.folder, 0.0, file.program)
    first, second = (model.signals.read(Individual.at(7, index), 1003.0) for index in (0, 1))
    assert first["one"] == 1.0
    assert first["two"] == model.signals.read(Individual.at(7, 0), 1003.0)["two"]
    assert 4 < second["two"] < 5
    assert first["two"] != second["two"] - 1  # another device, another chance
    busy = model.states["busy"].signals.read(Individual.at(7, 1), 1003.0)
    assert (busy["one"], busy["two"]) == (2.0, second["two"])
    (plain,) = build_models(file.scenario, file.folder, 0.0)
    assert plain.signals.read(Individual.at(7, 0), 1003.0) == {"one": 1.0}


def test_the_source_of_a_program_is_in_the_digest_where_it_gives_readings(tmp_path):
    digests = {}
    for name, text in (("none", ""), ("comment", "# a\n"), ("good", GOOD), ("other", GOOD.replace("% 10", "% 9"))):
        file = read_scenario_file(written(tmp_path, text), allow_python=True)
        digests[name] = digest_of(plan_of(file))
        assert ("SHA-256" in file.text) == (file.program is not None) == ("telemetry" in text)
        assert digest_of(plan_of(file), workers=2) == digests[name]
    assert digests["none"] == digests["comment"]
    assert len(set(digests.values())) == 3


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ("return 3", "returned 3, and has to return a dict"),
        ("return {}", "returned no reading at all"),
        ("return {'one': 'warm'}", "'one' is 'warm', and has to be a number"),
        ("return {'one': True}", "'one' is True, and has to be a number"),
        ("return {'one': float('nan')}", "'one' is nan; a reading is a finite number"),
        ("return {7: 1.0}", "7 is no name of a reading"),
        ("return {'fleet_sequence': 1}", "'fleet_sequence' is the audit's own number"),
        ("return 1 / 0", "line 13: ZeroDivisionError: division by zero"),
        ("import itertools; device.readings['one'] = next(COUNT); return device.readings", "and then {'one': 1}"),
    ],
)
def test_nonsense_is_told_with_the_call_before_anything_is_sent(tmp_path, body, fault):
    text = f"import itertools\nCOUNT = itertools.count()\ndef telemetry(device, time):\n    {body}\n"
    scenario = SCENARIO.strip() + "\n"
    with pytest.raises(ConfigurationError, match=r"telemetry\(device [02], 17672\d+\.000\)") as told:
        read_scenario_file(written(tmp_path, text, scenario), allow_python=True)
    assert re.sub(r"line \d+", "line 13", fault) in re.sub(r"line \d+", "line 13", str(told.value))


def test_what_is_called_telemetry_has_to_be_a_function(tmp_path):
    with pytest.raises(ConfigurationError, match="has to be a function of a device and a time"):
        read_scenario_file(written(tmp_path, "telemetry = 3"), allow_python=True)


def test_a_program_that_was_changed_meanwhile_is_not_run(tmp_path):
    file = read_scenario_file(written(tmp_path, GOOD), allow_python=True)
    with pytest.raises(ConfigurationError, match="changed since the run was planned"):
        build_models(file.scenario, file.folder, 0.0, replace(file.program, digest="0"))


def test_the_example_of_the_documentation_can_be_run(tmp_path):
    example = re.search(r"```python\n(import math.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    assert example is not None
    file = read_scenario_file(written(tmp_path, example[1], ""), allow_python=True)
    (model,) = build_models(file.scenario, file.folder, 0.0, file.program)
    readings = [model.signals.read(Individual.at(1, index), 1_767_225_600.0) for index in range(50)]
    assert all(set(each) == {"room_celsius", "water_celsius"} for each in readings)
    assert len({each["water_celsius"] for each in readings}) > 20
