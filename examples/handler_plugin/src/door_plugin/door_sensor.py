"""The sensor type ``door``: a contact that is open or closed."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from agent import Sensor, SensorFailed, SensorSettings


class DoorSensor(Sensor):
    """Reads a contact's value file: 1 is open, 0 is closed, or the other way round."""

    type = "door"
    description = "A door's contact."
    timeout_s = 2.0

    class Settings(SensorSettings):
        """What the configuration says under the sensor's ``settings``."""

        contact_file: Path = Field(description="The contact's value file, such as /sys/class/gpio/gpio27/value.")
        inverted: bool = Field(default=False, description="The contact says 0 when the door is open.")

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._contact_file = settings.contact_file
        self._inverted = settings.inverted

    def read(self) -> dict[str, float]:
        """``door_open``: 1 or 0."""
        try:
            text = self._contact_file.read_text(encoding="ascii").strip()
        except OSError as error:
            raise SensorFailed(f"{self._contact_file} could not be read: {error.strerror}") from error
        if text not in {"0", "1"}:
            raise SensorFailed(f"{self._contact_file} says {text[:20]!r}, neither 0 nor 1")
        return {"door_open": int((text == "1") != self._inverted)}
