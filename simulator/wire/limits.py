"""What only the service itself has to know of the protocol's numbers (docs/protocol.md): bounds, and its defaults.

Those that its clients know too are in :mod:`agent.wire.limits`.
"""

from __future__ import annotations

from typing import Final

QR_BYTES: Final = 4_096
"""``qr_data`` as UTF-8."""

NAME_CHARACTERS: Final = 255
"""The name of a database's schema, table or column."""

PAGE_DEFAULT: Final = 100
"""Items on one page of a list that is asked for without a limit."""

TTL_DEFAULT_S: Final = 3_600
"""How long a command waits for its device, seconds."""

OPEN_COMMANDS_MAX: Final = 100
"""Open commands of one device."""

ONLINE_WITHIN_S: Final = 120
"""A device seen within this many seconds is online."""

QUOTA_PER_MINUTE: Final = 1_000
"""Requests of one API key in one calendar minute."""
