"""Runs ``device-agent``, and kills it by SIGKILL before the n-th of its calls that change a file.

The environment has n (:data:`AT`; 0 kills never), and a file for the names of the calls (:data:`LIST`).
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

AT: Final = "KILLED_AT"
LIST: Final = "KILLED_LIST"
_CALLS: Final = ("open", "fchmod", "fsync", "replace", "rename", "unlink", "mkdir", "chown")
_WRITING: Final = os.O_WRONLY | os.O_RDWR


def _counted(name: str, call: Callable[..., Any], seen: list[str]) -> Callable[..., Any]:
    def wrapper(*arguments: Any, **named: Any) -> Any:
        if name != "open" or arguments[1] & _WRITING:
            seen.append(name)
            if len(seen) == int(os.environ[AT]):
                os.kill(os.getpid(), signal.SIGKILL)
        return call(*arguments, **named)

    return wrapper


def main() -> None:
    """The program."""
    seen: list[str] = []
    for name in _CALLS:
        setattr(os, name, _counted(name, getattr(os, name), seen))
    from agent.cli import main as device_agent

    try:
        device_agent()
    finally:
        Path(os.environ[LIST]).write_text(" ".join(seen))


if __name__ == "__main__":
    sys.exit(main())
