"""The one list of checks, for ``device-agent doctor`` and, in part, for ``device-agent check``."""

from __future__ import annotations

from typing import Final

from agent.doctor import machine, network, service
from agent.doctor.device import Device
from agent.doctor.findings import Check

CHECKS: Final[tuple[Check[Device], ...]] = (*machine.CHECKS, *network.CHECKS, service.CHECK)
"""Every check, in the order in which they run."""

BEFORE_START: Final = frozenset({"configuration", "key_files", "state_dir", "handlers", "sensors"})
"""The checks on this device that ``device-agent check`` runs before the agent is started or its file is taken up."""
