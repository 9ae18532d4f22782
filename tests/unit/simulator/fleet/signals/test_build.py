from __future__ import annotations

import json
import math
import pickle
import subprocess
import sys

import pytest
from pydantic import TypeAdapter, ValidationError

from agent.errors import ConfigurationError
from simulator.fleet.products import load_product
from simulator.fleet.signals.base import Individual
from simulator.fleet.signals.build import build_signals
from simulator.fleet.signals.from_product import signals_of_product
from simulator.fleet.signals.kinds.gps_route import Point, distance_m, heading_degrees, read_route
from simulator.fleet.signals.registry import SignalMap
from simulator.wire.products import NewProduct

NOW = 1_767_225_600.0
A = Individual(1, "sim-000001", 1)
READER = TypeAdapter(SignalMap)

GPX = """<?xml version="1.0"?>
<gpx version="1.1" xmlns="http://www.topografix.com/GPX/1/1"><!-- a square --><trk><trkseg>
<trkpt lat="52.0" lon="13.0"/><trkpt lat="52.01" lon="13.0"/><trkpt lat="52.01" lon="13.01"/></trkseg></trk></gpx>
"""
CSV = "time,value,empty\n100,1,\n110,2,\n120,4,7\n130,,\n140,0,\n"

SEVERAL = (("north", 0), ("south", 1000), ("west", 5000))

EVERYTHING = {
    "constant": {"kind": "constant", "value": 3.5},
    "sine": {"kind": "sine", "mean": 10, "amplitude": 3, "period_s": 600, "noise": 0.1},
    "day": {"kind": "diurnal", "mean": 12, "amplitude": 8, "noise": 0.2, "spread": 1},
    "walk": {"kind": "random_walk", "start": 21, "step": 0.09, "spread": 2, "min": 0, "max": 40},
    "noise": {"kind": "noise", "distribution": "uniform", "mean": 5, "deviation": 2},
    "steps": {"kind": "steps", "steps": [{"value": 1, "for_s": 60}, {"value": 2, "for_s": 30}]},
    "door": {
        "kind": "markov",
        "states": {"shut": {"value": 0, "stay_s": 600}, "open": {"value": 1, "stay_s": 60, "stay": "fixed"}},
    },
    "replay": {"kind": "csv", "file": "values.csv", "column": "value", "time_column": "time"},
    "drive": {"kind": "gps_route", "file": "route.gpx", "noise_m": 3},
    "fahrenheit": {"kind": "formula", "expression": "walk * 1.8 + 32 + index + latitude * 0"},
    "follower": {"kind": "correlated", "follows": "fahrenheit", "factor": -0.5, "lag_s": 300, "noise": 0.3},
    "battery": {"kind": "battery", "spread": 0.3, "curve": "lithium", "charge_s": 7200},
}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "values.csv").write_text(CSV, encoding="utf-8")
    (tmp_path / "route.gpx").write_text(GPX, encoding="utf-8")
    return tmp_path


def signals(folder, document, **options):
    return build_signals(READER.validate_python(document), folder=folder, **options)


def test_every_kind_gives_the_readings_that_it_always_gave(folder):
    """Golden values: a change here changes what every stored seed means."""
    assert signals(folder, EVERYTHING).read(A, NOW) == GOLDEN


GOLDEN: dict[str, float] = {
    "constant": 3.5,
    "sine": 7.39,
    "day": 4.78,
    "walk": 22.17,
    "noise": 5.17,
    "steps": 1.0,
    "door": 0.0,
    "replay": 3.71,
    "latitude": 52.009483,
    "longitude": 13.000007,
    "heading_degrees": 180.0,
    "speed_mps": 13.9,
    "fahrenheit": 72.91,
    "follower": -37.95,
    "battery": 24.332,
}


def test_every_kind_is_the_same_in_any_order_and_for_another_set(folder):
    times = [NOW + n * 97.3 for n in range(60)]
    first = signals(folder, EVERYTHING)
    forwards = [first.read(Individual(1, "x", 5), t) for t in times]
    known = Individual(1, "x", 5)
    assert [first.read(known, t) for t in reversed(times)] == forwards[::-1]
    assert [signals(folder, EVERYTHING).read(known, t) for t in times] == forwards
    assert first.read(Individual(2, "x", 5), NOW) != forwards[0]
    assert first.read(Individual(1, "y", 5), NOW) != forwards[0]
    assert all(math.isfinite(value) for reading in forwards for value in reading.values())


