"""``python -m simulator.console.read_picture``: a picture on standard input, its QR codes as JSON on standard output.

It is a program of its own because pictures come from anywhere: memory and time are bounded here, and a library that
crashes takes nothing else along.
"""

from __future__ import annotations

import json
import resource
import sys
from typing import Final

MEMORY_BYTES: Final = 2 * 1024**3
CPU_S: Final = 20


def main() -> None:
    """Read the picture and print what was found."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    from simulator.labels.pictures import PictureError  # within the limits
    from simulator.labels.reading import read_codes

    try:
        answer: dict[str, object] = {"codes": read_codes(sys.stdin.buffer.read())}
    except PictureError as error:
        answer = {"error": error.word, "message": str(error)}
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    main()
