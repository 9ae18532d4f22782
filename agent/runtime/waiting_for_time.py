"""Commands that may have expired while the device was off: they wait until somebody tells the time."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from agent.core.values import JournalEntry

if TYPE_CHECKING:
    from agent.ports import Clock

_log = logging.getLogger(__name__)


class WaitingForTime:
    """Keeps what must not run blindly. Thread-safe.

    Within a boot the monotonic clock tells whether a command has expired. After a reboot, with a wall clock that may
    stand anywhere, only the service or a synchronised clock can: until then a command with an expiry that was
    received before the reboot is not begun. Nothing is lost by that: it stays in the journal as it is.

    Args:
        clock: which boot this is.
        service_now: the service's clock, epoch seconds; None when nobody can say.
    """

    def __init__(self, clock: Clock, service_now: Callable[[], float | None]) -> None:
        self._clock = clock
        self._service_now = service_now
        self._lock = threading.Lock()
        self._held: dict[str, tuple[JournalEntry, bool]] = {}

    def holds(self, entry: JournalEntry, verify: bool) -> bool:  # noqa: FBT001 - a port of the lanes
        """True when this command has to wait; :meth:`release` gives it back.

        Args:
            entry: as the journal has it.
            verify: its handler is first asked how it ended.
        """
        if entry.command.expires_at is None or entry.received.boot_id == self._clock.now().boot_id:
            return False
        with self._lock:
            # Asked with the lock held: whoever learns the time now finds it in here, or it does not wait.
            if self._service_now() is not None:
                return False
            self._held[entry.command.id] = (entry, verify)
        _log.info("command=%s state=waiting: it may have expired, and nobody has told the time yet", entry.command.id)
        return True

    def release(self, dispatch: Callable[[JournalEntry, bool], object]) -> None:
        """The time is known: hand all of them on."""
        with self._lock:
            held, self._held = list(self._held.values()), {}
        for entry, verify in held:
            dispatch(entry, verify)
