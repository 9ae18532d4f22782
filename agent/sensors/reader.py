"""Reading sensors so that a failing, hung or nonsensical one never hides the others.

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
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from typing import Final

from agent.plugins import describe
from agent.sensors.base import Sensor, SensorFailed
from agent.threads import OnCrash, WatchedThread, only_logged

READING_NAME_CHARACTERS: Final = 128

NAMES_MAX: Final = 1000
"""So many different names may the readings of all sensors have in the life of a process: each is remembered."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LoadedSensor:
    """A sensor that is ready to be read.

    Attributes:
        name: what the configuration calls it; unique.
        sensor: the instance.
        timeout_s: how long one read may take, seconds.
        prefixed: its readings are called ``NAME_READING`` from the start, not only when another has taken the name.
    """

    name: str
    sensor: Sensor
    timeout_s: float
    prefixed: bool = False


@dataclass(frozen=True, slots=True)
class ReadOutcome:
    """The result of one read of one sensor.

    Attributes:
        values: reading name, as in ``sensor_data``, -> finite number; empty when the read failed.
        error: one sentence saying why there is nothing; None when the read went well.
        refused: one sentence for each reading that was left out, such as one that was not a number.
        duration_s: how long the read took, or has taken so far.
    """

    values: Mapping[str, float] = field(default_factory=dict)
    error: str | None = None
    refused: tuple[str, ...] = ()
    duration_s: float = 0.0


@dataclass(slots=True, eq=False)
class Read:
    """One read of one sensor, under way or ended.

    Attributes:
        timeout_s: how long it may take, seconds.
        begun_s: when it began, on the clock ``monotonic``.
        result: the outcome. Never an exception.
    """

    timeout_s: float
    begun_s: float
    monotonic: Callable[[], float]
    result: Future[ReadOutcome] = field(default_factory=Future)

    def outcome(self, *, skipped: bool = False) -> ReadOutcome:
        """The result, or the reason why there is none yet; ``skipped`` when an earlier timeout has passed already."""
        if self.result.done() and not skipped:
            return self.result.result()
        taken_s = self.monotonic() - self.begun_s
        sentence = f"no answer within {self.timeout_s:g} s"
        if skipped:
            sentence = f"skipped: a read that began {taken_s:.3g} s ago has not come back"
        return ReadOutcome(error=sentence, duration_s=taken_s)


