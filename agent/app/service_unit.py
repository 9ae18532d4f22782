"""The agent's unit as systemd has it: which program it starts."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Final

UNIT: Final = "device-agent.service"
_PROGRAM: Final = "device-agent"
_PATH: Final = re.compile(r"path=(\S+)")


def foreign_unit_fault(systemctl: str, own_program: Path) -> str | None:
    """One sentence when the unit starts another installation than this one; None else.

    An agent that was installed by pip has a unit of its own, which systemd prefers to the package's.

    Args:
        systemctl: the program.
        own_program: that runs now; only one that is called ``device-agent`` is compared.
    """
    if own_program.name != _PROGRAM:
        return None
    shown = _show(systemctl, "ExecStart")
    found = _PATH.search(shown)
    if found is None or Path(found[1]).resolve() == own_program.resolve():
        return None
    place = _show(systemctl, "FragmentPath")
    return (
        f"{place} starts another agent, {found[1]}, than this one, {own_program}: take it away first (systemctl stop "
        f"device-agent; rm {place}; systemctl daemon-reload), docs/install.md"
    )


def _show(systemctl: str, name: str) -> str:
    done = subprocess.run(
        (systemctl, "show", "--value", f"--property={name}", UNIT), capture_output=True, text=True, check=False
    )
    return done.stdout.strip()
