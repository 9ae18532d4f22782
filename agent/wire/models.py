"""Devices, readings and records of a product's database (specification, "Device", "Sensor data", "Database").

What our service adds to them is in docs/protocol.md. Commands are in :mod:`agent.wire.commands`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

from pydantic import AliasChoices, Field

from agent.wire.base import JsonObject, LooseTime, Number, Received, Sent, Text, WireTime


class DeviceStatus(StrEnum):
    """Presence: online means seen within 120 s."""

    ONLINE = "online"
    OFFLINE = "offline"
    NEVER_SEEN = "never_seen"


class Device(Received):
    """A device record. ``status`` is :class:`DeviceStatus` on our service and any text elsewhere."""

    device_id: str = Field(default="", validation_alias=AliasChoices("device_id", "deviceId", "id"))
    product_id: str | None = Field(default=None, validation_alias=AliasChoices("product_id", "productId"))
    user_id: str | None = Field(default=None, validation_alias=AliasChoices("user_id", "userId"))
    device_name: str | None = Field(default=None, validation_alias=AliasChoices("device_name", "deviceName", "name"))
    device_identifier: str | None = Field(
        default=None, validation_alias=AliasChoices("device_identifier", "deviceIdentifier")
    )
    status: str | None = None
    last_seen_at: LooseTime = None
    firmware_version: str | None = None
    metadata: JsonObject | None = None
    created_at: LooseTime = None
    updated_at: LooseTime = None


class PostSensorData(Sent):
    """``POST /sensor-data``.

    Attributes:
        sensor_data: named readings, finite numbers, at least one.
        recorded_at: when they were read; the service takes the time of arrival when it is missing.
    """

    device_id: Text
    sensor_data: Annotated[dict[Text, Number], Field(min_length=1)]
    recorded_at: WireTime | None = None


class KeyedReading(PostSensorData):
    """A reading in an array (extension ``batch-sensor-data``).

    Attributes:
        idempotency_key: the same at each repeat (extension ``reading-keys``): it is stored once in 24 hours.
    """

    idempotency_key: Annotated[str, Field(pattern=r"^[!-~]{1,255}$")] | None = None


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


class NewRuntimeRecord(Sent):
    """``POST /database/runtime-data``."""

    product_id: Text
    device_id: Text
    table_name: Text
    data_payload: JsonObject


class RuntimeRecord(Received):
    """A record of a product's database."""

    id: str = ""
    product_id: str | None = Field(default=None, validation_alias=AliasChoices("product_id", "productId"))
    device_id: str | None = Field(default=None, validation_alias=AliasChoices("device_id", "deviceId"))
    table_name: str | None = None
    data_payload: JsonObject = Field(default_factory=dict)
    created_at: LooseTime = None
    updated_at: LooseTime = None
