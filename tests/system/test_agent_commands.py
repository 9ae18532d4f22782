"""The commands of ``device-agent``, as a person types them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from agent.cli.program import device_agent
from agent.store.sqlite import FILE_NAME
from agent.store.store import Store
from tests.support.fakes import FakeClock

SOON_S = 60.0


@pytest.fixture
def config(tmp_path) -> Path:
    """A configuration with its keys, for a service that is not there."""
    values = {
        "service": {"base_url": "http://127.0.0.1:1"},
        "device": {"device_id": "d1"},
        "auth": {"allow_secret_key_on_device": True},
        "sensors": [{"name": "board", "type": "system"}],
        "state_dir": str(tmp_path / "state"),
    }
    for name, key in (("api_key", "mk_1"), ("secret_key", "msk_1")):
        path = tmp_path / name
        path.write_text(key)
        path.chmod(0o600)
        values["auth"][f"{name}_file"] = str(path)
    made = tmp_path / "config.yaml"
    made.write_text(yaml.safe_dump(values))
    return made


def run(*arguments: str, **environ: str):
    return CliRunner().invoke(device_agent, list(arguments), env=environ, catch_exceptions=False)


def test_check_tells_of_keys_that_are_still_to_be_filled_in_and_reads_each_sensor(config):
    (config.parent / "api_key").write_text("mk_PASTE_THE_API_KEY_HERE")
    before = run("check", "--config", str(config))
    assert before.exit_code == 2
    assert "still holds the template" in before.output
    (config.parent / "api_key").write_text("mk_1")
    after = run("check", "--config", str(config))
    assert after.exit_code == 0, after.output
    assert "uptime_s=" in after.output


def test_check_online_tells_that_nobody_answers(config):
    found = run("check", "--online", "--config", str(config))
    assert found.exit_code == 5
    assert re.search(r"^FAILED +connection .*\n.*nobody listens", found.output, re.MULTILINE)


def test_a_sensor_that_cannot_be_read_fails_the_listing_and_hides_no_other(config):
    text = config.read_text().replace(
        "\nsensors:\n", "\nsensors:\n- {name: gone, type: file, settings: {path: /none}}\n"
    )
    config.write_text(text)
    found = run("plugins", "list", "--json", "--config", str(config))
    assert found.exit_code == 1
    states = {each["name"]: each["status"] for each in json.loads(found.output)["plugins"]}
    assert states["board"] == "ready"
    assert states["gone"] != "ready"


def test_status_before_the_first_start_says_so(config):
    found = run("status", "--config", str(config))
    assert found.exit_code == 1
    assert found.output.startswith("agent      never started")


def test_status_shows_what_somebody_has_set_and_keeps_the_agents_own_books_for_programs(config):
    (config.parent / "state").mkdir()
    with Store(config.parent / "state" / FILE_NAME, clock=FakeClock()) as store:
        store.journal.put_setting("interval.board", "30")
        store.journal.put_setting("listed_window", "{}")
    given = ("--config", str(config))
    shown = run("status", *given).output
    assert "\nsetting    interval.board = 30\n" in shown
    assert "listed_window" not in shown
    assert json.loads(run("status", "--json", *given).output)["store"]["settings"]["listed_window"] == "{}"
