"""Sensor data (specification, "Sensor data"; records and batches are docs/protocol.md's)."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AliasChoices, Field

from agent.wire.base import LooseTime, Number, Received, Sent, Text, WireTime


class PostSensorData(Sent):
    """``POST /sensor-data``.

    Attributes:
        sensor_data: named readings, finite numbers, at least one.
        recorded_at: when they were read; the service takes the time of arrival when it is missing.
    """

    device_id: Text
    sensor_data: Annotated[dict[Text, Number], Field(min_length=1)]
    recorded_at: WireTime | None = None


class SensorDataRecord(Received):
    """One stored reading. Values are numbers on our service; others may hold anything."""

    sensor_data: dict[str, Any] = Field(default_factory=dict)
    id: str | None = None
    device_id: str | None = Field(default=None, validation_alias=AliasChoices("device_id", "deviceId"))
    recorded_at: LooseTime = Field(default=None, validation_alias=AliasChoices("recorded_at", "timestamp"))
    received_at: LooseTime = Field(default=None, validation_alias=AliasChoices("received_at", "created_at"))


class BatchError(Received):
    """Why one reading of a batch was refused; ``index`` is its place in the array, from 0."""

    index: int
    error: str = ""
    message: str = ""


class BatchAnswer(Received):
    """The answer to an array of readings (extension ``batch-sensor-data``)."""

    accepted: int
    errors: tuple[BatchError, ...] = ()
