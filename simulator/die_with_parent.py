"""Run a program that does not outlive its parent: ``python die_with_parent.py PARENT_PID PROGRAM ARGUMENT...``.

A parent that is killed with SIGKILL cannot end its children. On Linux the kernel does it (``prctl(2)``,
``PR_SET_PDEATHSIG``): the setting survives ``exec``, so this script sets it and becomes the program. Elsewhere it just
becomes the program.

Nothing but the standard library is imported here, and nothing else of this project: it starts in milliseconds.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Sequence

_PR_SET_PDEATHSIG = 1


def with_parent(program: Sequence[str]) -> list[str]:
    """The command line that runs a program which does not outlive this process.

    Args:
        program: its path and its arguments.
    """
    return [sys.executable, "-I", "-S", __file__, str(os.getpid()), *program]


def main() -> None:
    """Tie this process to its parent, then become the program."""
    parent, program = int(sys.argv[1]), sys.argv[2:]
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0) != 0:
            sys.stderr.write(f"die_with_parent: prctl failed: {os.strerror(ctypes.get_errno())}\n")
        if os.getppid() != parent:  # it died before the kernel knew
            raise SystemExit(1)
    os.execv(program[0], program)  # noqa: S606 - the list comes from the demo itself


if __name__ == "__main__":
    main()
