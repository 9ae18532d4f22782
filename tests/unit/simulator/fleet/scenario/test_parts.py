"""Scenarios out of parts: each part alone, each pair and all of them can be planned, and editors find the schema."""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from jsonschema import Draft202012Validator

from simulator.cli import program
from simulator.fleet.scenario.model import Scenario
from simulator.fleet.scenario.parts import PARTS
from simulator.fleet.scenario.reading import read_scenario
from simulator.fleet.scenario.starters import starter_names

LINE = "# yaml-language-server: $schema="


def told(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(program, list(map(str, arguments)), standalone_mode=False)
    if result.exception is None:
        return int(result.return_value), result.output
    return getattr(result.exception, "exit_code", -1), str(getattr(result.exception, "message", result.exception))


def check_schema(path: Path) -> None:
    """As an editor does: the schema that the first line names, from the file's folder."""
    first, _, _ = path.read_text().partition("\n")
    assert first.startswith(LINE)
    schema = path.parent / first.removeprefix(LINE)
    validator_of(schema.read_text()).validate(yaml.safe_load(path.read_text()))


@functools.cache
def validator_of(schema: str) -> Draft202012Validator:
    """Of a schema that is one; every file has the same."""
    Draft202012Validator.check_schema(json.loads(schema))
    return Draft202012Validator(json.loads(schema))


def has(added: Callable[[Scenario], bool], path: Path) -> bool:
    try:
        return added(read_scenario(path))
    except (AttributeError, IndexError, KeyError, TypeError):  # there is no such section
        return False


@pytest.mark.parametrize(
    "names", [*PARTS, *map(",".join, itertools.combinations(PARTS, 2)), ",".join(PARTS), "door, door,gps"]
)
def test_whatever_parts_are_put_together_can_be_planned_and_fits_the_schema(names, tmp_path):
    path = tmp_path / "mine.yaml"
    code, said = told("init", "--with", names, "--out", path)
    assert (code, said.partition(",")[0]) == (0, f"wrote {path}")
    check_schema(path)
    code, said = told("plan", path)
    assert code == 0, said
    assert said.startswith("mine: load at level core")


@pytest.mark.parametrize(("part", "added"), [
    ("battery", lambda made: made.fleet.models[0].battery.reading == "battery_percent"),
    ("gps", lambda made: made.fleet.models[0].signals["place"].file == "route.gpx"),
    ("door", lambda made: "door_open" in made.fleet.models[0].signals),
    ("states", lambda made: set(made.fleet.models[0].states) == {"idle", "busy"}),
    ("commands", lambda made: [each.payload["command"] for each in made.commands] == [
        "ping", "read_sensors", "set_interval"]),
    ("firmware", lambda made: made.commands[0].payload["command"] == "update_firmware"),
    ("reboots", lambda made: made.fleet.models[0].reboots is not None),
    ("clocks", lambda made: made.fleet.models[0].clock is not None),
    ("outage", lambda made: made.faults[0].kind == "blackout"),
    ("bad-network", lambda made: made.faults[0].kind == "link_profile"),
    ("mqtt", lambda made: made.target.transport == "mqtt"),
])  # fmt: skip
def test_a_part_adds_what_it_says_and_nothing_has_it_without(part, added, tmp_path):
    path = tmp_path / "one.yaml"
    assert told("init", "--with", part, "--out", path)[0] == 0
    assert has(added, path)
    others = ",".join(name for name in PARTS if name not in {part, "firmware", "commands"})
    assert told("init", "--with", others or "door", "--out", path, "--force")[0] == 0
    assert not has(added, path)


def test_an_unknown_part_is_refused_with_a_suggestion_and_all_there_are(tmp_path):
    path = tmp_path / "mine.yaml"
    code, said = told("init", "--with", "batery,xyz", "--out", path)
    assert code == 2
    assert said == (
        "there is no part 'batery' (did you mean 'battery'?), there is no part 'xyz'; there are " + ", ".join(PARTS)
    )
    assert told("init", "--with", ",", "--out", path)[0] == 2
    assert told("init", "--with", "gps", "--from", "smoke", "--out", path)[0] == 2
    assert not list(tmp_path.iterdir())
    listed = told("init", "--list")[1]
    assert all(f"  {name} " in listed and part.what in listed for name, part in PARTS.items())


def test_a_file_that_is_there_is_kept_also_the_route_beside_and_a_schema_is_made_anew(tmp_path):
    path, schema = tmp_path / "mine.yaml", tmp_path / "fleet-scenario.schema.json"
    (tmp_path / "route.gpx").write_text("mine")
    code, said = told("init", "--with", "gps", "--out", path)
    assert (code, path.exists()) == (2, False)
    assert f"{tmp_path / 'route.gpx'} is there already" in said
    assert told("init", "--with", "gps", "--out", path, "--force")[0] == 0
    assert "<gpx" in (tmp_path / "route.gpx").read_text()
    schema.write_text(json.dumps({"title": "Fleet scenario", "of": "an earlier version"}))
    assert told("init", "--out", tmp_path / "other.yaml")[0] == 0
    assert "of" not in json.loads(schema.read_text())
    schema.write_text(json.dumps({"title": "mine"}))
    code, said = told("init", "--out", tmp_path / "third.yaml")
    assert (code, json.loads(schema.read_text())) == (2, {"title": "mine"})


@pytest.mark.parametrize("name", starter_names())
def test_a_starter_that_is_written_names_its_schema_and_one_that_is_printed_none(name, tmp_path):
    path = tmp_path / "mine.yaml"
    assert told("init", "--from", name, "--out", path)[0] == 0
    check_schema(path)
    printed = told("init", "--from", name, "--out", "-")[1]
    assert path.read_text().partition("\n")[2] == printed
    assert told("scenario-schema")[1] == (tmp_path / "fleet-scenario.schema.json").read_text()


def test_the_guide_has_every_part_in_the_words_of_the_program():
    guide = (Path(__file__).parents[5] / "docs" / "scenarios.md").read_text()
    for name, part in PARTS.items():
        assert f"| `{name}` | {part.what.replace('route.gpx', '`route.gpx`')} |" in guide
