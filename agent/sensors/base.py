"""The base class of sensors: the whole interface for plug-in authors.

A sensor names its readings and returns them as finite numbers. It is found through the entry-point group
``agent.sensors`` and used as often as the configuration has a section with its ``type``::

    class Scale(Sensor):
        type = "scale"

        class Settings(SensorSettings):
            port: str

        def read(self) -> dict[str, float]:
            return {"weight_kg": weigh(self.settings.port)}
"""

from __future__ import annotations

import builtins
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict

from agent.errors import AgentError


class SensorSettings(BaseModel):
    """The base for a sensor's ``Settings``: unknown members are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class SensorFailed(AgentError):
    """The sensor could not be read this time; the text says why."""


class Sensor(ABC):
    """A source of readings.

    Attributes:
        type: what ``type`` in the configuration says.
        Settings: pydantic model of the settings beside type, name, and the report strategy.
        timeout_s: how long one read may take, seconds, before it counts as failed; set it in ``__init__`` where the
            settings decide. The configuration can change it.
        named_by_settings: its readings' names come from its settings, so that two sensors of this type do not get
            in each other's way; otherwise the readings of two of one type are called ``NAME_READING``.
        name: what the configuration calls this sensor; the agent sets it, and ``prefixed``.
        prefixed: its readings are called ``NAME_READING``.
    """

    type: ClassVar[str]
    description: str = ""
    Settings: ClassVar[builtins.type[BaseModel]] = SensorSettings
    timeout_s: float = 10.0
    named_by_settings: ClassVar[bool] = False
    name: str = ""
    prefixed: bool = False

    def __init__(self, settings: Any) -> None:
        self.settings = settings

    def check(self) -> None:  # noqa: B027 - most sensors have nothing to check
        """Find out at start whether this sensor can be read here.

        Raises:
            Exception: it cannot; the text says why. It is listed as unusable and the agent goes on.
        """

    @abstractmethod
    def read(self) -> Mapping[str, float | SensorFailed]:
        """Named readings, finite numbers. One that could not be had this time is its :class:`SensorFailed`.

        Raises:
            SensorFailed: nothing could be read this time.
        """

    def interrupt(self) -> None:  # noqa: B027 - most reads are short
        """Make a read under way end soon, since the agent stops. Called from another thread than :meth:`read`."""

    def close(self) -> None:  # noqa: B027 - most sensors hold nothing
        """Release what it holds. Not called while a read is under way."""