def test_another_process_gives_the_same_numbers(folder):
    program = (
        "import json, pickle, sys; from simulator.fleet.signals.base import Individual;"
        "signals = pickle.loads(sys.stdin.buffer.read());"
        f"print(json.dumps([signals.read(Individual(7, 'b', 3), {NOW} + n * 61) for n in range(40)]))"
    )
    here = signals(folder, EVERYTHING)
    done = subprocess.run(
        [sys.executable, "-c", program], input=pickle.dumps(here), capture_output=True, check=True, timeout=60
    )
    assert json.loads(done.stdout) == [here.read(Individual(7, "b", 3), NOW + n * 61) for n in range(40)]


def test_a_recording_is_played_with_straight_lines_and_begins_again(folder):
    document = {
        "v": {"kind": "csv", "file": "values.csv", "column": "value", "time_column": "time", "begin": "in_step"}
    }
    played = signals(folder, document, origin_s=NOW)["v"]
    assert [played.value_at(A, NOW + t) for t in (0, 5, 10, 15, 20, 30, 40)] == [1, 1.5, 2, 3, 4, 2, 0]
    assert played.value_at(A, NOW + 50) == played.value_at(A, NOW)  # ten seconds, the usual distance, after the last
    assert played.value_at(A, NOW + 45) == 0.5
    held = signals(folder, {"v": {**document["v"], "between": "hold", "loop": False}}, origin_s=NOW)["v"]
    assert [held.value_at(A, NOW + t) for t in (-5, 0, 9, 10, 39, 40, 9999)] == [1, 1, 1, 2, 4, 0, 0]


def test_a_recording_begins_elsewhere_for_each_device(folder):
    played = signals(folder, {"v": {"kind": "csv", "file": "values.csv", "column": "value", "every_s": 10}})["v"]
    values = {played.value_at(Individual(1, str(n)), NOW) for n in range(40)}
    assert len(values) > 20


@pytest.mark.parametrize("begin", ["hashed", "in_step"])
def test_columns_of_one_recording_stay_lines_on_every_device_also_where_one_has_gaps(folder, begin):
    lines = [f"{n},{n if 3 <= n < 90 and n % 7 else ''}" for n in range(100)]
    (folder / "two.csv").write_text("\n".join(["a,b", *lines]), encoding="utf-8")
    column = {"kind": "csv", "file": "two.csv", "every_s": 10, "between": "hold", "begin": begin}
    played = signals(folder, {name: {**column, "column": name} for name in ("a", "b")}, origin_s=NOW)
    seen = set()
    for number in range(60):
        readings = played.read(Individual(1, str(number)), NOW + number * 10)
        a, b = readings["a"], readings["b"]
        seen.add(a)
        if 3 <= a < 90:
            assert b == (a if a % 7 else a - 1)
    assert len(seen) > 20


@pytest.mark.parametrize("times", [{"time_column": "at"}, {"every_s": 10}])
def test_lines_of_several_devices_in_one_recording_are_never_between_each_other(folder, times):
    # The devices take turns line by line; what they measured is far apart, and twice as large in the other column.
    rows = [f"{10 * n},{name},{base + n},{2 * (base + n)}" for n in range(30) for name, base in SEVERAL]
    (folder / "fleet.csv").write_text("\n".join(["at,device_id,a,b", *rows]), encoding="utf-8")
    column = {"kind": "csv", "file": "fleet.csv", "device_column": "device_id", **times}
    played = signals(folder, {name: {**column, "column": name} for name in ("a", "b")}, origin_s=NOW)
    seen = set()
    for index in range(30):
        base = SEVERAL[index % 3][1]
        for turn in range(20):
            readings = played.read(Individual.at(1, index), NOW + 4 * turn)
            assert base <= readings["a"] <= base + 29
            assert readings["b"] == pytest.approx(2 * readings["a"], abs=0.011)
            seen.add(readings["a"] - base)
    assert len(seen) > 60


def test_a_drive_of_several_vehicles_is_refused(folder):
    (folder / "drives.csv").write_text("vehicle_id,latitude,longitude\na,52,13\nb,1,2\n", encoding="utf-8")
    with pytest.raises(ConfigurationError, match="lines of several devices: vehicle_id 'a' and 'b'"):
        signals(folder, {"drive": {"kind": "gps_route", "file": "drives.csv"}})


