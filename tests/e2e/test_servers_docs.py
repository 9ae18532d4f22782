"""The probes that docs/servers.md shows run as they stand, against the real service."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.agent_bench import API_KEY, SECRET_KEY

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "servers.md").read_text("utf-8")
pytestmark = [pytest.mark.timeout(300), pytest.mark.long]


def test_each_probe_that_the_page_shows_ends_with_every_rule_held(service, bench, tmp_path):
    (script,) = re.findall(r"^```sh\n(fleet-simulator probe .*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    programs = {"fleet-simulator": "simulator.cli", "device-agent": "agent.cli"}
    for name, module in programs.items():
        (tmp_path / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" -m {module} "$@"\n')
        (tmp_path / name).chmod(0o755)
    (tmp_path / "script.sh").write_text(f"set -ex\n{script}")
    done = subprocess.run(
        ["sh", "script.sh"],
        cwd=bench.folder,
        env={
            **os.environ,
            "PATH": f"{tmp_path}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "BASE_URL": service.base_url,
            "API_KEY": API_KEY,
            "DEVICE": bench.device_id,
        },
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "BROKEN" not in done.stdout
    assert SECRET_KEY not in done.stdout + done.stderr
    stored = [reading.sensor_data for reading in bench.client.sensor_data(bench.device_id)]
    assert stored
    assert all(name.startswith("probe_") for reading in stored for name in reading), json.dumps(stored)
