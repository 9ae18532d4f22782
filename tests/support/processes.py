"""Processes of this machine, as tests start them and look at them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def run_program(
    command: Sequence[object], *, code: int | None = None, environ: Mapping[str, str] | None = None, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run it to its end, with nothing to read.

    Args:
        command: the program and its words.
        code: the exit code that it must have; any when None.
        environ: beside this process's environment.
        options: of ``subprocess.run``.
    """
    usual = {"capture_output": True, "text": True, "timeout": 120, "env": {**os.environ, **(environ or {})}}
    if "input" not in options:
        usual["stdin"] = subprocess.DEVNULL
    done = subprocess.run([*map(str, command)], check=False, **{**usual, **options})
    assert code is None or done.returncode == code, done.stdout + done.stderr
    return done


def run_module(module: str, *words: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """As :func:`run_program`, a module of Python: ``agent.cli`` is ``device-agent``."""
    return run_program([sys.executable, "-m", module, *words], **options)


def is_gone(process_id: int) -> bool:
    """Dead, or dead and not yet reaped by whoever inherited it."""
    try:
        return Path(f"/proc/{process_id}/stat").read_text("utf-8").rpartition(")")[2].split()[0] in {"Z", "X"}
    except (FileNotFoundError, ProcessLookupError):
        return True
