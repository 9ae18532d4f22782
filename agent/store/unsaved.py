"""How many readings only memory holds while the disk takes nothing, kept where a full disk still lets it be written."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import astuple
from pathlib import Path
from typing import Final

from agent.core.outbox import DropReason, Gap
from agent.core.values import Moment

_NOTE_BYTES: Final = 512


class UnsavedNote:
    """A small file that is overwritten in place, which works on a full disk: the next process sends it as a gap.

    Args:
        path: where; the file is made while there is room, and stays.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._is_empty = False

    def read(self) -> Gap | None:
        """What the last process left; None when all of it was stored. Makes the file where there is none."""
        try:
            rows, since, until = json.loads(self._path.read_bytes())
            return Gap(DropReason.UNSAVED, int(rows), Moment(*since), Moment(*until))
        except (OSError, ValueError, TypeError):
            self.write(None)
            return None

    def write(self, gap: Gap | None) -> None:
        """Overwrite it; where that fails, only the count is lost."""
        if gap is None and self._is_empty:
            return
        text = "" if gap is None else json.dumps(astuple(gap)[1:])
        with suppress(OSError):
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                os.pwrite(descriptor, text.encode().ljust(_NOTE_BYTES), 0)
                self._is_empty = gap is None
            finally:
                os.close(descriptor)
