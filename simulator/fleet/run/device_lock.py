"""One run at a time for the same devices: two of them would take each other's commands for losses and strangers."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from agent.errors import ConfigurationError
from simulator.file_lock import lock_file
from simulator.fleet.scenario.model import Scenario

_WITHOUT_DEVICES: Final = "onboarding"
"""This kind makes devices of its own for each run."""
_TEXT_BYTES: Final = 200


@contextlib.contextmanager
def claimed_devices(scenario: Scenario, base_url: str, folder: Path | None = None) -> Iterator[None]:
    """Keep other runs of this machine away from the scenario's devices while the block lasts.

    The kernel drops the lock of a run that is killed; its file stays, and is used again.

    Args:
        scenario: names product, user and devices.
        base_url: of the service that has them.
        folder: for the lock; the machine's one for temporary files by default.

    Raises:
        ConfigurationError: another run has them.
    """
    name = claim_name(scenario, base_url)
    if name is None:
        yield
        return
    path = (folder or Path(tempfile.gettempdir())) / f"fleet-simulator-{os.getuid()}-{name}.lock"
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        fault = f"{path} cannot be opened ({error.strerror}), which keeps other runs away: make room, or set TMPDIR"
        raise ConfigurationError([fault], "fleet.identities") from None
    try:
        _lock(descriptor)
        with contextlib.suppress(OSError):  # a full disk: who has the devices is not said, and that is all
            os.ftruncate(descriptor, 0)
            os.write(descriptor, f"scenario {scenario.scenario}, process {os.getpid()}".encode()[:_TEXT_BYTES])
        yield
    finally:
        os.close(descriptor)


def claim_name(scenario: Scenario, base_url: str) -> str | None:
    """The name of a scenario's devices, the same for all runs that have them; None where a run has no such devices.

    Args:
        scenario: names product, user and devices.
        base_url: of the service that has them.
    """
    if scenario.kind == _WITHOUT_DEVICES:
        return None
    fleet = scenario.fleet
    names = fleet.identities.from_file or fleet.identities.prefix
    parts = "\n".join((base_url, fleet.identities.user_id, fleet.product, str(names)))
    return hashlib.sha256(parts.encode()).hexdigest()[:16]


def _lock(descriptor: int) -> None:
    try:
        lock_file(descriptor)
    except BlockingIOError:
        whose = os.read(descriptor, _TEXT_BYTES).decode(errors="replace") or "unknown scenario"
        fault = (
            f"another run of this machine uses these devices ({whose}), and each would take the other's commands and "
            "readings for faults: wait until it has ended, or give this scenario other names with "
            "fleet.identities.prefix"
        )
        raise ConfigurationError([fault], "fleet.identities") from None
