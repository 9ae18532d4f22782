"""Scenarios that a program writes: a Python file with ``def scenario() -> dict``, for whoever needs a loop.

It is run with all rights of whoever starts it, so it is loaded only where somebody said so.
"""

from __future__ import annotations

import json
import runpy
import traceback
from pathlib import Path
from typing import Any, Final

from agent.errors import ConfigurationError

FUNCTION: Final = "scenario"


def run_scenario_file(path: Path, *, allowed: bool) -> dict[str, Any]:
    """What the function ``scenario`` of a file returns: the same document as YAML would hold.

    Args:
        path: the file.
        allowed: whether somebody said that it may be run.

    Raises:
        ConfigurationError: it may not, it cannot be run, or it returns no document.
    """
    source = str(path)
    if not allowed:
        fix = "is a program, and running it is not allowed; look into it, and give --allow-python if you trust it"
        raise ConfigurationError([fix], source)
    if not path.is_file():
        raise ConfigurationError(["cannot be read: No such file or directory; name a file that is there"], source)
    try:
        function = runpy.run_path(source, run_name="fleet_scenario").get(FUNCTION)
        document = function() if callable(function) else None
    except Exception as error:  # noqa: BLE001 - whatever the program does is told as one line
        raise ConfigurationError([_told(path, error)], source) from None
    if not isinstance(document, dict):
        raise ConfigurationError([f"needs a function '{FUNCTION}()' that returns a dict with the scenario"], source)
    try:
        json.dumps(document, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ConfigurationError([f"{FUNCTION}() returns something that JSON cannot hold: {error}"], source) from None
    return document


def _told(path: Path, error: Exception) -> str:
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    line = lines[-1] if lines else getattr(error, "lineno", None)
    where = f"line {line}: " if line else ""
    return f"{where}{type(error).__name__}: {str(error)[:200]}"
