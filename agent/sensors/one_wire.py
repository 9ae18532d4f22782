"""``one_wire``: DS18B20 and its family on the kernel's 1-Wire bus.

``w1_slave`` carries the CRC's verdict (``YES``) and the nine bytes that were read. A data line that is shorted to
ground reads as nine zeros, whose CRC is right.
Sources: Linux, Documentation/w1/slaves/w1_therm.rst; data sheets of DS18B20 (85 °C is the value at power-on, byte 7 is
always 10h) and MAX31850 (thermocouples, family 3B).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, Self

from pydantic import Field, model_validator

from agent.sensors.base import Sensor, SensorFailed, SensorSettings

_POWER_ON_C: Final = 85.0
_NEAR_C: Final = 5.0
_RANGE_C: Final = (-55.0, 125.0)
_RANGES_C: Final = {"3b": (-270.0, 1800.0)}
"""Family, the first two digits of an id -> what it measures, where that is not :data:`_RANGE_C`."""
_ALL_ZERO: Final = re.compile(r"(00 ){8}00 *:.*")
_TEMPERATURE: Final = re.compile(r"t=(-?\d+)")


class OneWireSensor(Sensor):
    """Reads all thermometers that the bus has."""

    type = "one_wire"
    description = "Thermometers on the 1-Wire bus."
    # One conversion takes 0.75 s, and a bus may have many.
    timeout_s = 20.0

    class Settings(SensorSettings):
        """Where the bus is, and what its thermometers are called."""

        root: Path = Field(default=Path("/sys/bus/w1/devices"), description="Where the kernel lists the bus.")
        names: dict[str, str] = Field(default_factory=dict, description="Device id -> name of its reading.")

        @model_validator(mode="after")
        def _check_names(self) -> Self:
            if len(set(self.names.values())) < len(self.names):
                raise ValueError("'names' gives two devices one name: give each its own")
            return self

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._last: dict[str, float] = {}

    def read(self) -> dict[str, float | SensorFailed]:
        """``temperature_28_0316a2795dff_c`` for each thermometer, or its name in ``names``, also of one that is gone.

        Raises:
            SensorFailed: there is no thermometer.
        """
        devices = [path.parent.name for path in self.settings.root.glob("*/w1_slave")]
        if not devices:
            fix = "enable the bus (dtoverlay=w1-gpio) and check the wiring"
            raise SensorFailed(f"no thermometer below {self.settings.root}: {fix}")
        readings: dict[str, float | SensorFailed] = {}
        for device in sorted({*devices, *self.settings.names}):
            name = self.settings.names.get(device, f"temperature_{device.replace('-', '_')}_c")
            try:
                readings[name] = self._last[device] = self._temperature(device)
            except SensorFailed as error:
                readings[name] = error
        return readings

    def _temperature(self, device: str) -> float:
        value = self._convert(device)
        if value == _POWER_ON_C and abs(self._last.get(device, 0.0) - _POWER_ON_C) > _NEAR_C:
            # A thermometer that lost its power answers this before its first conversion; the second one counts.
            value = self._convert(device)
            if value == _POWER_ON_C:
                raise SensorFailed(
                    f"{device} answers its power-on value 85 °C: its power is interrupted, check the wiring"
                )
        least, most = _RANGES_C.get(device[:2].lower(), _RANGE_C)
        if not least <= value <= most:
            raise SensorFailed(f"{device} answers {value:g} °C, which it cannot measure: check the wiring")
        return value

    def _convert(self, device: str) -> float:
        """One conversion, °C."""
        try:
            lines = (self.settings.root / device / "w1_slave").read_text(encoding="ascii").splitlines()
        except (OSError, ValueError) as error:
            raise SensorFailed(f"{device} could not be read: {error}") from error
        if not lines or not lines[0].endswith("YES"):
            raise SensorFailed(f"{device} answered with a wrong CRC: check the wiring and the pull-up resistor")
        if _ALL_ZERO.fullmatch(lines[0]):
            raise SensorFailed(f"{device} answers zeros alone: its data line is shorted to ground, check the wiring")
        found = _TEMPERATURE.search(lines[-1])
        if found is None:
            raise SensorFailed(f"{device} answered no temperature: {lines[-1][:60]!r}")
        return int(found.group(1)) / 1000
