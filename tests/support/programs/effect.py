"""A handler: writes its effect down where neither agent nor service can touch it, then works.

``effect.py LEDGER``: payload on standard input, ``COMMAND_ID`` in the environment (docs/handlers.md). The line is on
the disk before the work begins, so a run that a SIGKILL cuts short is counted as well.

Nothing but the standard library: it starts in milliseconds.
"""

from __future__ import annotations

import json
import os
import sys
import time

_REJECTED = 64
_SLICE_S = 0.05


def main() -> None:
    """Write the effect down, work for the seconds of the payload, answer."""
    payload = json.load(sys.stdin)
    seconds = payload.get("seconds", 1.0)
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds <= 600:
        sys.stderr.write("seconds must be a number from 0 to 600\n")
        raise SystemExit(_REJECTED)
    command, attempt = os.environ["COMMAND"], int(os.environ["COMMAND_ATTEMPT"])
    line = {"command_id": os.environ["COMMAND_ID"], "command": command, "attempt": attempt, "at": time.time()}
    _append(sys.argv[1], line)
    parent = os.getppid()
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(min(_SLICE_S, max(0.0, until - time.monotonic())))
        if os.getppid() != parent:  # the agent died: nobody is left to take the answer
            raise SystemExit(1)
    json.dump({"done": command, "seconds": seconds, "attempt": attempt}, sys.stdout)


def _append(path: str, line: dict[str, object]) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, (json.dumps(line) + "\n").encode())
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


if __name__ == "__main__":
    main()