def test_a_drive_follows_its_route_at_its_speed(folder):
    document = {"d": {"kind": "gps_route", "file": "route.gpx", "speed_mps": 10, "begin": "in_step"}}
    drive = signals(folder, document, origin_s=NOW)
    assert set(drive) == {"latitude", "longitude", "heading_degrees", "speed_mps"}
    points = read_route(folder / "route.gpx")
    first_m = distance_m(points[0], points[1])
    assert first_m == pytest.approx(1112, abs=1)
    assert drive.read(A, NOW) == {"latitude": 52.0, "longitude": 13.0, "heading_degrees": 0.0, "speed_mps": 10.0}
    half = drive.read(A, NOW + first_m / 20)
    assert half["latitude"] == pytest.approx(52.005, abs=1e-6)
    east = drive.read(A, NOW + first_m / 10 + 10)
    assert east["heading_degrees"] == pytest.approx(90, abs=0.1)
    assert east["longitude"] > 13.001
    length_m = first_m + distance_m(points[1], points[2])
    back = drive.read(A, NOW + 2 * length_m / 10 - 10)
    assert back["heading_degrees"] == 180
    for seconds in range(0, 400, 7):
        a, b = (drive.read(A, NOW + seconds + more) for more in (0, 1))
        driven = distance_m(Point(a["latitude"], a["longitude"]), Point(b["latitude"], b["longitude"]))
        assert driven == pytest.approx(10, abs=3.1)  # less only in a corner
    stays = signals(folder, {"d": {**document["d"], "at_the_end": "stay"}}, origin_s=NOW).read(A, NOW + 9999)
    assert (stays["latitude"], stays["longitude"], stays["speed_mps"]) == (52.01, 13.01, 0)
    jumps = signals(folder, {"d": {**document["d"], "at_the_end": "jump_to_start"}}, origin_s=NOW)
    assert jumps.read(A, NOW + length_m / 10 + 0.1)["latitude"] == pytest.approx(52.0, abs=1e-4)


def test_a_way_across_the_date_line_is_short():
    assert distance_m(Point(0, 179.9), Point(0, -179.9)) == pytest.approx(22_239, rel=0.01)
    assert heading_degrees(Point(0, 179.9), Point(0, -179.9)) == pytest.approx(90)


def test_everything_that_cannot_be_built_is_said_at_once(folder):
    (folder / "bad.csv").write_text("time,value\n1,1\n1,2\n", encoding="utf-8")
    (folder / "words.csv").write_text("value\none\n", encoding="utf-8")
    (folder / "several.csv").write_text(
        "time,Device ID,value,latitude,longitude\n1,a,1,52,13\n2,b,,52,13\n3,a,3,52,13\n", encoding="utf-8"
    )
    (folder / "whose.csv").write_text("device,value\na,1\n,2\n", encoding="utf-8")
    (folder / "bomb.gpx").write_text('<!DOCTYPE x [<!ENTITY a "b">]><gpx/>', encoding="utf-8")
    (folder / "point.csv").write_text("latitude,longitude\n1,2\n1,2\n", encoding="utf-8")
    (folder / "mars.csv").write_text("latitude,longitude\n1,2\n91,2\n", encoding="utf-8")
    replay = {"kind": "csv", "column": "value", "every_s": 1}
    document = {
        "none": {**replay, "file": "none.csv"},
        "column": {**replay, "file": "values.csv", "column": "valu"},
        "bad": {"kind": "csv", "column": "value", "time_column": "time", "file": "bad.csv"},
        "words": {**replay, "file": "words.csv"},
        "several": {**replay, "file": "several.csv"},
        "gap": {**replay, "file": "several.csv", "device_column": "Device ID"},
        "whose": {**replay, "file": "whose.csv", "device_column": "device"},
        "bomb": {
            "kind": "gps_route",
            "file": "bomb.gpx",
            "latitude": "a",
            "longitude": "b",
            "heading": "c",
            "speed": "d",
        },
        "point": {"kind": "gps_route", "file": "point.csv"},
        "mars": {
            "kind": "gps_route",
            "file": "mars.csv",
            "latitude": "e",
            "longitude": "f",
            "heading": "g",
            "speed": "h",
        },
        "chicken": {"kind": "formula", "expression": "egg + 1"},
        "egg": {"kind": "correlated", "follows": "chicken"},
        "self": {"kind": "correlated", "follows": "self"},
        "lost": {"kind": "formula", "expression": "temprature * 2"},
        "latitude": {"kind": "constant", "value": 1},
    }
    with pytest.raises(ConfigurationError) as caught:
        signals(folder, document)
    said = str(caught.value)
    for sentence in (
        "none.csv: cannot be read",
        "has no column 'valu'; it has time, value, empty",
        "bad.csv: line 3: time does not rise",
        "words.csv: line 2: value 'one' is no number",
        "several.csv: line 3: lines of several devices: Device ID 'a' and 'b'; a signal 'csv' takes them apart",
        "several.csv: has no value in column 'value' for Device ID 'b'",
        "whose.csv: line 3: device is empty: every line has to say whose it is",
        "bomb.gpx: has a document type",
        "point.csv: has fewer than two different points",
        "mars.csv: line 3: 91, 2 is no place on earth",
        "follows itself: chicken -> egg -> chicken",
        "follows itself: self -> self",
        "lost: there is no reading 'temprature' to follow; there is",
        "the reading latitude is already given by point",
    ):
        assert sentence in said, (sentence, said)


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"kind": "sinus"}, "does not match any of the expected tags"),
        ({"kind": "sine"}, "period_s"),
        ({"kind": "constant", "value": 1, "min": 5, "max": 1}, "min (5) is above max (1): swap them"),
        ({"kind": "constant", "value": math.nan}, "finite"),
        ({"kind": "markov", "states": {"a": {"value": 1, "stay_s": 1}}}, "at least 2"),
        (
            {"kind": "markov", "states": {n: {"value": 1, "stay_s": 1, "next": {"c": 1}} for n in "ab"}},
            "next names 'c', which is none of a, b",
        ),
        ({"kind": "csv", "file": "x", "column": "y"}, "either time_column or every_s"),
        ({"kind": "gps_route", "file": "x", "speed": "latitude"}, "four different names"),
        ({"kind": "formula", "expression": "a.b"}, "column 1"),
        ({"kind": "battery", "empty": 100}, "has to be below full"),
        ({"kind": "random_walk", "start": 1, "step": -1}, "greater than or equal to 0"),
    ],
)
def test_settings_that_cannot_be_are_refused(document, said):
    with pytest.raises(ValidationError) as caught:
        READER.validate_python({"reading": document})
    assert said in str(caught.value)


