"""The last lines of the log in memory, for ``collect_diagnostics``: not every agent may read the journal."""

from __future__ import annotations

import logging
from collections import deque
from typing import Final

LINES: Final = 200
CHARACTERS: Final = 400


class LogRing(logging.Handler):
    """Keeps the last :data:`LINES` lines, each cut to :data:`CHARACTERS`: some 30 KB, at most 80.

    Args:
        formatter: makes a line of a record, without secrets.
    """

    def __init__(self, formatter: logging.Formatter) -> None:
        super().__init__()
        self.setFormatter(formatter)
        self._lines: deque[str] = deque(maxlen=LINES)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the line."""
        try:
            self._lines.append(self.format(record)[:CHARACTERS])
        except Exception:  # noqa: BLE001 - as every handler of the log: what cannot be told must not end the agent
            self.handleError(record)

    def lines(self) -> list[str]:
        """What is kept, oldest first."""
        return list(self._lines)
