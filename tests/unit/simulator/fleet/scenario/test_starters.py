"""The scenarios that ship: whole, by the schema, and where ``init`` finds them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from jsonschema import Draft202012Validator

from simulator.cli import program
from simulator.fleet.cli import starter_folder
from simulator.fleet.forecast import describe, forecast
from simulator.fleet.scenario.model import scenario_schema
from simulator.fleet.scenario.reading import read_scenario_file

ROOT = Path(__file__).resolve().parents[5]
FILES = sorted((ROOT / "configs" / "scenarios").glob("*.yaml"))
SCHEMA = Draft202012Validator(scenario_schema())


def test_the_ten_of_the_documentation_are_there():
    assert {path.stem for path in FILES} == {
        "smoke", "onboarding-storm", "steady-10k", "command-round-trip", "outage-recovery", "soak",
        "mqtt-10k", "backfill", "requests", "how-many",
    }  # fmt: skip
    said = CliRunner().invoke(program, ["init", "--from", "smok"]).output
    assert all(f"'{path.stem}'" in said for path in FILES), "who names none of them is told them all"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_starter_is_valid_and_does_what_it_says(path):
    scenario = read_scenario_file(path).scenario
    text = path.read_text(encoding="utf-8")
    SCHEMA.validate(yaml.safe_load(text))
    assert scenario.scenario == path.stem
    assert scenario.description
    assert (starter_folder() / path.name).read_text(encoding="utf-8") == text
    assert f"fleet-simulator run configs/scenarios/{path.name} --up" in text
    assert "\n".join(describe(forecast(scenario, cores=2))).startswith(f"{path.stem}: ")


def test_a_starter_that_is_written_names_its_schema_is_kept_and_can_be_planned(tmp_path):
    path = tmp_path / "own.yaml"

    def call(*arguments: object) -> tuple[int, str]:
        done = CliRunner().invoke(program, list(map(str, arguments)))
        return done.exit_code, done.output

    assert call("init", "--out", path)[0] == 0
    assert path.read_text(encoding="utf-8").splitlines()[0].endswith("$schema=fleet-scenario.schema.json")
    assert json.loads((tmp_path / "fleet-scenario.schema.json").read_text()) == scenario_schema()
    code, said = call("init", "--out", path)
    assert (code, "is there already" in said) == (2, True)
    assert call("plan", path)[1].startswith("smoke: devices over")
    assert json.loads(call("plan", path, "--json")[1])["quota_per_minute"] > 0
    path.write_text(path.read_text().replace("devices: 20", "devices: ten"))
    code, said = call("plan", path)
    assert code == 2
    assert "own.yaml: line " in said
    assert "fleet.devices: should be a valid integer, not 'ten'" in said
