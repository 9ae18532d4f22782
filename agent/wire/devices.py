"""Devices (specification, "Device"; the record's members are docs/protocol.md's)."""

from __future__ import annotations

from enum import StrEnum

from pydantic import AliasChoices, Field

from agent.wire.base import JsonObject, LooseTime, Received


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
