"""Requests and answers that operators and apps exchange with the service, and devices do not (:mod:`agent.wire`).

One set for all: the service checks requests with the :class:`~agent.wire.models.Sent` ones, its OpenAPI document and
:class:`~simulator.wire.client.ServiceClient` use the same and the :class:`~agent.wire.models.Received` ones.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, Self

from pydantic import AliasChoices, ConfigDict, Field, StringConstraints, model_validator

from agent.wire.models import Items, JsonObject, LooseTime, Number, Received, Sent, SentSecret, Text, WireTime
from simulator.wire.limits import NAME_CHARACTERS

Order = Literal["asc", "desc"]


def _named(*names: str) -> Any:
    """A text of an answer that servers call by one of these names."""
    return Field(default="", validation_alias=AliasChoices(*names))


# --- products ---------------------------------------------------------------------------------------------------

_KEY: Final = r"ed25519:[A-Za-z0-9_-]{43}|hmac-sha256:([A-Za-z0-9_-]{4}){5,41}[A-Za-z0-9_-]{2,4}"
LabelKeyText = Annotated[str, StringConstraints(pattern=f"^({_KEY})$")]
"""A ``label_key`` (:mod:`simulator.wire.qr.keys`): a public key, or the secret of an HMAC, 16 to 126 bytes."""
KeptLabelKeyText = Annotated[str, StringConstraints(pattern=f"^({_KEY}|hmac-sha256:id=[0-9a-f]{{16}})$")]
"""The same, or the way in which a secret one is shown, which leaves it as it is."""


class NewCommandDefinition(Sent):
    """One word of a product's command vocabulary, as it is set.

    Attributes:
        payload_schema: JSON Schema 2020-12 of the ``command_payload``.
    """

    name: Text
    title: str | None = None
    description: str | None = None
    payload_schema: JsonObject | None = None


class ProductChange(Sent):
    """``PUT /products/{productId}``: only the fields to change, at least one that is named here.

    None is a value: it clears an optional field. ``name`` cannot be cleared.
    """

    model_config = ConfigDict(extra="allow")

    name: Text | None = None
    category: str | None = None
    model: str | None = None
    description: str | None = None
    commands: Items[NewCommandDefinition] | None = None
    image_url: str | None = None
    metadata: JsonObject | None = None
    status: str | None = None
    label_key: KeptLabelKeyText | None = None

    @model_validator(mode="after")
    def _changes_something(self) -> Self:
        if not self.model_fields_set & type(self).model_fields.keys():
            raise ValueError(f"give at least one field to change: {', '.join(type(self).model_fields)}")
        if "name" in self.model_fields_set and self.name is None:
            raise ValueError("name cannot be cleared: leave it out to keep it")
        return self

    def to_wire(self) -> JsonObject:
        """Only what was given, None included."""
        return self.model_dump(exclude_unset=True)


class NewProduct(ProductChange):
    """``POST /products``. Members that are not named here are stored and returned as they are.

    Attributes:
        label_key: the key that checks this product's labels; a service shows the name of a secret one, not the key.
    """

    name: Text
    label_key: LabelKeyText | None = None

    def to_wire(self) -> JsonObject:
        """The body to send: members that are None are left out."""
        return self.model_dump(exclude_none=True)


class CommandDefinition(Received):
    """One word of a product's command vocabulary."""

    name: str = ""
    title: str | None = None
    description: str | None = None
    payload_schema: JsonObject | None = None


class Product(Received):
    """A product. Members that are not named here are kept in ``model_extra``."""

    model_config = ConfigDict(extra="allow")

    product_id: str = _named("product_id", "productId", "id")
    name: str = ""
    category: str | None = None
    model: str | None = None
    description: str | None = None
    commands: tuple[CommandDefinition, ...] = ()
    image_url: str | None = None
    metadata: JsonObject | None = None
    status: str | None = None
    label_key: str | None = None
    created_at: LooseTime = None
    updated_at: LooseTime = None


# --- dashboards -------------------------------------------------------------------------------------------------


