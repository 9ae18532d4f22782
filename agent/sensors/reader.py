"""Reading sensors so that a failing, hung or nonsensical one never hides the others.

Each read runs in a thread of its own and is waited for as long as its sensor's timeout says. A read that does not
come back keeps its one thread; until it returns, its sensor is skipped with a reason and no second thread is started.
Two callers that want the same sensor at the same time share one read.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Final

from agent.frozen import dataclass
from agent.plugins import describe
from agent.sensors.base import Sensor, SensorFailed

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
    """What one read of one sensor gave.

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


class SensorReader:
    """Reads the agent's sensors, one by one or all, in bounded time.

    Args:
        sensors: in the configuration's order.
        monotonic: the clock that durations are measured on, seconds.
    """

    def __init__(self, sensors: Sequence[LoadedSensor], *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._sensors = {loaded.name: loaded for loaded in sensors}
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._running: dict[str, _Read] = {}
        self._owners: dict[str, str] = {}
        self._told: set[tuple[str, str]] = set()
        self._names: set[tuple[str, str]] = set()

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
        reads = {name: self._begin(self._sensors[name]) for name in wanted}
        return {name: self._outcome(self._sensors[name], reads[name], skipped=name in overdue) for name in wanted}

    def stuck(self) -> list[str]:
        """The sensors whose read has outlived its timeout and has not come back."""
        now_s = self._monotonic()
        with self._lock:
            return sorted(name for name, read in self._running.items() if now_s > read.deadline_s)

    def close(self, timeout_s: float = 1.0) -> None:
        """Interrupt the reads under way, wait this long for them, and release every sensor that is not stuck."""
        with self._lock:
            running = dict(self._running)
        for name in running:
            try:
                self._sensors[name].sensor.interrupt()
            except Exception as error:  # noqa: BLE001 - a plug-in may raise anything, and the stop goes on
                _log.warning("sensor %s could not be interrupted: %s", name, describe(error))
        until_s = self._monotonic() + timeout_s
        busy = {name for name, read in running.items() if not read.done.wait(max(0.0, until_s - self._monotonic()))}
        for name, loaded in self._sensors.items():
            if name in busy:
                continue
            try:
                loaded.sensor.close()
            except Exception as error:  # noqa: BLE001 - a plug-in may raise anything, and the stop goes on
                _log.warning("sensor %s could not be closed: %s", name, describe(error))

    def _begin(self, loaded: LoadedSensor) -> _Read:
        with self._lock:
            running = self._running.get(loaded.name)
            if running is not None:
                return running
            read = _Read(begun_s=self._monotonic(), timeout_s=loaded.timeout_s)
            self._running[loaded.name] = read
        thread = threading.Thread(target=self._run, args=(loaded, read), name=f"sensor:{loaded.name}", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # the process is out of threads
            read.error = f"no thread could be started: {error}"
            self._end(loaded.name, read)
        return read

    def _run(self, loaded: LoadedSensor, read: _Read) -> None:
        try:
            read.values = loaded.sensor.read()
        except SensorFailed as error:
            read.error = str(error) or "the sensor failed and gave no reason"
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a plug-in may raise anything
            read.error = f"the sensor raised {describe(error)}"
            _log.debug("sensor %s raised", loaded.name, exc_info=True)
        finally:
            self._end(loaded.name, read)

    def _end(self, name: str, read: _Read) -> None:
        read.ended_s = self._monotonic()
        with self._lock:
            self._running.pop(name, None)
        read.done.set()

    def _outcome(self, loaded: LoadedSensor, read: _Read, *, skipped: bool) -> ReadOutcome:
        if not read.done.wait(max(0.0, read.deadline_s - self._monotonic())):
            taken_s = self._monotonic() - read.begun_s
            sentence = f"no answer within {loaded.timeout_s:g} s"
            if skipped:
                sentence = f"skipped: a read that began {taken_s:.3g} s ago has not come back"
            return ReadOutcome(error=sentence, duration_s=taken_s)
        duration_s = read.ended_s - read.begun_s
        if read.error is not None:
            return ReadOutcome(error=read.error, duration_s=duration_s)
        values, refused = self._accept(loaded, read.values)
        if not values and refused:
            return ReadOutcome(error=refused[0], refused=refused, duration_s=duration_s)
        return ReadOutcome(values=values, refused=refused, duration_s=duration_s)

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
            if (loaded.name, reading) not in self._names:
                if len(self._names) >= NAMES_MAX:
                    return None
                self._names.add((loaded.name, reading))
            if loaded.prefixed:
                return f"{loaded.name}_{reading}"
            owner = self._owners.setdefault(reading, loaded.name)
            if owner == loaded.name:
                return reading
            own_key = f"{loaded.name}_{reading}"
            new = self._owners.setdefault(own_key, loaded.name) == loaded.name and (reading, own_key) not in self._told
            self._told.add((reading, own_key))
        if new:
            _log.warning(
                "sensors %s and %s both have a reading %s: the second is %s", owner, loaded.name, reading, own_key
            )
        return own_key


@dataclass(slots=True)
class _Read:
    """One read under way."""

    begun_s: float
    timeout_s: float
    values: object = None
    error: str | None = None
    ended_s: float = 0.0
    done: threading.Event = field(default_factory=threading.Event)

    @property
    def deadline_s(self) -> float:
        return self.begun_s + self.timeout_s


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
