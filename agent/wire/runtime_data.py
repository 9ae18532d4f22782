"""Runtime-data records of a product's database (specification, "Runtime data record").

A device writes one where the service has no other place for the result of a command.
"""

from __future__ import annotations

from pydantic import AliasChoices, Field

from agent.wire.base import JsonObject, LooseTime, Received, Sent, Text


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