class WidgetPosition(Sent):
    """Where a widget stands, in grid cells."""

    x: Annotated[int, Field(ge=0)]
    y: Annotated[int, Field(ge=0)]
    w: Annotated[int, Field(ge=1)]
    h: Annotated[int, Field(ge=1)]


class NewWidget(Sent):
    """A widget of a dashboard that is put.

    Attributes:
        source: what it shows, such as ``{"reading": "temperature_c"}``.
    """

    id: Text
    type: Text
    title: str | None = None
    source: JsonObject | None = None
    position: WidgetPosition | None = None
    options: JsonObject | None = None


class NewDashboard(Sent):
    """``PUT /products/{productId}/dashboard``.

    ``product_id`` and ``updated_at`` are taken, so that what was read can be put back, and ignored by the service.
    """

    name: str | None = None
    widgets: Items[NewWidget] = ()
    product_id: str | None = None
    updated_at: WireTime | None = None


class Widget(Received):
    """A widget of a dashboard."""

    id: str = ""
    type: str = ""
    title: str | None = None
    source: Any = None
    position: JsonObject | None = None
    options: JsonObject | None = None


class Dashboard(Received):
    """A product's dashboard; without widgets before the first PUT."""

    product_id: str | None = None
    name: str | None = None
    widgets: tuple[Widget, ...] = ()
    updated_at: LooseTime = None


# --- devices and onboarding -------------------------------------------------------------------------------------


class DeviceChange(Sent):
    """``PUT /devices/{device_id}`` (extension): only the fields to change; None clears the two optional ones."""

    device_name: Text | None = None
    firmware_version: Annotated[str, StringConstraints(min_length=1, max_length=255)] | None = None
    metadata: JsonObject | None = None

    @model_validator(mode="after")
    def _changes_something(self) -> Self:
        if not self.model_fields_set:
            raise ValueError("give at least one of device_name, firmware_version, metadata")
        if "device_name" in self.model_fields_set and self.device_name is None:
            raise ValueError("device_name cannot be cleared: give a name or leave it out")
        return self


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


# --- sensor data, analytics, sign-in ------------------------------------------------------------------------------

Aggregate = Literal["avg", "min", "max", "sum", "count"]


class SensorDataBucket(Received):
    """Readings of one interval, put together by ``agg``.

    Attributes:
        from_: where the interval begins, inclusive; seconds since the epoch.
        to: where it ends, exclusive.
        sensor_data: the aggregate of each reading.
        count: how many readings went in.
    """

    device_id: str | None = None
    from_: LooseTime = Field(
        default=None, validation_alias=AliasChoices("from", "from_", "start"), serialization_alias="from"
    )
    to: LooseTime = Field(default=None, validation_alias=AliasChoices("to", "end"))
    sensor_data: dict[str, Any] = Field(default_factory=dict)
    count: int | None = None


class ProductCount(Received):
    """Devices of one product."""

    product_id: str = ""
    total: int = 0
    online: int = 0
    offline: int = 0
    never_seen: int = 0


class IntervalCount(Received):
    """How many in one interval that begins at ``from_``, seconds since the epoch."""

    from_: LooseTime = Field(default=None, validation_alias=AliasChoices("from", "from_"), serialization_alias="from")
    count: int = 0


class DeviceAnalytics(Received):
    """Devices, messages and commands over a span of time.

    Attributes:
        interval: length of one interval, seconds.
        messages: readings stored per interval.
        commands: commands sent per interval.
    """

    total: int = 0
    online: int = 0
    offline: int = 0
    never_seen: int = 0
    by_product: tuple[ProductCount, ...] = ()
    messages: tuple[IntervalCount, ...] = ()
    commands: tuple[IntervalCount, ...] = ()
    from_: LooseTime = Field(default=None, validation_alias=AliasChoices("from", "from_"), serialization_alias="from")
    to: LooseTime = None
    interval: float | None = None


class SignIn(Sent):
    """``POST /auth/signin``."""

    email: Text
    password: SentSecret


# --- databases --------------------------------------------------------------------------------------------------

