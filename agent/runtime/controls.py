"""What a handler may ask of the agent that runs it."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from agent.core.values import JsonObject
from agent.runtime.intervals import Intervals

if TYPE_CHECKING:
    from agent.handlers.upkeep import Upkeep
    from agent.ports import Clock, Journal
    from agent.runtime.sensing import Reader


class Controls:
    """The agent's side of ``CommandContext.controls``.

    Args:
        journal: keeps what handlers remember.
        restart: called with the reason; returns at once.
        upkeep: what keeps the agent itself going.
        mode: ``normal``, or why the agent is in safe mode.
        cancel: takes another command back; see :meth:`agent.runtime.dispatcher.Dispatcher.cancel`.
    """

    def __init__(
        self,
        *,
        device_id: str,
        version: str,
        clock: Clock,
        reader: Reader,
        intervals: Intervals,
        journal: Journal,
        restart: Callable[[str], None],
        upkeep: Upkeep,
        mode: str = "normal",
        cancel: Callable[[str, str], str],
    ) -> None:
        self._mode = mode
        self._device_id = device_id
        self._version = version
        self._clock = clock
        self._created_s = clock.now().monotonic_s
        self._reader = reader
        self._intervals = intervals
        self._journal = journal
        self._restart = restart
        self._upkeep = upkeep
        self._cancel = cancel

    @property
    def upkeep(self) -> Upkeep:
        """What keeps the agent itself going."""
        return self._upkeep

    def read_sensors(self, names: list[str] | None) -> Mapping[str, Mapping[str, float] | str]:
        """Read sensors now: name -> named numbers, or a sentence saying why it could not be read.

        Raises:
            KeyError: no sensor has one of these names.
        """
        results = self._reader.read(names)
        return {name: result.values if result.error is None else result.error for name, result in results.items()}

    def set_interval(self, name: str, interval_s: float | None) -> float:
        """Set it, or go back to the configuration's with None; returns what is in force now, seconds."""
        return self._intervals.set(name, interval_s)

    def identity(self) -> JsonObject:
        """The identity of this device."""
        now = self._clock.now()
        return {
            "device_id": self._device_id,
            "agent_version": self._version,
            "mode": self._mode,
            "machine": platform.machine(),
            "system": f"{platform.system()} {platform.release()}",
            "host": platform.node(),
            "python": platform.python_version(),
            "process_id": os.getpid(),
            "boot_id": now.boot_id,
            "uptime_s": round(now.monotonic_s, 1),
            "agent_uptime_s": round(now.monotonic_s - self._created_s, 3),
        }

    def recall(self, name: str) -> str | None:
        """What a handler stored under this name; None when nothing was."""
        return self._journal.setting(_key(name))

    def remember(self, name: str, value: str | None) -> None:
        """Store a handler's short text beside the journal, or forget it with None.

        Raises:
            StorageError: it is not stored.
        """
        self._journal.put_setting(_key(name), value)

    def cancel_command(self, command_id: str, why: str) -> str:
        """Take a command back: one that waits never runs, one that runs is asked to end."""
        return self._cancel(command_id, why)

    def request_restart(self, reason: str) -> None:
        """End the agent's process in order; the service manager starts it again."""
        self._restart(reason)


def _key(name: str) -> str:
    return f"handler.{name}"
