"""The folder of scenarios: what is in it, what a check says, and which servers a run may not go to."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from agent.errors import ConfigurationError
from simulator.console.runs.programs import Programs
from simulator.console.runs.records import ScenarioFault
from simulator.console.runs.scenarios import ScenariosFolder, faults_of, name_for, refuse_foreign
from simulator.service.errors import Conflict, Invalid, NotFound

HERE = "http://127.0.0.1:8080"


def scenarios(folder: Path | None) -> ScenariosFolder:
    return ScenariosFolder(folder, Programs())


def test_scenarios_are_listed_by_name_and_other_files_are_not(tmp_path: Path) -> None:
    for name in ("b.yaml", "a.yml", "program.py", "keys.txt", ".hidden.yaml"):
        (tmp_path / name).write_text("scenario: x\n")
    (tmp_path / "folder.yaml").mkdir()
    assert [one["name"] for one in scenarios(tmp_path).all()] == ["a.yml", "b.yaml"]


@pytest.mark.parametrize(
    "name", ["../a.yaml", "/etc/passwd", "program.py", "none.yaml", "", "a\0.yaml", ".hidden.yaml"]
)
def test_only_a_scenario_of_the_folder_is_read(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "scenarios"
    folder.mkdir()
    for path in (tmp_path / "a.yaml", folder / "program.py", folder / ".hidden.yaml"):
        path.write_text("scenario: x\n")
    with pytest.raises(NotFound, match="scenario_not_found"):
        scenarios(folder).read(name)


def test_a_scenario_that_is_too_large_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_bytes(b"#" * (1024 * 1024 + 1))
    with pytest.raises(Invalid, match="larger than 1 MB"):
        scenarios(tmp_path).read("a.yaml")


def test_without_a_folder_nothing_is_started_and_the_option_is_named(tmp_path: Path) -> None:
    with pytest.raises(Conflict, match="--scenarios DIR"):
        scenarios(None).all()
    with pytest.raises(ConfigurationError, match="is no folder: name one"):
        scenarios(tmp_path / "none")


def test_faults_come_with_line_and_column() -> None:
    text = (
        "Error: /s/a.yaml: line 3, column 5: fleet.devcies: is no key of a scenario; did you mean 'devices'?\n"
        "/s/a.yaml: line 4, column 1: phases: is missing; add it\n"
        "/s/a.yaml: cannot be read: it is a folder\n"
    )
    assert faults_of(text, Path("/s/a.yaml")) == [
        ScenarioFault(line=3, column=5, text="fleet.devcies: is no key of a scenario; did you mean 'devices'?"),
        ScenarioFault(line=4, column=1, text="phases: is missing; add it"),
        ScenarioFault(line=None, column=None, text="cannot be read: it is a folder"),
    ]
    assert faults_of("", Path("/s/a.yaml"))[0]["text"]


@pytest.mark.parametrize(
    "target",
    [
        "{base_url: https://staging.example.com}",
        "{base_url: http://10.0.0.7:8080}",
        "{base_url: 'http://127.0.0.1@evil.example'}",
        "{base_url: 'http://127.0.0.1.evil.example'}",
        "{base_url: 'http://['}",
        "{base_url: //evil.example}",
        "{broker: {host: broker.example.com}}",
    ],
)
def test_a_scenario_for_somebody_elses_server_is_refused_and_the_key_is_named(target: str) -> None:
    with pytest.raises(Invalid, match=r"target\.(base_url|broker\.host) is .* which is not this machine") as refused:
        refuse_foreign(f"scenario: x\ntarget: {target}\n".encode(), HERE)
    assert refused.value.error == "foreign_target"
    assert "--i-own-this-target" in refused.value.message


@pytest.mark.parametrize(
    "text",
    [
        "target: {base_url: 'http://127.0.0.1:9999'}",
        "target: {base_url: 'http://localhost'}",
        "target: {base_url: 'http://[::1]:8080'}",
        "target: {broker: {host: 127.0.0.1}}",
        "target: {transport: http_poll}",
        "target: 7",
        "[]",
        "",
        "{",
    ],
)
def test_what_names_this_machine_or_nobody_is_not_refused_here(text: str) -> None:
    refuse_foreign(text.encode(), HERE)


@pytest.mark.parametrize(
    ("text", "begin"),
    [
        ("scenario: smoke", "smoke-"),
        ("scenario: ../../etc", "etc-"),
        ("scenario: 'a b/c'", "a-b-c-"),
        ("scenario: 7", "run-"),
        ("scenario: ...", "run-"),
        ("{", "run-"),
    ],
)
def test_a_run_is_named_after_its_scenario_and_the_time(text: str, begin: str) -> None:
    name = name_for(text.encode())
    assert re.fullmatch(re.escape(begin) + r"\d{8}-\d{6}", name)
