"""A sensor of the demo's real agent: ``witness.py LEDGER`` numbers its readings, and writes each down first.

Nothing but the standard library: it starts in milliseconds.
"""

from __future__ import annotations

import json
import os
import sys
import time


def main() -> None:
    """Take the next number, write it down, print it with a number that follows from it."""
    with open(sys.argv[1], "a+", encoding="ascii") as ledger:
        ledger.seek(0)
        sequence = len(ledger.readlines()) + 1
        check = sequence * 7919 % 10007
        ledger.write(json.dumps({"sequence": sequence, "check": check, "at": time.time()}) + "\n")
        ledger.flush()
        os.fsync(ledger.fileno())
    json.dump({"witness_sequence": sequence, "witness_check": check}, sys.stdout)


if __name__ == "__main__":
    main()
