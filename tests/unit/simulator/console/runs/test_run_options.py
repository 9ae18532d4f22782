"""The options of the console's runs where they cannot have an effect: one line that says what to leave out."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from simulator.cli import program


@pytest.mark.parametrize("off", ["--no-console", "--no-control"])
@pytest.mark.parametrize("option", ["--runs", "--scenarios"])
def test_a_service_without_console_refuses_them(off: str, option: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(program, ["service", "--port", "0", off, option, str(tmp_path)])
    assert done.exit_code == 2
    assert f"error: {option}: of the console, which --no-console or --no-control leaves out" in done.output


@pytest.mark.parametrize("option", ["--runs", "--scenarios"])
def test_up_without_console_refuses_them(option: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(program, ["up", "--port", "0", "--no-console", option, str(tmp_path)])
    assert done.exit_code == 2
    assert "--runs and --scenarios are the console's" in done.output


def test_exec_has_neither(tmp_path: Path) -> None:
    done = CliRunner().invoke(program, ["service", "exec", "--runs", str(tmp_path), "--", "true"])
    assert done.exit_code == 2
    assert "No such option" in done.output
