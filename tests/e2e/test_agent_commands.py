"""The commands of ``device-agent``, as a person types them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from agent.cli.program import device_agent
from agent.store.sqlite import FILE_NAME
from agent.store.store import Store
from tests.fakes import FakeClock

SOON_S = 60.0


@pytest.fixture
def folder(tmp_path) -> Path:
    return tmp_path / "etc"


def run(*arguments: str, **environ: str):
    return CliRunner().invoke(device_agent, list(arguments), env=environ, catch_exceptions=False)


def init(folder: Path, *more: str):
    return run(
        "init",
        "--dir",
        str(folder),
        "--base-url",
        "http://127.0.0.1:1",
        "--device-id",
        "d1",
        "--state-dir",
        str(folder / "state"),
        *more,
    )


def test_init_writes_files_that_check_takes_once_the_keys_are_filled_in(folder):
    written = init(folder, "--allow-secret-key-on-device")
    assert written.exit_code == 0
    config = folder / "config.yaml"
    for name in ("api_key", "secret_key"):
        assert (folder / name).stat().st_mode & 0o777 == 0o600
    before = run("check", "--config", str(config))
    assert before.exit_code == 2
    assert before.output.count("still holds the template") == 2
    (folder / "api_key").write_text("mk_1")
    (folder / "secret_key").write_text("msk_1")
    after = run("check", "--config", str(config))
    assert after.exit_code == 0, after.output
    assert "uptime_s=" in after.output


def test_init_replaces_nothing_without_force_and_never_a_key(folder):
    init(folder, "--allow-secret-key-on-device")
    (folder / "secret_key").write_text("msk_precious")
    refused = init(folder, "--allow-secret-key-on-device")
    assert refused.exit_code == 2
    assert "--force" in refused.output
    assert init(folder, "--allow-secret-key-on-device", "--force").exit_code == 0
    assert (folder / "secret_key").read_text() == "msk_precious"


def test_init_without_the_permission_prepares_a_bearer_token(folder):
    written = init(folder)
    assert written.exit_code == 0
    assert "mode: bearer" in (folder / "config.yaml").read_text()
    assert not (folder / "secret_key").exists()


def test_init_refuses_what_is_no_address(folder):
    refused = run("init", "--dir", str(folder), "--base-url", "nonsense", "--device-id", "d1")
    assert refused.exit_code == 2
    assert not (folder / "config.yaml").exists()


def test_check_names_everything_that_is_wrong_at_once(tmp_path):
    config = tmp_path / "config.yaml"
    config.write_text("service: {bse_url: x}\nauth: {api_key_file: /none}\nsensors: [{name: a}]\n")
    found = run("check", "--config", str(config))
    assert found.exit_code == 2
    for words in ("did you mean 'service.base_url'", "device is missing", "sensors[0].type"):
        assert words in found.output


def test_check_online_tells_that_nobody_answers(folder):
    init(folder, "--allow-secret-key-on-device")
    (folder / "api_key").write_text("mk_1")
    (folder / "secret_key").write_text("msk_1")
    found = run("check", "--online", "--config", str(folder / "config.yaml"))
    assert found.exit_code == 5
    assert re.search(r"^FAILED +connection .*\n.*nobody listens", found.output, re.MULTILINE)


def test_a_wrong_configuration_ends_run_with_code_2_and_no_traceback(tmp_path):
    config = tmp_path / "config.yaml"
    config.write_text("service: {base_url: 'http://127.0.0.1:1'}\n")
    found = run("run", "--config", str(config))
    assert found.exit_code == 2
    assert "device is missing" in found.output


def test_a_sensor_that_cannot_be_read_fails_the_listing_and_hides_no_other(folder):
    init(folder, "--allow-secret-key-on-device")
    config = folder / "config.yaml"
    text = config.read_text().replace(
        "\nsensors:\n", "\nsensors:\n- {name: gone, type: file, settings: {path: /none}}\n"
    )
    config.write_text(text)
    found = run("plugins", "list", "--json", "--config", str(config))
    assert found.exit_code == 1
    states = {each["name"]: each["status"] for each in json.loads(found.output)["plugins"]}
    assert states["board"] == "ready"
    assert states["gone"] != "ready"


def test_status_before_the_first_start_says_so(folder):
    init(folder, "--allow-secret-key-on-device")
    found = run("status", "--config", str(folder / "config.yaml"))
    assert found.exit_code == 1
    assert found.output.startswith("agent      never started")


def test_status_shows_what_somebody_has_set_and_keeps_the_agents_own_books_for_programs(folder):
    init(folder, "--allow-secret-key-on-device")
    (folder / "state").mkdir()
    with Store(folder / "state" / FILE_NAME, clock=FakeClock()) as store:
        store.journal.put_setting("interval.board", "30")
        store.journal.put_setting("listed_window", "{}")
    config = ("--config", str(folder / "config.yaml"))
    shown = run("status", *config).output
    assert "\nsetting    interval.board = 30\n" in shown
    assert "listed_window" not in shown
    assert json.loads(run("status", "--json", *config).output)["store"]["settings"]["listed_window"] == "{}"
