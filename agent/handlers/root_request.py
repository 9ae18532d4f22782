"""What only root may do, asked for by a file.

A path unit of systemd waits for the file and starts a unit that root wrote. The file is empty: its name is all that it
says, so there is nothing in it for root to believe. It lies on a RAM disk, so a power cut forgets it. Whoever deletes
it has it: root's unit to act on it, the agent to withdraw it.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Final

from agent.handlers.base import HandlerRejected

_CHECK_EVERY_S: Final = 0.1


def ask_root(request: Path, unit: str, timeout_s: float, stopping: threading.Event) -> None:
    """Put the request down and wait until it is taken.

    Args:
        request: the file, in the agent's runtime directory.
        unit: which has to be enabled for it.
        timeout_s: how long to wait, seconds.
        stopping: ends the wait early.

    Raises:
        HandlerRejected: ``not_allowed`` or ``stopped``: nobody took it, and it is withdrawn, so nothing was done or
            will be.
    """
    try:
        request.touch(0o600)
    except OSError as error:
        text = f"the request cannot be written to {request}: {error.strerror}; run the agent by device-agent.service"
        raise HandlerRejected("not_allowed", text) from error
    for _ in range(max(1, round(timeout_s / _CHECK_EVERY_S))):
        if stopping.wait(_CHECK_EVERY_S) or not request.exists():
            break
    try:
        request.unlink()
    except FileNotFoundError:
        return
    if stopping.is_set():
        raise HandlerRejected("stopped", "the agent stopped before anybody took the request")
    text = f"nobody took the request within {timeout_s:g} s: systemctl enable --now {unit}"
    raise HandlerRejected("not_allowed", text)
