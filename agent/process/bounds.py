"""Default bounds of the programs that the agent runs: path, output, time to end."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

DEFAULT_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""The ``PATH`` of every program that the agent runs."""

OUTPUT_BYTES: Final = 64 * 1024
MAX_OUTPUT_BYTES: Final = 128 * 1024
"""The bound of the bound: with its quoting, a result must fit into a request body of 256 KiB."""
DIAGNOSTICS_BYTES: Final = 8 * 1024
GRACE_S: Final = 2.0
"""Between asking its process group to end and ending it."""

Argument = Annotated[str, Field(min_length=1, max_length=4096, pattern=r"^[^\x00]*$")]
"""One argument of a program; no shell sees it."""
