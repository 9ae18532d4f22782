"""Starts a program with an input from processes that are killed in the middle of it; ``python killed_parents.py ...``.

Arguments: how many kills; how many bytes of input; ``exec`` kills each parent in the moment in which its child has been
started, ``random`` at any moment from before the start on. Prints one line: the sizes of input that the children read,
each with how many read so much, as JSON. A child that was never started reads nothing and is not counted.
"""

from __future__ import annotations

import collections
import ctypes
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NoReturn

from agent.process.program import run_program

_PR_SET_CHILD_SUBREAPER = 36
_LATEST_S = 0.012


class _KilledAtStart(subprocess.Popen[bytes]):
    """``Popen`` whose process dies as soon as the child is there."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """Kill, wait for the children that were left behind, count."""
    kills, size_bytes, when = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)  # what they leave behind is waited for here
    with tempfile.TemporaryDirectory() as folder:
        record = Path(folder, "record")
        record.touch()
        for _ in range(kills):
            pid = os.fork()
            if pid == 0:
                _run(record, size_bytes, when)
            if when == "random":
                time.sleep(random.uniform(0.0, _LATEST_S))
                os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        try:
            while True:
                os.wait()
        except ChildProcessError:
            sys.stdout.write(json.dumps(collections.Counter(record.read_text().split())) + "\n")


def _run(record: Path, size_bytes: int, when: str) -> NoReturn:
    if when == "exec":
        subprocess.Popen = _KilledAtStart  # type: ignore[misc,assignment] - the kill at one point
    program = ["/bin/sh", "-c", 'read=$(wc -c); echo "$read" >> "$0"', str(record)]
    run_program(program, timeout_s=60, input_bytes=b"x" * size_bytes)
    os._exit(0)


if __name__ == "__main__":
    main()
