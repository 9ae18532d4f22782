"""Each kind of signal out of its settings: its numbers, recordings, functions of a file, and what is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

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
    "walk": {"kind": "random_walk", "start": 21, "step": 0.09, "spread": 2},
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


def signals(folder: Path, document, **options):
    return build_signals(READER.validate_python(document), folder=folder, **options)


def played_as(folder: Path, settings, **options):
    """The one signal of these settings, as a function of device and time."""
    made = signals(folder, {"v": settings}, **options)
    return lambda device, time_s: made.read(device, time_s)["v"]


def test_every_kind_gives_the_readings_that_it_always_gave(folder):
    """Golden values: a change here changes what every stored seed means."""
    assert signals(folder, EVERYTHING).read(A, NOW) == GOLDEN


GOLDEN: dict[str, float] = {
    "constant": 3.5,
    "day": 8.1,
    "walk": 24.65,
    "door": 0.0,
    "replay": 1.82,
    "battery": 42.95,
    "own": 51.0,
}


def test_every_kind_is_the_same_in_any_order_and_in_another_process(folder):
    document = {name: each for name, each in EVERYTHING.items() if EVERYTHING[name]["kind"] not in {"python", "csv"}}
    program = (
        "import json, sys; from simulator.fleet.signals import DeviceRandom, signals_of_json;"
        "signals = signals_of_json(json.load(sys.stdin));"
        f"print(json.dumps([signals.read(DeviceRandom(7, 3), {NOW} + n * 61) for n in range(40)]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=json.dumps(document).encode(),
        capture_output=True,
        check=True,
        timeout=60,
    )
    here, device = signals(folder, document), DeviceRandom(7, 3)
    backwards = [here.read(device, NOW + n * 61) for n in reversed(range(40))]
    assert json.loads(done.stdout) == backwards[::-1]
    assert here.read(DeviceRandom(7, 4), NOW) != here.read(device, NOW) != here.read(DeviceRandom(8, 3), NOW)


# --- recordings -------------------------------------------------------------------------------------------------------


def test_a_recording_is_played_with_straight_lines_and_begins_again(folder):
    played = played_as(folder, {**REPLAY, "time_column": "time", "digits": 9})
    phase_s = next(t for t in range(60) if abs(played(A, NOW + t)) + abs(played(A, NOW + t + 1)) < 0.5)
    # As long after the last line as that is after the one before it.
    assert played(A, NOW + 60 + phase_s) == pytest.approx(played(A, NOW + phase_s))
    assert max(played(A, NOW + t / 10) for t in range(600)) == pytest.approx(4, abs=0.05)
    own = played_as(folder, {**REPLAY, "every_s": 10})
    assert len({own(DeviceRandom(1, n), NOW) for n in range(40)}) > 20


def test_every_file_that_cannot_be_used_is_said_at_once(folder):
    (folder / "bad.csv").write_text("time,value\n1,1\n1,2\n", encoding="utf-8")
    (folder / "words.csv").write_text("value\none\n", encoding="utf-8")
    (folder / "clock.csv").write_text("time,value\nnoon,1\n", encoding="utf-8")
    replay = {"kind": "csv", "column": "value", "every_s": 1}
    document = {
        "none": {**replay, "file": "none.csv"},
        "column": {**replay, "file": "values.csv", "column": "valu"},
        "bad": {"kind": "csv", "column": "value", "time_column": "time", "file": "bad.csv"},
        "words": {**replay, "file": "words.csv"},
        "clock": {"kind": "csv", "column": "value", "time_column": "time", "file": "clock.csv"},
    }
    with pytest.raises(ConfigurationError) as caught:
        signals(folder, document)
    said = "\n".join(caught.value.faults)
    for sentence in (
        "none.csv: cannot be read: No such file or directory",
        "values.csv: has no column 'valu'; it has time, value",
        "bad.csv: line 3: time does not rise",
        "words.csv: line 2: value 'one' is no number; leave the cell empty for none",
        "clock.csv: line 2: time 'noon' is no time",
    ):
        assert sentence in said, (sentence, said)


# --- functions of a file ----------------------------------------------------------------------------------------------


def test_a_function_of_a_file_gives_the_readings_of_a_run_that_allows_it(folder, tmp_path):
    document = merged(CONTEXTS["core-poll"], {"fleet": {"models": [{"signals": {"own": EVERYTHING["own"]}}]}})
    with pytest.raises(ConfigurationError, match=r"signals\.own\.file: is a program; .*--allow-python"):
        Looker(folder)(document)
    (path,) = folder.glob("scenario-*.yaml")
    scenario = read_scenario_file(path, allow_python=True).scenario
    made = build_signals(scenario.fleet.models[0].signals, folder=folder)
    assert made.read(DeviceRandom(1, 4), NOW + 3) == {"own": 44.0}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = 1\n", "has no function 'value'"),
        ("def value(:\n", "line 1: SyntaxError"),
        ("def value(device, time):\n    return 1 / 0\n", "line 2: ZeroDivisionError"),
        ("def value(device, time):\n    return 'warm'\n", "value() returned 'warm', and has to return a number"),
        ("def value(device, time):\n    return True\n", "value() returned True, and has to return a number"),
    ],
)
def test_a_file_without_a_function_that_gives_numbers_is_one_line(tmp_path, text, said):
    (tmp_path / "wrong.py").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigurationError) as caught:
        signals(tmp_path, {"own": {"kind": "python", "file": "wrong.py"}})
    assert said in "\n".join(caught.value.faults)


# --- settings ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"kind": "sinus"}, "does not match any of the expected tags"),
        ({"kind": "diurnal"}, "mean"),
        ({"kind": "constant", "value": 1, "min": 5, "max": 1}, "min (5) is above max (1): swap them"),
        ({"kind": "markov", "states": {"a": {"value": 1, "stay_s": 1}}}, "at least 2"),
        (
            {"kind": "markov", "states": {n: {"value": 1, "stay_s": 1, "next": {"c": 1}} for n in "ab"}},
            "next names 'c', which is none of a, b",
        ),
        ({"kind": "csv", "file": "x", "column": "y"}, "either time_column or every_s"),
        ({"kind": "battery", "empty": 100}, "has to be below full"),
        ({"kind": "random_walk", "start": 1, "step": -1}, "greater than or equal to 0"),
    ],
)
def test_settings_that_cannot_be_are_refused(document, said):
    with pytest.raises(ValidationError) as caught:
        READER.validate_python({"reading": document})
    assert said in str(caught.value)
