"""What the kernel counts about this process."""

from __future__ import annotations

from pathlib import Path
from typing import Final

_IO: Final = Path("/proc/self/io")
_NAME: Final = "write_bytes:"


def written_bytes(path: Path = _IO) -> int | None:
    """What this process caused to be written to disks since it began; None where the kernel does not count it.

    Source: proc(5). Memory file systems count nothing; programs that handlers start count for themselves.
    """
    try:
        for line in path.read_text("utf-8").splitlines():
            if line.startswith(_NAME):
                return int(line.removeprefix(_NAME))
    except (OSError, ValueError):
        pass
    return None
