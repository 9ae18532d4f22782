"""What the command line and the configuration know of the log: without the service's libraries."""

from __future__ import annotations

from typing import Final

KEEP_DEFAULT: Final = 1_000
KEEP_MAX: Final = 100_000