ColumnType = Literal["string", "number", "integer", "boolean", "datetime", "json"]
Name = Annotated[str, StringConstraints(min_length=1, max_length=NAME_CHARACTERS)]
"""What a schema, a table or a column is called."""


class NewSchema(Sent):
    """``POST /products/{productId}/database/schemas``."""

    name: Name
    description: str | None = None


class Schema(Received):
    """A schema of a product's database."""

    schema_id: str = _named("schema_id", "schemaId", "id")
    product_id: str | None = Field(default=None, validation_alias=AliasChoices("product_id", "productId"))
    name: str = ""
    description: str | None = None
    created_at: LooseTime = None


class NewColumn(Sent):
    """A column of a new table.

    Attributes:
        default: what a record gets that leaves the column out.
    """

    name: Name
    type: ColumnType
    required: bool = False
    default: Any = None


class NewTable(Sent):
    """``POST /database/tables``."""

    schema_id: Text
    table_name: Name
    columns: Annotated[Items[NewColumn], Field(min_length=1)]


class Column(Received):
    """A column of a table."""

    name: str = ""
    type: str = ""
    required: bool = False
    default: Any = None


class Table(Received):
    """A table of a schema."""

    table_id: str = _named("table_id", "tableId", "id")
    schema_id: str | None = Field(default=None, validation_alias=AliasChoices("schema_id", "schemaId"))
    table_name: str = _named("table_name", "name")
    columns: tuple[Column, ...] = ()
    created_at: LooseTime = None


class RuntimeRecordChange(Sent):
    """``PUT /database/runtime-data/{id}``: the new content, which replaces the old."""

    data_payload: JsonObject


# --- rules ------------------------------------------------------------------------------------------------------

FOR_SECONDS_MAX: Final = 366 * 86_400
"""How long a condition may have to hold at most."""
ACTIONS_MAX: Final = 16
"""Actions of one rule."""

Comparison = Literal[">", ">=", "<", "<=", "==", "!="]


class NewTrigger(Sent):
    """When a rule fires: a reading compared with a value, true for ``for_seconds`` without a break."""

    reading: Text
    op: Comparison
    value: Number
    for_seconds: Annotated[int, Field(ge=0, le=FOR_SECONDS_MAX)] = 0


class CommandAction(Sent):
    """Send a command: to the device that fired the rule, or to ``device_id``."""

    type: Literal["command"] = "command"
    command_payload: JsonObject
    device_id: Text | None = None


class RecordAction(Sent):
    """Write a runtime record into ``table_name`` for the device that fired the rule."""

    type: Literal["record"] = "record"
    table_name: Text
    data_payload: JsonObject


NewAction = Annotated[CommandAction | RecordAction, Field(discriminator="type")]


class NewRule(Sent):
    """``POST /rules``."""

    product_id: Text
    name: Text
    enabled: bool = True
    trigger: NewTrigger
    actions: Annotated[Items[NewAction], Field(min_length=1, max_length=ACTIONS_MAX)]


class RuleChange(Sent):
    """``PUT /rules/{id}``: only the fields to change, at least one."""

    name: Text | None = None
    enabled: bool | None = None
    trigger: NewTrigger | None = None
    actions: Annotated[Items[NewAction], Field(min_length=1, max_length=ACTIONS_MAX)] | None = None

    @model_validator(mode="after")
    def _changes_something(self) -> Self:
        if not self.to_wire():
            raise ValueError(f"give at least one field to change: {', '.join(type(self).model_fields)}")
        return self


class Trigger(Received):
    """When a rule fires."""

    reading: str = ""
    op: str = ""
    value: float | None = None
    for_seconds: float = 0


class Rule(Received):
    """A rule. ``actions`` stay opaque: a service may know more kinds than we do."""

    id: str = ""
    product_id: str | None = None
    name: str = ""
    enabled: bool = True
    trigger: Trigger = Field(default_factory=Trigger)
    actions: tuple[JsonObject, ...] = ()
    last_fired_at: LooseTime = None
    created_at: LooseTime = None
    updated_at: LooseTime = None
