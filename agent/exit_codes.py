"""How ``device-agent`` and ``device-gateway`` end their process. 0 is good."""

from __future__ import annotations

from typing import Final

EXIT_STOPPED: Final = 0
EXIT_CHECK_FAILED: Final = 1
EXIT_CRASHED: Final = 1
EXIT_CONFIGURATION: Final = 2
EXIT_UNREACHABLE: Final = 5
"""The service or the broker cannot be reached."""
EXIT_RESTART: Final = 75
"""``EX_TEMPFAIL`` of ``sysexits.h``: ended by ``restart_agent``; the service manager shall start it again."""
EXIT_INTERRUPTED: Final = 130
"""Ctrl-C, as a shell reports it."""
EXIT_REPLACE: Final = -1
"""Never seen outside: the program is to be run anew in this very process, with another configuration."""