class SensorReader:
    """Reads the agent's sensors, one by one or all, in bounded time.

    Args:
        sensors: in the configuration's order.
        monotonic: the clock that durations are measured on, seconds.
        on_crash: see :class:`~agent.threads.WatchedThread`.
    """

    def __init__(
        self,
        sensors: Sequence[LoadedSensor],
        *,
        monotonic: Callable[[], float] = time.monotonic,
        on_crash: OnCrash = only_logged,
    ) -> None:
        self._sensors = {loaded.name: loaded for loaded in sensors}
        self._monotonic = monotonic
        self._on_crash = on_crash
        self._lock = threading.Lock()
        self._running: dict[str, Read] = {}
        # The keys in sensor_data: of each reading of a sensor, and whose each of them is.
        self._keys: dict[tuple[str, str], str] = {}
        self._owners: dict[str, str] = {}

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
        overdue = set(self.stuck())
        reads = {name: self.begin(name) for name in wanted}
        for name, read in reads.items():
            if name not in overdue:
                wait([read.result], max(0.0, read.begun_s + read.timeout_s - self._monotonic()))
        return {name: read.outcome(skipped=name in overdue) for name, read in reads.items()}

    def begin(self, name: str) -> Read:
        """Begin to read a sensor, or join the read that is under way.

        Raises:
            KeyError: no sensor has this name.
        """
        loaded = self._sensors[name]
        with self._lock:
            if (running := self._running.get(name)) is not None:
                return running
            read = self._running[name] = Read(loaded.timeout_s, self._monotonic(), self._monotonic)
        thread = WatchedThread(lambda: self._work(loaded, read), name=f"sensor:{name}", on_crash=self._on_crash)
        try:
            thread.start()
        except RuntimeError as error:  # the process is out of threads
            self._end(loaded, read, ReadOutcome(error=f"no thread could be started: {error}"))
        return read

    def stuck(self) -> list[str]:
        """The sensors whose read has outlived its timeout and has not come back."""
        now_s = self._monotonic()
        with self._lock:
            return sorted(name for name, read in self._running.items() if now_s > read.begun_s + read.timeout_s)

    def close(self, timeout_s: float = 1.0) -> None:
        """Interrupt the reads under way, wait this long for them, and release every sensor that is not stuck."""
        with self._lock:
            running = dict(self._running)
        for name in running:
            try:
                self._sensors[name].sensor.interrupt()
            except Exception as error:  # noqa: BLE001 - a plug-in may raise anything, and the stop goes on
                _log.warning("sensor %s could not be interrupted: %s", name, describe(error))
        wait([read.result for read in running.values()], timeout_s)
        for name, loaded in self._sensors.items():
            if name in running and not running[name].result.done():
                continue
            try:
                loaded.sensor.close()
            except Exception as error:  # noqa: BLE001 - a plug-in may raise anything, and the stop goes on
                _log.warning("sensor %s could not be closed: %s", name, describe(error))

    def _work(self, loaded: LoadedSensor, read: Read) -> None:
        self._end(loaded, read, self._read(loaded, read))

    def _end(self, loaded: LoadedSensor, read: Read, outcome: ReadOutcome) -> None:
        with self._lock:
            self._running.pop(loaded.name, None)
        read.result.set_result(outcome)

    def _read(self, loaded: LoadedSensor, read: Read) -> ReadOutcome:
        error: str | None = None
        values: Mapping[str, float] = {}
        refused: tuple[str, ...] = ()
        try:
            values, refused = self._accept(loaded, loaded.sensor.read())
            error = refused[0] if refused and not values else None
        except SensorFailed as failure:
            error = str(failure) or "the sensor failed and gave no reason"
        except BaseException as failure:  # noqa: BLE001 - a plug-in may raise anything
            error = f"the sensor raised {describe(failure)}"
            _log.debug("sensor %s raised", loaded.name, exc_info=True)
        return ReadOutcome(values, error, refused, self._monotonic() - read.begun_s)

    def _accept(self, loaded: LoadedSensor, raw: object) -> tuple[dict[str, float], tuple[str, ...]]:
        if not isinstance(raw, Mapping):
            return {}, (f"the sensor returned {type(raw).__name__}, not named numbers",)
        values: dict[str, float] = {}
        refused: list[str] = []
        for name, value in raw.items():
            fault = _fault_of(name, value)
            if fault is not None:
                refused.append(fault)
                continue
            key = self._key(loaded, name)
            if key is None:
                why = f"the sensors have given more than {NAMES_MAX} names: name what is measured, not each value"
                refused.append(f"reading {name!r} is left out: {why}")
                continue
            values[key] = value
        return values, tuple(refused)

    def _key(self, loaded: LoadedSensor, reading: str) -> str | None:
        """The key of a reading in ``sensor_data``; None when the sensor uses more names than may be remembered."""
        with self._lock:
            known = self._keys.get((loaded.name, reading))
            if known is not None or len(self._keys) >= NAMES_MAX:
                return known
            own_key = f"{loaded.name}_{reading}"
            owner = loaded.name if loaded.prefixed else self._owners.setdefault(reading, loaded.name)
            key = own_key if loaded.prefixed or owner != loaded.name else reading
            self._keys[loaded.name, reading] = key
            self._owners.setdefault(key, loaded.name)
        if owner != loaded.name:
            _log.warning("sensors %s and %s both have a reading %s: the second is %s", owner, loaded.name, reading, key)
        return key


def _fault_of(name: object, value: object) -> str | None:
    """Why this reading is refused; None when it is good."""
    if not isinstance(name, str) or not name or len(name) > READING_NAME_CHARACTERS or not name.isprintable():
        return f"a reading's name must be 1 to {READING_NAME_CHARACTERS} printable characters, not {str(name)[:40]!r}"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return f"reading {name!r} is {type(value).__name__}, not a number"
    if isinstance(value, float) and not math.isfinite(value):
        return f"reading {name!r} is {value}, not a finite number"
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return f"reading {name!r} does not fit into 64 bits"
    return None
