"""``device-agent`` with another wall clock: ``shifted_agent.py SHIFT_FILE BOOT_ID ARGUMENT...``.

The file holds how many seconds the wall clock is off; it may change while the agent runs. Nothing of the product knows
of this: the module ``time`` is changed before the agent is imported. Child processes keep the true time.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

_true_time = time.time


def main() -> None:
    """Shift, then run the program."""
    shift_file, boot_id = Path(sys.argv[1]), sys.argv[2]
    del sys.argv[1:3]
    known = (-1, 0.0)

    def shifted() -> float:
        nonlocal known
        changed = os.stat(shift_file).st_mtime_ns
        if changed != known[0]:
            known = (changed, float(shift_file.read_text() or known[1]))
        return _true_time() + known[1]

    time.time = shifted
    from agent.runtime import clocks

    clocks.read_boot_id = lambda: boot_id  # type: ignore[assignment, misc]  # the same without its argument
    # What this machine's kernel says of its clock is not true of the shifted one.
    clocks.is_synchronized = lambda: False  # type: ignore[assignment, misc]  # likewise
    from agent.cli import main as run

    run()


if __name__ == "__main__":
    main()
