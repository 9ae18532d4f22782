"""``hwmon``: what the kernel's hardware-monitoring chips measure: temperatures, fans, voltages, currents, power.

Source: Linux, Documentation/hwmon/sysfs-interface.rst (names of the files and their units).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
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
_INPUT: Final = re.compile(r"(curr|energy|fan|humidity|in|power|temp)(\d+)_(?:input|average)")


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

    def read(self) -> dict[str, float]:
        """``CHIP_LABEL_UNIT`` for each input that answers, such as ``coretemp_package_id_0_c`` or ``rpi_volt_in0_v``.

        Units: c, rpm, v, a, w, j, percent. An input that is marked faulty or does not answer is left out.

        Raises:
            SensorFailed: there is no such chip, or none of its inputs answers.
        """
        chips = [(name, path) for path in sorted(self._root.glob("hwmon*")) if (name := _text(path / "name"))]
        if self._chips is not None:
            chips = [(name, path) for name, path in chips if name in self._chips]
        if not chips:
            wanted = "" if self._chips is None else f" of {', '.join(self._chips)}"
            raise SensorFailed(f"no hardware-monitoring chip{wanted} below {self._root}")
        count = Counter(name for name, _ in chips)
        readings: dict[str, float] = {}
        for name, path in chips:
            chip = name if count[name] == 1 else f"{name}_{_place(path)}"
            for label, value in _inputs(path):
                readings.setdefault(_slug(f"{chip}_{label}"), value)
        if not readings:
            raise SensorFailed(f"not one input of {', '.join(sorted(count))} answers")
        return readings


def _inputs(chip: Path) -> Iterator[tuple[str, float]]:
    """Label with unit, and value, of each input that answers."""
    for path in sorted(chip.iterdir()):
        found = _INPUT.fullmatch(path.name)
        if found is None:
            continue
        kind, number = found.groups()
        unit, divisor = _KINDS[kind]
        if _text(chip / f"{kind}{number}_fault") == "1":
            continue
        raw = _text(path)
        if re.fullmatch(r"-?[0-9]{1,18}", raw):
            label = _text(chip / f"{kind}{number}_label") or f"{kind}{number}"
            yield f"{label}_{unit}", int(raw) / divisor


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
