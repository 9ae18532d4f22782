"""Each kind of signal out of its settings: its numbers, recordings, functions of a file, and what is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from statistics import mean, pstdev

import pytest
from pydantic import TypeAdapter, ValidationError

from agent.errors import ConfigurationError
from simulator.fleet.scenario.reading import read_scenario_file
from simulator.fleet.signals import DeviceRandom, SignalMap, build_signals
from tests.support.virtual_fleet.scenarios import CONTEXTS, Looker, merged

NOW = 1_767_225_600.0
A = DeviceRandom(1, 5)
READER = TypeAdapter(SignalMap)
REPLAY = {"kind": "csv", "file": "values.csv", "column": "value"}
EVERYTHING = {
    "constant": {"kind": "constant", "value": 3.5},
    "day": {"kind": "diurnal", "mean": 12, "amplitude": 8, "noise": 0.2, "spread": 1},
    "walk": {"kind": "random_walk", "start": 21, "step": 0.09},
    "door": {
        "kind": "markov",
        "states": {"shut": {"value": 0, "stay_s": 600}, "open": {"value": 1, "stay_s": 60}},
    },
    "replay": {**REPLAY, "time_column": "time"},
    "battery": {"kind": "battery", "charge_s": 7200},
    "own": {"kind": "python", "file": "readings.py"},
}
PYTHON = "def value(device, time):\n    return device.seed + 10 * device.index + time % 10\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "values.csv").write_text("time,value\n0,1\n10,2\n20,4\n40,0\n", encoding="utf-8")
    (tmp_path / "readings.py").write_text(PYTHON, encoding="utf-8")
    return tmp_path


def signals(folder: Path, document):
    return build_signals(READER.validate_python(document), folder=folder)


def played_as(folder: Path, settings):
    """The one signal of these settings, as a function of device and time."""
    made = signals(folder, {"v": settings})
    return lambda device, time_s: made.read(device, time_s)["v"]


def test_every_kind_is_the_same_in_any_order_and_in_another_process(folder):
    program = (
        "import json, sys; from pathlib import Path; from pydantic import TypeAdapter;"
        "from simulator.fleet.signals import DeviceRandom, SignalMap, build_signals;"
        "settings = TypeAdapter(SignalMap).validate_python(json.load(sys.stdin));"
        f"signals = build_signals(settings, folder=Path({str(folder)!r}));"
        f"print(json.dumps([signals.read(DeviceRandom(7, 3), {NOW} + n * 61) for n in range(40)]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=json.dumps(EVERYTHING).encode(),
        capture_output=True,
        check=True,
        timeout=60,
    )
    here, device = signals(folder, EVERYTHING), DeviceRandom(7, 3)
    backwards = [here.read(device, NOW + n * 61) for n in reversed(range(40))]
    assert json.loads(done.stdout) == backwards[::-1]
    assert here.read(DeviceRandom(7, 4), NOW) != here.read(device, NOW) != here.read(DeviceRandom(8, 3), NOW)


def test_each_kind_is_what_its_settings_say(folder):
    fleet = [DeviceRandom(1, n) for n in range(1000)]
    day = played_as(folder, {"kind": "diurnal", "mean": 12, "amplitude": 8})
    assert (day(A, NOW + 15 * 3600), day(A, NOW + 3 * 3600)) == (20, 4)
    walk = played_as(folder, {"kind": "random_walk", "start": 21, "step": 0.1, "digits": 9})
    assert mean(walk(each, NOW) for each in fleet) == pytest.approx(21, abs=0.3)
    assert pstdev(walk(each, NOW + 1) - walk(each, NOW) for each in fleet) == pytest.approx(0.1, rel=0.1)
    door = played_as(folder, EVERYTHING["door"])
    assert mean(door(each, NOW) for each in fleet) == pytest.approx(60 / 660, abs=0.03)
    changes = sum(door(A, NOW + n * 3) != door(A, NOW + n * 3 + 3) for n in range(100_000))
    assert changes == pytest.approx(2 * 300_000 / 660, rel=0.1)
    battery = [played_as(folder, {"kind": "battery"})(each, NOW) for each in fleet]
    assert (min(battery), max(battery), mean(battery)) == pytest.approx((5, 100, 52.5), abs=2)
    noise = played_as(folder, {"kind": "constant", "value": 5, "noise": 2})
    assert pstdev(noise(A, NOW + n) for n in range(1000)) == pytest.approx(2, rel=0.1)
    spread = played_as(folder, {"kind": "constant", "value": 5, "spread": 3})
    assert pstdev(spread(each, NOW) for each in fleet) == pytest.approx(3, rel=0.1)
    assert spread(A, NOW) == spread(A, NOW + 3600)


# --- recordings -------------------------------------------------------------------------------------------------------


def test_a_recording_is_played_with_straight_lines_and_begins_again(folder):
    played = played_as(folder, {**REPLAY, "time_column": "time", "digits": 9})
    phase_s = next(t for t in range(60) if abs(played(A, NOW + t)) + abs(played(A, NOW + t + 1)) < 0.5)
    # As long after the last line as that is after the one before it.
    assert played(A, NOW + 60 + phase_s) == pytest.approx(played(A, NOW + phase_s))
    assert max(played(A, NOW + t / 10) for t in range(600)) == pytest.approx(4, abs=0.05)
    own = played_as(folder, {**REPLAY, "every_s": 10})
    assert len({own(DeviceRandom(1, n), NOW) for n in range(40)}) > 20


# --- functions of a file ----------------------------------------------------------------------------------------------


def test_a_function_of_a_file_gives_the_readings_of_a_run_that_allows_it(folder, tmp_path):
    document = merged(CONTEXTS["core-poll"], {"fleet": {"models": [{"signals": {"own": EVERYTHING["own"]}}]}})
    with pytest.raises(ConfigurationError, match=r"signals\.own\.file: is a program; .*--allow-python"):
        Looker(folder)(document)
    (path,) = folder.glob("scenario-*.yaml")
    scenario = read_scenario_file(path, allow_python=True).scenario
    made = build_signals(scenario.fleet.models[0].signals, folder=folder)
    assert made.read(DeviceRandom(1, 4), NOW + 3) == {"own": 44.0}


BAD_FILES = [
    ("csv", None, "cannot be read: No such file or directory"),
    ("csv", "time,valu\n1,1\n", "has no column 'value'; it has time, valu"),
    ("csv", "time,value\n1,1\n1,2\n", "line 3: time does not rise"),
    ("csv", "time,value\n1,one\n", "line 2: value 'one' is no number; leave the cell empty for none"),
    ("csv", "time,value\nnoon,1\n", "line 2: time 'noon' is no time"),
    ("csv", "time,value\n1,\n", "has no value in column 'value'"),
    ("python", "x = 1\n", "has no function 'value'"),
    ("python", "def value(:\n", "line 1: SyntaxError"),
    ("python", "def value(device, time):\n    return 1 / 0\n", "line 2: ZeroDivisionError"),
    ("python", "def value(device, time):\n    return 'warm'\n", "returned 'warm', and has to return a number"),
    ("python", "def value(device, time):\n    return True\n", "returned True, and has to return a number"),
]


def test_every_file_that_cannot_be_used_is_said_at_once_in_one_line(tmp_path):
    document = {}
    for number, (kind, text, _) in enumerate(BAD_FILES):
        columns = {"column": "value", "time_column": "time"} if kind == "csv" else {}
        document[f"r{number}"] = {"kind": kind, "file": f"file{number}", **columns}
        if text is not None:
            (tmp_path / f"file{number}").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigurationError) as caught:
        signals(tmp_path, document)
    for number, (fault, (*_, said)) in enumerate(zip(caught.value.faults, BAD_FILES, strict=True)):
        assert fault.startswith(f"r{number}: {tmp_path}/file{number}: ")
        assert said in fault


# --- settings ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"kind": "constant", "value": 1, "min": 5, "max": 1}, "min (5) is above max (1): swap them"),
        (
            {"kind": "markov", "states": {n: {"value": 1, "stay_s": 1, "next": {"c": 1}} for n in "ab"}},
            "next names 'c', which is none of a, b",
        ),
        ({"kind": "csv", "file": "x", "column": "y"}, "either time_column or every_s"),
        ({"kind": "battery", "empty": 100}, "has to be below full"),
    ],
)
def test_settings_that_cannot_be_are_refused(document, said):
    with pytest.raises(ValidationError) as caught:
        READER.validate_python({"reading": document})
    assert said in str(caught.value)