def test_the_schema_describes_every_key():
    schema = READER.json_schema()
    for name, section in schema["$defs"].items():
        for key, about in section["properties"].items():
            assert key == "kind" or about.get("description"), f"{name}.{key}"


def test_a_product_without_a_word_about_readings_has_those_of_the_climate_node():
    assert set(signals_of_product(load_product())) == {
        "temperature_celsius",
        "humidity_percent",
        "battery_percent",
        "signal_dbm",
    }


PRODUCT = NewProduct.model_validate_json(
    json.dumps(
        {
            "name": "Boiler",
            "tables": [
                {
                    "table_name": "readings",
                    "columns": [
                        {"name": "water_temperature", "type": "number", "min": 20, "max": 95, "unit": "celsius"},
                        {"name": "burner_running", "type": "boolean"},
                        {"name": "note", "type": "string"},
                        {"name": "measured_at", "type": "datetime"},
                        {"name": "device_id", "type": "integer"},
                        {"name": "battery_voltage", "type": "number"},
                        {"name": "starts_today", "type": "integer", "min": 0, "max": 200},
                    ],
                }
            ],
            "metadata": {"readings": {"latitude": {}, "longitude": {}, "flow": {"min": 3}}},
            "commands": [
                {"name": "ping"},
                {
                    "name": "set_pressure",
                    "payload_schema": {
                        "properties": {
                            "command": {"const": "x"},
                            "pressure": {"type": "number", "maximum": 3, "minimum": 1},
                        }
                    },
                },
            ],
        }
    )
)


def test_signals_of_a_product_have_the_names_bounds_and_looks_of_what_it_measures(tmp_path):
    settings = signals_of_product(PRODUCT)
    assert {name: each.kind for name, each in settings.items()} == {
        "water_temperature": "diurnal",
        "burner_running": "markov",
        "battery_voltage": "battery",
        "starts_today": "random_walk",
        "latitude": "random_walk",
        "longitude": "random_walk",
        "flow": "random_walk",
        "pressure": "random_walk",
    }
    built = build_signals(settings, folder=tmp_path)
    readings = [built.read(Individual(1, str(n)), NOW + n * 3600) for n in range(200)]
    assert all(20 <= reading["water_temperature"] <= 95 for reading in readings)
    assert {reading["burner_running"] for reading in readings} == {0, 1}
    assert all(3.0 <= reading["battery_voltage"] <= 4.2 for reading in readings)
    assert all(1 <= reading["pressure"] <= 3 for reading in readings)
    assert all(reading["flow"] >= 3 for reading in readings)
    assert all(reading["starts_today"] == int(reading["starts_today"]) for reading in readings)
    assert len({reading["latitude"] for reading in readings}) > 190


def test_tables_that_are_no_tables_are_refused():
    product = NewProduct.model_validate_json('{"name": "x", "tables": {"a": 1}}')
    with pytest.raises(ConfigurationError, match="tables has to be a list of objects"):
        signals_of_product(product)
