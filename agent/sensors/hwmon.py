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

# Kind -> unit, how many of the file's numbers are one of it, and from what to what a chip measures at all.
_KINDS: Final = {
    "curr": ("a", 1000, -1e4, 1e4),
    "energy": ("j", 1_000_000, 0.0, 1e12),
    "fan": ("rpm", 1, 0.0, 1e5),
    "humidity": ("percent", 1000, 0.0, 100.0),
    "in": ("v", 1000, -1e4, 1e4),
    "power": ("w", 1_000_000, -1e6, 1e6),
    # Chips with 8 bits answer -128 where no sensor is connected.
    "temp": ("c", 1000, -100.0, 1800.0),
}
_INPUT: Final = re.compile(rf"({'|'.join(_KINDS)})(\d+)_(input|average)")


class HwmonSensor(Sensor):
    """Reads every input of every chip, or of the chips that are named."""

    type = "hwmon"
    description = "Temperatures, fans, voltages, currents and power of the hardware-monitoring chips."

    class Settings(SensorSettings):
        """The settings: the chips to read."""

        root: Path = Field(default=Path("/sys/class/hwmon"), description="Where the kernel lists the chips.")
        chips: list[str] | None = Field(default=None, description="Names of chips, such as coretemp; all by default.")

    def read(self) -> dict[str, float | SensorFailed]:
        """``CHIP_LABEL_UNIT`` for each input, such as ``coretemp_package_id_0_c`` or ``rpi_volt_in0_v``.

        Units: c, rpm, v, a, w, j, percent. Where inputs share a label, each has its file's name behind it, such as
        ``temp2``. An input without an answer, or whose answer no chip measures, is a :class:`SensorFailed`.

        Raises:
            SensorFailed: there is no such chip, or it has no input.
        """
        chips = [(name, path) for path in sorted(self.settings.root.glob("hwmon*")) if (name := _text(path / "name"))]
        if self.settings.chips is not None:
            chips = [(name, path) for name, path in chips if name in self.settings.chips]
        count = Counter(name for name, _ in chips)
        inputs: list[tuple[str, str, float | SensorFailed]] = []
        for name, path in chips:
            chip = name if count[name] == 1 else f"{name}_{_device_of(path)}"
            for file, kind, number in _inputs_of(path):
                label = _text(path / f"{kind}{number}_label") or f"{kind}{number}"
                longer = f"{label}_{file.name.removesuffix('_input')}"
                inputs.append((_name(chip, label, kind), _name(chip, longer, kind), _value(file, kind, number)))
        if not inputs:
            wanted = "" if self.settings.chips is None else f" of {', '.join(self.settings.chips)}"
            raise SensorFailed(f"no input of a hardware-monitoring chip{wanted} below {self.settings.root}")
        same = Counter(name for name, _, _ in inputs)
        return {name if same[name] == 1 else longer: value for name, longer, value in inputs}


def _name(chip: str, label: str, kind: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", f"{chip}_{label}_{_KINDS[kind][0]}".lower()).strip("_")


def _value(path: Path, kind: str, number: str) -> float | SensorFailed:
    """The value of an input in its kind's unit, or why there is none."""
    if _text(path.with_name(f"{kind}{number}_fault")) == "1":
        return SensorFailed("its chip marks it as faulty")
    raw = _text(path)
    if not re.fullmatch(r"-?[0-9]{1,18}", raw):
        return SensorFailed("it does not answer" if not raw else f"it answers {raw[:40]!r}")
    _, share, least, most = _KINDS[kind]
    value = int(raw) / share
    if not least <= value <= most:
        return SensorFailed(f"it answers {value:g}, which no chip measures: nothing is connected, or it is broken")
    return value


def _inputs_of(folder: Path) -> Iterator[tuple[Path, str, str]]:
    """Each input of a chip: its file, such as ``temp2_input``, its kind ``temp`` and its number ``2``."""
    for path in sorted(folder.iterdir(), key=lambda each: (len(each.name), each.name)):
        found = _INPUT.fullmatch(path.name)
        if found is not None:
            kind, number, what = found.groups()
            # Some drivers have both; the input is what is measured now.
            if what == "input" or not path.with_name(f"{kind}{number}_input").exists():
                yield path, kind, number


def _device_of(chip: Path) -> str:
    """The device of a chip: it tells two chips of one name apart, and stays the same over boots unlike hwmonN."""
    device = chip / "device"
    return device.resolve().name if device.exists() else chip.name


def _text(path: Path) -> str:
    """The file's text; empty when it is not there or its driver does not answer."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
