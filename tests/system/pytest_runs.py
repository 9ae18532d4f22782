"""Runs pytest on tests of somebody else's, in a process of its own, and looks at what it leaves."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LOOK = """
import json, os, threading
from pathlib import Path

import pytest


def listening():
    mine = {os.readlink(one) for one in Path("/proc/self/fd").iterdir() if os.path.lexists(one)}
    rows = [line.split() for line in Path("/proc/self/net/tcp").read_text().splitlines()[1:]]
    return [row[1] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in mine]


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config):
    children = [one for listed in Path("/proc/self/task").glob("*/children") for one in listed.read_text().split()]
    left = {
        "threads": [one.name for one in threading.enumerate() if one is not threading.main_thread()],
        "listening": listening() if os.path.exists("/proc/self/net/tcp") else [],
        "children": children,
    }
    Path(os.environ["LEFT"], f"{os.getpid()}.json").write_text(json.dumps(left))
"""
"""A conftest that writes down what each process still has when pytest ends in it."""


@dataclass(frozen=True, slots=True)
class Run:
    """A run of pytest.

    Attributes:
        counts: outcome -> how many tests had it.
        left: of each process, what it still had at its end.
        temporary: what was left in the system's temporary folder.
    """

    output: str
    exit_code: int
    counts: dict[str, int]
    left: list[dict[str, list[str]]]
    temporary: list[str]


def run_pytest(folder: Path, *arguments: str, python: str = sys.executable, **environ: str) -> Run:
    """Run pytest in a folder with the plug-in and nothing else of this machine's.

    Args:
        folder: with the tests; a conftest that looks at the end is put beside them.
        arguments: of pytest.
        python: to run it with.
        environ: further variables.
    """
    left, temporary = folder / "left", folder / "tmp"
    left.mkdir()
    temporary.mkdir()
    (folder / "look_at_the_end.py").write_text(LOOK)
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    done = subprocess.run(
        [python, "-m", "pytest", "-p", "simulator.pytest_plugin", "-p", "look_at_the_end", "-W", "error", *arguments],
        cwd=folder,
        env={
            **clean,
            "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)]),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "TMPDIR": str(temporary),
            "LEFT": str(left),
            **environ,
        },
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    last = done.stdout.strip().splitlines()[-1] if done.stdout.strip() else ""
    return Run(
        done.stdout + done.stderr,
        done.returncode,
        {name.removesuffix("s"): int(count) for count, name in re.findall(r"(\d+) (\w+)", last.partition(" in ")[0])},
        [json.loads(file.read_text()) for file in left.iterdir()],
        [one.name for one in temporary.iterdir() if not one.name.startswith("pytest-of-")],
    )
