from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).resolve().parents[2] / "tools" / "trace_ways.py"

# What a reader has to open at most; lines of the log and late timers may add one or two to what is usual.
MODULES_MAX = {"command": 54, "reading": 36}


@pytest.mark.parametrize("way", MODULES_MAX)
def test_the_way_through_the_agent_opens_few_modules(way, tmp_path):
    found = subprocess.run(
        [sys.executable, TOOL, way], capture_output=True, text=True, timeout=240, check=False, cwd=tmp_path
    )
    assert found.returncode == 0, found.stderr
    *files, total = found.stdout.splitlines()
    assert total.startswith(f"{len(files)} modules, ")
    ends = {"command": "result_reporter", "reading": "reading_uplink"}
    assert any(ends[way] in file for file in files)
    assert len(files) <= MODULES_MAX[way], found.stdout
