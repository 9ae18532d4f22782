"""What the service answers, for the OpenAPI document. Records that are built as values live with their storage."""

from __future__ import annotations

from typing import NotRequired  # pydantic needs these before Python 3.12

from pydantic import ConfigDict, with_config
from typing_extensions import TypedDict

from agent.wire.base import JsonObject
from simulator.service.storage.commands import CommandRecord
from simulator.service.storage.devices import DeviceRecord
from simulator.service.storage.readings import SensorDataRecord

__all__ = [
    "BatchErrorRecord",
    "BatchRecord",
    "CommandDefinitionRecord",
    "CommandRecord",
    "DeviceRecord",
    "DiscoveryRecord",
    "ErrorDetailRecord",
    "ErrorRecord",
    "HealthRecord",
    "ProductRecord",
    "ScanRecord",
    "SensorDataRecord",
]


class CommandDefinitionRecord(TypedDict):
    """One word of a product's command vocabulary."""

    name: str
    title: str | None
    description: str | None
    payload_schema: JsonObject | None


@with_config(ConfigDict(extra="allow"))
class ProductRecord(TypedDict):
    """A product; members that were sent beside the named ones are returned as they came."""

    product_id: str
    name: str
    category: str | None
    model: str | None
    description: str | None
    commands: list[CommandDefinitionRecord]
    image_url: str | None
    metadata: JsonObject | None
    status: str | None
    label_key: str | None
    created_at: str
    updated_at: str


class ScanRecord(TypedDict):
    """What a QR label stands for."""

    product: ProductRecord
    device_identifier: str
    qr_info: JsonObject
    already_registered: bool


class BatchErrorRecord(TypedDict):
    """Why one reading of a batch was not stored; ``index`` is its place in the array, from 0."""

    index: int
    error: str
    message: str


class BatchRecord(TypedDict):
    """What became of a batch."""

    accepted: int
    errors: list[BatchErrorRecord]


class DiscoveryRecord(TypedDict):
    """The extensions that this service has."""

    extensions: list[str]


class HealthRecord(TypedDict):
    """How the service is."""

    status: str
    time: str
    uptime_s: float
    storage: str
    schema: str


class ErrorDetailRecord(TypedDict):
    """One fault of a body or a query parameter."""

    field: str
    issue: str


class ErrorRecord(TypedDict):
    """The error body (specification, "Error body")."""

    error: str
    message: str
    details: NotRequired[list[ErrorDetailRecord]]
