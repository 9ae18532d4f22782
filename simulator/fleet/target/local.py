"""A target for one run: the local service with all around it, in a process of its own that ends with the run."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from agent.errors import ConfigurationError
from simulator.children import ChildProcess, Children, program_path
from simulator.fleet.target.standing import StandingService, find_standing

_READY_S: Final = 60.0


@contextlib.contextmanager
def running_local(folder: Path, *, rate_limit: int, gateway: bool) -> Iterator[StandingService]:
    """Start ``fleet-simulator up`` and end it after the block.

    Args:
        folder: for its data and its log; made when it is missing.
        rate_limit: requests of a key in a calendar minute; 0 = no limit.
        gateway: with gateway and broker.

    Raises:
        ChildFailed: it did not start; the text shows the end of its log.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with Children() as children:
        # What it greets with are keys and a token, which no file is to hold that goes along with a run's reports.
        child = children.add(ChildProcess("fleet-simulator up", folder / "up.log", Path(os.devnull)))
        program = [str(program_path("fleet-simulator")), "up", "--data", str(folder), "--port", "0"]
        program += ["--rate-limit", str(rate_limit)]
        child.start([*program, *(["--gateway", "--gateway-port", "0"] if gateway else ["--no-gateway"])])
        child.wait_until(lambda: _stands(folder), "the service stood", _READY_S)
        yield find_standing(folder)


def _stands(folder: Path) -> bool:
    with contextlib.suppress(ConfigurationError):
        find_standing(folder)
        return True
    return False
