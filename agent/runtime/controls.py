"""What a handler may ask of the agent that runs it, and the intervals that it may set."""

from __future__ import annotations

import logging
import os
import platform
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from agent.core.values import JsonObject, Moment
from agent.handlers.maintenance import Upkeep
from agent.ports import Clock
from agent.sensors.reader import SensorReader
from agent.store.journal import Journal

POLL: Final = "poll"
MIN_SENSOR_S: Final = 0.1
MIN_POLL_S: Final = 0.5
MAX_S: Final = 31 * 86400.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class IntervalChanged:
    """An interval was set: message to the services that keep it."""

    name: str


class Intervals:
    """Intervals by name: the sensors' and ``poll``.

    Args:
        journal: where a set interval survives a restart.
        configured: what the configuration says, seconds; the names in it are all there are.
        on_change: called with the name of an interval that was set, from the thread that set it.
    """

    def __init__(self, journal: Journal, configured: Mapping[str, float], on_change: Callable[[str], None]) -> None:
        self._journal = journal
        self._configured = dict(configured)
        self._on_change = on_change
        self._lock = threading.Lock()
        self._set: dict[str, float] = {}
        for name in self._configured:
            text = journal.setting(_interval_key(name))
            if text is None:
                continue
            try:
                self._set[name] = _within_bounds(name, float(text))
            except ValueError:
                _log.warning("interval=%s stored value %.40r is not usable: the configuration's is used", name, text)

    def get(self, name: str) -> float:
        """The interval in force, seconds.

        Raises:
            KeyError: nothing has this name.
        """
        with self._lock:
            return self._set.get(name, self._configured[name])

    def is_set(self, name: str) -> bool:
        """True when ``set_interval`` replaced the configuration's value."""
        with self._lock:
            return name in self._set

    def set(self, name: str, interval_s: float | None) -> float:
        """Set it, or go back to the configuration's with None; returns what is in force now, seconds.

        Raises:
            KeyError: nothing has this name.
            ValueError: out of bounds; the text says which.
            StorageError: it could not be stored, so it does not apply.
        """
        if name not in self._configured:
            raise KeyError(name)
        if interval_s is not None:
            interval_s = _within_bounds(name, interval_s)
        self._journal.put_setting(_interval_key(name), None if interval_s is None else repr(interval_s))
        with self._lock:
            if interval_s is None:
                self._set.pop(name, None)
            else:
                self._set[name] = interval_s
        self._on_change(name)
        return self.get(name)


def _interval_key(name: str) -> str:
    return f"interval.{name}"


def _within_bounds(name: str, interval_s: float) -> float:
    least_s = MIN_POLL_S if name == POLL else MIN_SENSOR_S
    if not least_s <= interval_s <= MAX_S:
        raise ValueError(f"the interval of {name!r} must be {least_s:g} to {MAX_S:g} s, not {interval_s:g}")
    return interval_s


@dataclass(slots=True, kw_only=True)
class Controls:
    """The agent's side of ``CommandContext.controls``.

    Attributes:
        journal: keeps what handlers remember.
        restart: called with the reason; returns at once.
        upkeep: what keeps the agent itself going.
        mode: ``normal``, or why the agent is in safe mode.
        cancel: takes another command back; see :meth:`agent.runtime.engine.CommandEngine.cancel`.
        started: when this process began.
    """

    device_id: str
    version: str
    clock: Clock
    reader: SensorReader
    intervals: Intervals
    journal: Journal
    restart: Callable[[str], None]
    upkeep: Upkeep
    mode: str = "normal"
    cancel: Callable[[str, str], str]
    started: Moment

    def read_sensors(self, names: list[str] | None) -> Mapping[str, Mapping[str, float] | str]:
        """Read sensors now: name -> named numbers, or a sentence saying why it could not be read.

        Raises:
            KeyError: no sensor has one of these names.
        """
        results = self.reader.read(names)
        return {name: result.values if result.error is None else result.error for name, result in results.items()}

    def set_interval(self, name: str, interval_s: float | None) -> float:
        """Set it, or go back to the configuration's with None; returns what is in force now, seconds."""
        return self.intervals.set(name, interval_s)

    def identity(self) -> JsonObject:
        """The identity of this device."""
        now = self.clock.now()
        return {
            "device_id": self.device_id,
            "agent_version": self.version,
            "mode": self.mode,
            "machine": platform.machine(),
            "system": f"{platform.system()} {platform.release()}",
            "host": platform.node(),
            "python": platform.python_version(),
            "process_id": os.getpid(),
            "boot_id": now.boot_id,
            "uptime_s": round(now.monotonic_s, 1),
            "agent_uptime_s": round(now.monotonic_s - self.started.monotonic_s, 3),
        }

    def recall(self, name: str) -> str | None:
        """What a handler stored under this name; None when nothing was."""
        return self.journal.setting(_handler_key(name))

    def remember(self, name: str, value: str | None) -> None:
        """Store a handler's short text beside the journal, or forget it with None.

        Raises:
            StorageError: it is not stored.
        """
        self.journal.put_setting(_handler_key(name), value)

    def cancel_command(self, command_id: str, why: str) -> str:
        """Take a command back: one that waits never runs, one that runs is asked to end."""
        return self.cancel(command_id, why)

    def request_restart(self, reason: str) -> None:
        """End the agent's process in order; the service manager starts it again."""
        self.restart(reason)


def _handler_key(name: str) -> str:
    return f"handler.{name}"
