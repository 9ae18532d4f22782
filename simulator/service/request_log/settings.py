"""What the command line and the configuration know of the logs: without the service's libraries."""

from __future__ import annotations

from typing import Final, Literal

AccessLogStyle = Literal["text", "json", "off"]
KEEP_DEFAULT: Final = 1_000
KEEP_MAX: Final = 100_000
