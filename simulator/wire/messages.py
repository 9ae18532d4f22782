"""Messages that operators and apps send, and no device: buckets of readings, a scanned label, a sign-in."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import AliasChoices, Field, model_validator

from agent.wire.base import JsonObject, LooseTime, Received, Sent, SentSecret, Text
from simulator.wire.products import Product

Order = Literal["asc", "desc"]
Aggregate = Literal["avg", "min", "max", "sum", "count"]


class SensorDataBucket(Received):
    """Readings of one interval, put together by ``agg`` (docs/protocol.md).

    Attributes:
        from_: where the interval begins, inclusive; seconds since the epoch.
        to: where it ends, exclusive.
        sensor_data: the aggregate of each reading.
        count: how many readings went in.
    """

    device_id: str | None = None
    from_: LooseTime = Field(default=None, validation_alias=AliasChoices("from", "from_", "start"))
    to: LooseTime = Field(default=None, validation_alias=AliasChoices("to", "end"))
    sensor_data: dict[str, Any] = Field(default_factory=dict)
    count: int | None = None


class ScanQr(Sent):
    """``POST /onboarding/scan-qr``: the contents of the scanned QR (specification, "Onboarding")."""

    qr_data: str


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


class SignIn(Sent):
    """``POST /auth/signin``."""

    email: Text
    password: SentSecret
