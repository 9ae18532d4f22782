"""The way past click: it finds the same configuration file, and what is on it stays small."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from agent.cli import CONFIG_VARIABLE, plain_run
from agent.cli.program import device_agent
from agent.cli.run import run

SOON_S = 30.0


def as_click_reads(words):
    with run.make_context("run", list(words[1:])) as context:
        return context.params["config_path"]


@pytest.mark.parametrize("named", [None, "", "agent.yaml"])
@pytest.mark.parametrize("words", [["run"], ["run", "--config", "other.yaml"], ["run", "--config", "--help"]])
def test_a_plain_run_finds_the_file_that_click_finds(words, named, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(CONFIG_VARIABLE, raising=False)
    if named is not None:
        monkeypatch.setenv(CONFIG_VARIABLE, named)
    assert plain_run(words, os.environ) == as_click_reads(words)


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--help"],
        ["run", "--help"],
        ["run", "--config"],
        ["run", "--config=other.yaml"],
        ["run", "--konfig", "other.yaml"],
        ["run", "--config", "other.yaml", "more"],
        ["check", "--config", "other.yaml"],
    ],
)
def test_everything_else_is_left_to_click(words):
    assert plain_run(words, {}) is None


def test_a_file_that_cannot_be_read_is_left_to_click(monkeypatch, tmp_path):
    path = tmp_path / "agent.yaml"
    path.touch()
    assert plain_run(["run", "--config", str(path)], {}) == path
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert plain_run(["run", "--config", str(path)], {}) is None


def test_an_agent_that_runs_has_no_click_and_no_command_line_of_httpx(tmp_path):
    (tmp_path / "agent.yaml").write_text("nonsense: true\n")
    code = """
import sys
from agent.cli import main
sys.argv = ["device-agent", "run", "--config", "agent.yaml"]
try:
    main()
except SystemExit as end:
    import httpx
    import agent.app.run
    print(end.code, *sorted(sys.modules))
"""
    found = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=SOON_S,
        check=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
    )
    code, *loaded = found.stdout.split()
    assert code == "2"
    assert "nonsense" in found.stderr
    assert not {"click", "rich", "pygments", "paho"} & set(loaded)
    assert {"httpx", "agent.app.run"} <= set(loaded)


def test_the_former_group_of_the_gateway_names_the_program():
    done = CliRunner().invoke(device_agent, ["gateway", "run"])
    assert done.exit_code == 2
    assert "'gateway' is 'device-gateway' now" in done.output
