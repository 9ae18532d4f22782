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

    A run that was killed leaves nothing behind that would have to be cleared away: the kernel drops its lock.

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
    descriptor = _lock(path)
    try:
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"scenario {scenario.scenario}, process {os.getpid()}".encode()[:_TEXT_BYTES])
        yield
    finally:
        path.unlink(missing_ok=True)
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


def taken(whose: str, where: str) -> ConfigurationError:
    """The error of a run whose devices another one has.

    Args:
        whose: which run that is.
        where: it was started.
    """
    fault = (
        f"another run of {where} uses these devices ({whose}), and each would take the other's commands and readings "
        "for faults: wait until it has ended, or give this scenario other names with fleet.identities.prefix"
    )
    return ConfigurationError([fault], "fleet.identities")


def _lock(path: Path) -> int:
    """A descriptor that holds the lock on what is at the path now."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            lock_file(descriptor)
        except BlockingIOError:
            whose = os.read(descriptor, _TEXT_BYTES).decode(errors="replace") or "unknown scenario"
            os.close(descriptor)
            raise taken(whose, "this machine") from None
        # Who held it before may have taken the file away in between: then nobody else would see this lock.
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), path.stat()):
                return descriptor
        os.close(descriptor)
