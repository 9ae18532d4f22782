"""Reading sensors so that a failing or hung one never hides the others.

Each read has a thread to itself and is waited for as long as its sensor's timeout says. While a read does not come
back, its sensor is skipped with a reason and no second thread reads it. Two callers that want the same sensor at the
same time share one read.

The threads are daemons: those of ``concurrent.futures`` are joined when the process ends, which a sensor that hangs
would hold up.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from typing import Final

from agent.health import OnCrash, WatchedThread, only_logged
from agent.plugins import describe
from agent.sensors.base import Sensor, SensorFailed

READING_NAME_CHARACTERS: Final = 128

NAMES_MAX: Final = 1000
"""So many different names may the readings of all sensors have in the life of a process: each is remembered."""

_NO_NAME: Final = f"the sensors have given {NAMES_MAX} names, or this one is another's: name what is measured"

_REASONS_MAX: Final = 5

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ReadOutcome:
    """The result of one read of one sensor.

    Attributes:
        values: reading name, as in ``sensor_data``, -> finite number; empty when the read failed.
        error: one sentence saying why there is nothing; None when the read went well.
        refused: one sentence for each reading that was left out, such as one that was not a number.
    """

    values: Mapping[str, float] = field(default_factory=dict)
    error: str | None = None
    refused: tuple[str, ...] = ()


@dataclass(slots=True, eq=False)
class Read:
    """One read of one sensor, under way or ended.

    Attributes:
        timeout_s: how long it may take, seconds.
        begun_s: when it began, on the monotonic clock.
        result: the outcome. Never an exception.
    """

    timeout_s: float
    begun_s: float = field(default_factory=time.monotonic)
    result: Future[ReadOutcome] = field(default_factory=Future)

    def outcome(self) -> ReadOutcome:
        """The result, or why there is none yet."""
        return self.result.result() if self.result.done() else self.overdue()

    def overdue(self) -> ReadOutcome:
        """What a read comes to that has not come back within its timeout."""
        taken_s = time.monotonic() - self.begun_s
        return ReadOutcome(error=f"no answer for {taken_s:.3g} s, and it may take {self.timeout_s:g} s")


class SensorReader:
    """Reads the agent's sensors, one by one or all, in bounded time.

    Args:
        sensors: in the configuration's order.
        on_crash: see :class:`~agent.health.WatchedThread`.
    """

    def __init__(self, sensors: Iterable[Sensor], *, on_crash: OnCrash = only_logged) -> None:
        self._sensors = {sensor.name: sensor for sensor in sensors}
        self._on_crash = on_crash
        self._lock = threading.Lock()
        self._running: dict[str, Read] = {}
        self._owners: dict[str, str] = {}
        """Key in ``sensor_data`` -> the sensor whose reading it is."""

    def names(self) -> list[str]:
        """The sensors' names, in the configuration's order."""
        return list(self._sensors)

    def read(self, names: Iterable[str] | None = None) -> Mapping[str, ReadOutcome]:
        """Read sensors at the same time and wait for each as long as its timeout allows.

        Args:
            names: which ones; None reads all.

        Returns:
            One outcome per name. Nothing a sensor does is raised here.

        Raises:
            KeyError: no sensor has one of these names; nothing was read.
        """
        wanted = list(self._sensors) if names is None else list(dict.fromkeys(names))
        for name in wanted:
            if name not in self._sensors:
                raise KeyError(name)
        reads = {name: self.begin(name) for name in wanted}
        for read in reads.values():
            wait([read.result], max(0.0, read.begun_s + read.timeout_s - time.monotonic()))
        return {name: read.outcome() for name, read in reads.items()}

    def begin(self, name: str) -> Read:
        """Begin to read a sensor, or join the read that is under way.

        Raises:
            KeyError: no sensor has this name.
        """
        sensor = self._sensors[name]
        with self._lock:
            if (running := self._running.get(name)) is not None:
                return running
            read = self._running[name] = Read(sensor.timeout_s)
        work = lambda: self._end(name, read, self._read(sensor))  # noqa: E731
        try:
            WatchedThread(work, name=f"sensor:{name}", on_crash=self._on_crash).start()
        except RuntimeError as error:  # the process is out of threads
            self._end(name, read, ReadOutcome(error=f"no thread could be started: {error}"))
        return read

    def close(self, timeout_s: float = 1.0) -> None:
        """Interrupt the reads under way, wait this long for them, and release every sensor that is not stuck."""
        with self._lock:
            running = dict(self._running)
        for name in running:
            self._tell(name, "interrupted", self._sensors[name].interrupt)
        wait([read.result for read in running.values()], timeout_s)
        for name, sensor in self._sensors.items():
            if name not in running or running[name].result.done():
                self._tell(name, "closed", sensor.close)

    def _tell(self, name: str, what: str, call: Callable[[], None]) -> None:
        try:
            call()
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a plug-in may raise anything, and the stop goes on
            _log.warning("sensor %s could not be %s: %s", name, what, describe(error))

    def _end(self, name: str, read: Read, outcome: ReadOutcome) -> None:
        with self._lock:
            self._running.pop(name, None)
        read.result.set_result(outcome)

    def _read(self, sensor: Sensor) -> ReadOutcome:
        try:
            raw: object = sensor.read()
        except SensorFailed as failure:
            return ReadOutcome(error=str(failure) or "the sensor failed and gave no reason")
        except BaseException as failure:  # noqa: BLE001 - a plug-in may raise anything
            _log.debug("sensor %s raised", sensor.name, exc_info=True)
            return ReadOutcome(error=f"the sensor raised {describe(failure)}")
        if not isinstance(raw, Mapping):
            return ReadOutcome(error=f"the sensor returned {type(raw).__name__}, not named numbers")
        values: dict[str, float] = {}
        refused: list[str] = []
        for name, value in raw.items():
            fault = _fault_of(name, value)
            key = self._key(sensor, name) if fault is None else None
            if key is not None:
                values[key] = value
            else:
                refused.append(fault or f"reading {name!r} is left out: {_NO_NAME}")
        error = "; ".join(refused[:_REASONS_MAX]) if refused and not values else None
        return ReadOutcome(values, error, tuple(refused))

    def _key(self, sensor: Sensor, reading: str) -> str | None:
        """The key of a reading in ``sensor_data``; None when there is none left for it.

        A key stays with the sensor that had it first; another one's reading of that name is ``NAME_READING``.
        """
        longer = f"{sensor.name}_{reading}"
        with self._lock:
            for key in [longer] if sensor.prefixed else [reading, longer]:
                owner = self._owners.get(key)
                if owner is None and len(self._owners) < NAMES_MAX:
                    owner = self._owners[key] = sensor.name
                    if key != reading and not sensor.prefixed:
                        both = f"{self._owners[reading]} and {sensor.name}"
                        _log.warning("sensors %s both have a reading %s: the second is %s", both, reading, key)
                if owner == sensor.name:
                    return key
        return None


def _fault_of(name: object, value: object) -> str | None:
    """Why this reading is refused; None when it is good."""
    if isinstance(value, SensorFailed):
        return f"{str(name)[:READING_NAME_CHARACTERS]}: {value}"
    if not isinstance(name, str) or not name or len(name) > READING_NAME_CHARACTERS or not name.isprintable():
        return f"a reading's name must be 1 to {READING_NAME_CHARACTERS} printable characters, not {str(name)[:40]!r}"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return f"reading {name!r} is {type(value).__name__}, not a number"
    if isinstance(value, float) and not math.isfinite(value):
        return f"reading {name!r} is {value}, not a finite number"
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return f"reading {name!r} does not fit into 64 bits"
    return None
