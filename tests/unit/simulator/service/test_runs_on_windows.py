"""The local service runs on Windows, too: nothing that it imports needs a module that only POSIX systems have."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

POSIX_ONLY = {"fcntl", "grp", "pwd", "resource", "termios", "tty", "pty", "syslog"}
LIST = """
import sys
import simulator.service.cli, simulator.service.server
for name, module in sorted(sys.modules.items()):
    if name.partition(".")[0] in {"agent", "gateway", "simulator"}:
        print(module.__file__)
"""


def test_no_module_of_the_service_needs_one_of_posix():
    files = subprocess.run([sys.executable, "-c", LIST], capture_output=True, text=True, check=True).stdout.split("\n")
    paths = [Path(file) for file in files if file]
    assert len(paths) > 100
    found = {path.name: names for path in paths if (names := imported(path) & POSIX_ONLY)}
    assert found == {}, "import it inside the function that needs it, beside a way for Windows"


def imported(path: Path) -> set[str]:
    """What a module imports at its top level without a condition."""
    names: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Import):
            names |= {one.name.partition(".")[0] for one in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return names
