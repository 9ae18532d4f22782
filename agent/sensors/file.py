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

    def read(self) -> dict[str, float]:
        """Read the number in the file. A unit behind the number is allowed and does not change it.

        Raises:
            SensorFailed: the file cannot be read, holds no single number, or one that cannot be measured.
        """
        settings = self.settings
        try:
            with settings.path.open("rb") as file:
                text = file.read(_MAX_BYTES).decode("utf-8", "replace").strip()
        except OSError as error:
            raise SensorFailed(f"{settings.path} could not be read: {error.strerror or error}") from error
        found = _NUMBER.fullmatch(text)
        if found is None:
            raise SensorFailed(f"{settings.path} holds {text[:40]!r}, not one number")
        value = float(found[1]) * settings.scale + settings.offset
        if not settings.least <= value <= settings.most:
            bounds = f"from {settings.least:g} to {settings.most:g}"
            raise SensorFailed(f"{settings.path} gives {value:g}, which is not {bounds}")
        return {settings.reading: value}
