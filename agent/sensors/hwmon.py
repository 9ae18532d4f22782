"""``hwmon``: what the kernel's hardware-monitoring chips measure: temperatures, fans, voltages, currents, power.

Source: Linux, Documentation/hwmon/sysfs-interface.rst (names of the files and their units).
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import Field

from agent.sensors.base import Sensor, SensorFailed, SensorSettings

_KINDS: Final = {
    "curr": ("a", 1000),
    "energy": ("j", 1_000_000),
    "fan": ("rpm", 1),
    "humidity": ("percent", 1000),
    "in": ("v", 1000),
    "power": ("w", 1_000_000),
    "temp": ("c", 1000),
}
_RANGES: Final = {
    "curr": (-1e4, 1e4),
    "energy": (0.0, 1e12),
    "fan": (0.0, 1e5),
    "humidity": (0.0, 100.0),
    "in": (-1e4, 1e4),
    "power": (-1e6, 1e6),
    # Chips with 8 bits answer -128 where no sensor is connected.
    "temp": (-100.0, 1800.0),
}
"""What is measured at all, in the unit of the kind: an answer beyond it is a driver's word for no answer."""
_INPUT: Final = re.compile(r"(curr|energy|fan|humidity|in|power|temp)(\d+)_(input|average)")

_log = logging.getLogger(__name__)


class HwmonSensor(Sensor):
    """Reads every input of every chip, or of the chips that are named."""

    type = "hwmon"
    description = "Temperatures, fans, voltages, currents and power of the hardware-monitoring chips."

    class Settings(SensorSettings):
        """The settings: the chips to read."""

        root: Path = Field(default=Path("/sys/class/hwmon"), description="Where the kernel lists the chips.")
        chips: list[str] | None = Field(default=None, description="Names of chips, such as coretemp; all by default.")

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._root = settings.root
        self._chips = settings.chips
        self._names: dict[str, str] = {}
        self._silent: dict[str, str] = {}

    def read(self) -> dict[str, float]:
        """``CHIP_LABEL_UNIT`` for each input that answers, such as ``coretemp_package_id_0_c`` or ``rpi_volt_in0_v``.

        Units: c, rpm, v, a, w, j, percent. Where inputs of a chip share a label, each has its file's name behind it,
        such as ``temp2``. A name stays with its input. An input without an answer, or whose answer no chip measures, is
        left out and logged.

        Raises:
            SensorFailed: there is no such chip, or none of its inputs answers.
        """
        inputs = self._inputs()
        readings: dict[str, float] = {}
        silent: dict[str, str] = {}
        for each in inputs:
            name = self._name(each, inputs)
            try:
                readings[name] = each.read()
            except SensorFailed as error:
                silent[name] = str(error)
        for name in sorted(silent.keys() - self._silent.keys()):
            _log.warning("%s is left out: %s", name, silent[name])
        self._silent = silent
        if not readings:
            chips = sorted({_text(path / "name") for path in self._found_chips()})
            raise SensorFailed(f"not one input of {', '.join(chips)} answers")
        return readings

    def _inputs(self) -> list[_Input]:
        chips = [(_text(path / "name"), path) for path in self._found_chips()]
        count = Counter(name for name, _ in chips)
        return [
            each
            for name, path in chips
            for each in _inputs_of(path, name if count[name] == 1 else f"{name}_{_place(path)}")
        ]

    def _found_chips(self) -> list[Path]:
        named = {path: _text(path / "name") for path in sorted(self._root.glob("hwmon*"))}
        chips = [path for path, name in named.items() if name and (self._chips is None or name in self._chips)]
        if not chips:
            wanted = "" if self._chips is None else f" of {', '.join(self._chips)}"
            raise SensorFailed(f"no hardware-monitoring chip{wanted} below {self._root}")
        return chips

    def _name(self, wanted: _Input, inputs: list[_Input]) -> str:
        """The name that the input has had since it was first seen."""
        place = f"{_place(wanted.path.parent)}/{wanted.path.name}"
        if place not in self._names:
            is_alone = sum(each.full_name == wanted.full_name for each in inputs) == 1
            name = wanted.full_name if is_alone else wanted.longer_name
            self._names[place] = name if name not in self._names.values() else wanted.longer_name
        return self._names[place]


@dataclass(frozen=True, slots=True)
class _Input:
    """One input of one chip; ``kind`` is ``temp``, ``number`` is ``2`` of ``temp2_input``."""

    chip: str
    path: Path
    kind: str
    number: str

    @property
    def full_name(self) -> str:
        label = _text(self.path.with_name(f"{self.kind}{self.number}_label")) or f"{self.kind}{self.number}"
        return _slug(f"{self.chip}_{label}_{_KINDS[self.kind][0]}")

    @property
    def longer_name(self) -> str:
        unit = _KINDS[self.kind][0]
        return f"{self.full_name.removesuffix(f'_{unit}')}_{self.path.name.removesuffix('_input')}_{unit}"

    def read(self) -> float:
        """The value in the kind's unit.

        Raises:
            SensorFailed: it is marked faulty, does not answer, or answers what no chip measures.
        """
        if _text(self.path.with_name(f"{self.kind}{self.number}_fault")) == "1":
            raise SensorFailed("its chip marks it as faulty")
        raw = _text(self.path)
        if not re.fullmatch(r"-?[0-9]{1,18}", raw):
            raise SensorFailed("it does not answer" if not raw else f"it answers {raw[:40]!r}")
        value = int(raw) / _KINDS[self.kind][1]
        least, most = _RANGES[self.kind]
        if not least <= value <= most:
            raise SensorFailed(f"it answers {value:g}, which no chip measures: nothing is connected, or it is broken")
        return value


def _inputs_of(folder: Path, chip: str) -> Iterator[_Input]:
    for path in sorted(folder.iterdir(), key=lambda each: (len(each.name), each.name)):
        found = _INPUT.fullmatch(path.name)
        if found is not None:
            kind, number, what = found.groups()
            # Some drivers have both; the input is what is measured now.
            if what == "input" or not path.with_name(f"{kind}{number}_input").exists():
                yield _Input(chip, path, kind, number)


def _place(chip: Path) -> str:
    """The device of a chip: it tells two chips of one name apart, and stays the same over boots unlike hwmonN."""
    device = chip / "device"
    return device.resolve().name if device.exists() else chip.name


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")


def _text(path: Path) -> str:
    """The file's text; empty when it is not there or its driver does not answer."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
