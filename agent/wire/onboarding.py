"""Onboarding: scan, register, remove (specification, "Onboarding" and "Device registration")."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AliasChoices, Field, StringConstraints, model_validator

from agent.wire.base import JsonObject, Received, Sent, Text
from agent.wire.limits import IDENTIFIER_CHARACTERS
from agent.wire.products import Product

Identifier = Annotated[str, StringConstraints(min_length=1, max_length=IDENTIFIER_CHARACTERS)]
"""What a user or a device is known by."""


class ScanQr(Sent):
    """``POST /onboarding/scan-qr``: the contents of the scanned QR."""

    qr_data: str


class RegisterDevice(Sent):
    """``POST /onboarding/device``.

    Attributes:
        device_name: for people; the service makes one up when it is missing.
        qr_info: what the scan answered as ``qr_info``.
    """

    user_id: Identifier
    product_id: Text
    device_identifier: Identifier
    device_name: str | None = None
    qr_info: JsonObject | None = None


class ScanAnswer(Received):
    """What a QR stands for. A plain server may answer the product's members without the ``product`` around them."""

    product: Product = Field(default_factory=Product)
    device_identifier: str | None = Field(
        default=None, validation_alias=AliasChoices("device_identifier", "deviceIdentifier")
    )
    qr_info: JsonObject = Field(default_factory=dict)
    already_registered: bool | None = None

    @model_validator(mode="before")
    @classmethod
    def _take_flat_product(cls, data: Any) -> Any:
        if isinstance(data, dict) and not isinstance(data.get("product"), dict):
            flat = {k: v for k, v in data.items() if k not in {"device_identifier", "qr_info", "already_registered"}}
            return {**data, "product": flat}
        return data
