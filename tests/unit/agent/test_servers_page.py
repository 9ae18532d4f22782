"""docs/servers.md names all that a service can announce and a configuration can say, and its samples are read."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from agent.config.dialect import DialectConfig
from agent.wire import extensions
from agent.wire.announcement import read_announcement
from agent.wire.dialect import CommandLists, Dialect, ResultPlace
from agent.wire.server_findings import ServerFindings, describe
from simulator.service.profiles.text import read_all

DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "servers.md").read_text(encoding="utf-8")


def block(language: str) -> str:
    (found,) = re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    return found


@pytest.mark.parametrize("name", sorted(extensions.ALL))
def test_each_extension_has_its_row(name):
    (row,) = re.findall(rf"^\| `{re.escape(name)}` \|.*$", PAGE, re.MULTILINE)
    assert all(cell.strip() for cell in row.strip("|").split("|"))


@pytest.mark.parametrize("key", DialectConfig.model_fields)
def test_each_key_of_the_dialect_is_in_the_sample_and_in_the_text(key):
    assert key in yaml.safe_load(block("yaml"))["service"]["dialect"]
    assert re.search(rf"`{key}[`:]", PAGE), f"{key} is in no table"


def test_the_sample_of_a_configuration_is_good():
    dialect = DialectConfig.model_validate(yaml.safe_load(block("yaml"))["service"]["dialect"]).dialect()
    assert dialect.reading.command_id_path == ("meta", "command_uuid")
    assert (dialect.results, dialect.command_lists) == (ResultPlace.TABLE, CommandLists.OPEN)


def test_settings_that_the_tables_name_are_taken():
    named = re.findall(r"`(command_id|time_zone|results|results_table|command_lists): ([\w/.+-]+)`", PAGE)
    assert len(named) > 5
    for key, value in named:
        DialectConfig.model_validate({key: value})


def test_the_sample_of_a_discovery_document_announces_what_it_says():
    announcement = read_announcement(json.loads(block("json")))
    assert announcement.version == "2026.11"
    assert len(announcement.extensions) > 5
    assert announcement.extensions <= extensions.ALL


def test_the_line_of_status_is_as_the_agent_prints_it():
    findings = ServerFindings(announced=(), lists=CommandLists.EVERYTHING, no_place="404 not_found")
    assert f"server     {', '.join(describe(findings, Dialect()))}\n" in PAGE
    assert f"server     {', '.join(describe(findings, Dialect()))}\n" in (DOCS / "operations.md").read_text("utf-8")


def test_the_profiles_that_it_shows_are_profiles():
    lines = re.findall(r"^fleet-simulator service (.*)$", PAGE, re.MULTILINE)
    assert lines
    for line in lines:
        read_all(re.findall(r"--profile (\S+)", line))


def test_what_it_shows_of_a_probe_is_what_a_probe_of_a_plain_server_prints():
    printed = (DOCS.parent / "tests" / "contract" / "golden" / "probe-plain.txt").read_text("utf-8").splitlines()
    shown = [line for line in block("text").splitlines() if line != "..."]
    assert len(shown) > 5
    assert [line for line in printed if line in shown] == shown
