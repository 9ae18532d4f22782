"""A sensor: a sequence number and a number that follows from it, written down beside.

``witness.py LEDGER``: prints one JSON object of readings. What the service stores can be held against the ledger,
reading by reading.

Nothing but the standard library: it starts in milliseconds.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time

_TAIL_BYTES = 4096


def main() -> None:
    """Take the next number, write it down, print it."""
    descriptor = os.open(sys.argv[1], os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        size = os.fstat(descriptor).st_size
        begin = max(0, size - _TAIL_BYTES)
        lines = os.pread(descriptor, size - begin, begin).splitlines()
        sequence = json.loads(lines[-1])["sequence"] + 1 if lines else 1
        check = int.from_bytes(hashlib.sha256(str(sequence).encode()).digest()[:4]) / 1000
        line = {"sequence": sequence, "check": check, "at": time.time()}
        os.write(descriptor, (json.dumps(line) + "\n").encode())
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    json.dump({"witness_sequence": sequence, "witness_check": check}, sys.stdout)


if __name__ == "__main__":
    main()
