from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).resolve().parents[2] / "tools" / "trace_ways.py"

# What a reader has to open at most; lines of the log and late timers may add one or two to what is usual.
MODULES_MAX = {"command": 54, "reading": 36}
FUNCTIONS_MAX = {"command": 295, "reading": 180}


@pytest.mark.parametrize("way", MODULES_MAX)
def test_the_way_through_the_agent_opens_few_modules_and_functions(way, tmp_path):
    found = subprocess.run(
        [sys.executable, TOOL, way], capture_output=True, text=True, timeout=240, check=False, cwd=tmp_path
    )
    assert found.returncode == 0, found.stderr
    *files, total = found.stdout.splitlines()
    modules, functions = (int(part.split()[0]) for part in total.split(", "))
    assert modules == len(files)
    ends = {"command": "result_reporter", "reading": "reading_uplink"}
    assert any(ends[way] in file for file in files)
    assert modules <= MODULES_MAX[way], found.stdout
    assert functions <= FUNCTIONS_MAX[way], found.stdout
