"""Packages for Node that tests run clients of other people with: installed from a lock file, once for each checkout."""

from __future__ import annotations

import fcntl
import subprocess
from pathlib import Path

import pytest

from tests.conftest import ON_CI, require_program

NPM_S = 100


def node_with(folder: Path) -> str:
    """Node's path, once the packages of ``folder/package-lock.json`` are in ``folder/node_modules``.

    A machine without Node, or without the registry when it is needed, skips the test; CI fails.
    """
    program = require_program("node", "nodejs")
    npm = require_program("npm")
    lock = folder / "package-lock.json"
    installed = folder / "node_modules" / ".package-lock.json"
    with lock.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # pytest's other processes want the same
        if not installed.exists() or installed.stat().st_mtime < lock.stat().st_mtime:
            done = subprocess.run(
                [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"],
                cwd=folder,
                capture_output=True,
                text=True,
                timeout=NPM_S,
                check=False,
            )
            if done.returncode:
                reason = f"npm ci needs the package registry once: {done.stderr.strip()[-300:]}"
                (pytest.fail if ON_CI else pytest.skip)(reason)
    return program
