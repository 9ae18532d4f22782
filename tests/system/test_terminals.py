"""A terminal that cannot show every character decides no exit code: ISO-8859-1 has no check mark, ASCII no umlaut."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import yaml

from simulator.children import program_path
from simulator.exit_codes import ExitCode

DOCUMENT = {
    "scenario": "passes",
    "fleet": {"devices": 3, "models": [{"name": "m", "telemetry": {"every_s": 1}}]},
    "phases": [{"name": "hold", "kind": "hold", "duration_s": 3}],
    "thresholds": ["audit.unknown == 0"],
}


def run(encoding: str, *arguments: object) -> subprocess.CompletedProcess[bytes]:
    name, *rest = arguments
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    return subprocess.run(
        [program_path(str(name)), *map(str, rest)], capture_output=True, env=environment, timeout=180, check=False
    )


@pytest.mark.parametrize("encoding", ["latin-1", "ascii"])
def test_a_run_that_held_and_its_report(tmp_path: Path, encoding: str):
    scenario = tmp_path / "passes.yaml"
    scenario.write_text(yaml.safe_dump(DOCUMENT))
    done = run(encoding, "fleet-simulator", "run", scenario, "--local", "--out", tmp_path / "run")
    assert done.returncode == ExitCode.GOOD, done.stdout + done.stderr
    again = run(encoding, "fleet-simulator", "report", tmp_path / "run")
    assert (again.returncode, again.stderr) == (ExitCode.GOOD, b"")
