"""``file``: a number in a file, such as those that drivers offer below /sys or another program writes."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Final

from pydantic import Field

from agent.sensors.base import Sensor, SensorFailed, SensorSettings

_MAX_BYTES: Final = 4096
# A number, then perhaps a unit: "23.5", "23.5 °C", "42%", "1024 kB".
_NUMBER: Final = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*([^\d\s.,+-][^\d\s]{0,15})?")


class FileSensor(Sensor):
    """Reads one number: what the file says, times ``scale``, plus ``offset``."""

    type = "file"
    description = "A number in a file."
    named_by_settings = True

    class Settings(SensorSettings):
        """The settings: the file, and how its number is scaled and named."""

        path: Path = Field(description="The file; its first number counts.")
        reading: str = Field(min_length=1, max_length=128, description="Name of the reading, such as boiler_c.")
        scale: float = Field(default=1.0, allow_inf_nan=False, description="The file's number is multiplied by it.")
        offset: float = Field(default=0.0, allow_inf_nan=False, description="Added after that.")
        least: float = Field(default=-math.inf, description="Below it the reading is no reading.")
        most: float = Field(default=math.inf, description="Above it likewise.")

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._path = settings.path
        self._reading = settings.reading
        self._scale = settings.scale
        self._offset = settings.offset
        self._least, self._most = settings.least, settings.most

    def read(self) -> dict[str, float]:
        """Read the number in the file. A unit behind the number is allowed and does not change it.

        Raises:
            SensorFailed: the file cannot be read, holds no single number, or one that cannot be measured.
        """
        try:
            with self._path.open("rb") as file:
                raw = file.read(_MAX_BYTES)
        except OSError as error:
            raise SensorFailed(f"{self._path} could not be read: {error.strerror or error}") from error
        text = raw.decode("utf-8", "replace").strip()
        found = _NUMBER.fullmatch(text)
        if found is None:
            shown = repr(text[:40]) if text else "nothing"
            raise SensorFailed(f"{self._path} holds {shown}, not one number")
        value = float(found.group(1)) * self._scale + self._offset
        if not self._least <= value <= self._most:
            raise SensorFailed(f"{self._path} gives {value:g}, which is not from {self._least:g} to {self._most:g}")
        return {self._reading: value}
