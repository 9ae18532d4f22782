"""The intervals that a command may set: of each sensor, and of polls."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

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
