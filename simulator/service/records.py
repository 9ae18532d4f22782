"""The bodies of answers, for the OpenAPI document. Records that are built as values live with their storage."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired  # pydantic needs these before Python 3.12

from pydantic import ConfigDict, Field, with_config
from typing_extensions import TypedDict

from agent.wire.base import JsonObject
from simulator.service.storage.commands import CommandRecord
from simulator.service.storage.devices import DeviceRecord
from simulator.service.storage.readings import SensorDataRecord
from simulator.wire.database import ColumnType
from simulator.wire.rules import Comparison

__all__ = [
    "BatchErrorRecord",
    "BatchRecord",
    "ClockRecord",
    "CommandDefinitionRecord",
    "CommandRecord",
    "DashboardRecord",
    "DeviceAnalyticsRecord",
    "DeviceRecord",
    "DiscoveryRecord",
    "ErrorDetailRecord",
    "ErrorRecord",
    "FaultListRecord",
    "FaultRecord",
    "HealthRecord",
    "MetadataRecord",
    "NewClientRecord",
    "OAuthErrorRecord",
    "ProductRecord",
    "RuleFiringRecord",
    "RuleRecord",
    "RuntimeRecord",
    "ScanRecord",
    "SchemaRecord",
    "SeedRecord",
    "SensorDataBucketRecord",
    "SensorDataRecord",
    "SignInRecord",
    "TableRecord",
    "TokenBody",
    "TokenQuestion",
    "TokenRecord",
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


class WidgetPositionRecord(TypedDict):
    """Where a widget stands, in grid cells."""

    x: int
    y: int
    w: int
    h: int


class WidgetRecord(TypedDict):
    """A widget of a dashboard."""

    id: str
    type: str
    title: str | None
    source: JsonObject | None
    position: WidgetPositionRecord | None
    options: JsonObject | None


class DashboardRecord(TypedDict):
    """A product's dashboard; ``updated_at`` is null before the first PUT."""

    product_id: str
    name: str | None
    widgets: list[WidgetRecord]
    updated_at: str | None


class SchemaRecord(TypedDict):
    """A schema of a product's database."""

    schema_id: str
    product_id: str
    name: str
    description: str | None
    created_at: str


class ColumnRecord(TypedDict):
    """A column of a table."""

    name: str
    type: ColumnType
    required: bool
    default: Any


class TableRecord(TypedDict):
    """A table of a schema."""

    table_id: str
    schema_id: str
    table_name: str
    columns: list[ColumnRecord]
    created_at: str


class RuntimeRecord(TypedDict):
    """A record of a table."""

    id: str
    product_id: str
    device_id: str
    table_name: str
    data_payload: JsonObject
    created_at: str
    updated_at: str


# ``from`` is a word of the language, so this one is written as a call.
SensorDataBucketRecord = TypedDict(
    "SensorDataBucketRecord",
    {"device_id": str, "from": str, "to": str, "sensor_data": dict[str, float], "count": int},
)
SensorDataBucketRecord.__doc__ = "Readings of one interval put together; ``count`` says how many."


class SignedInRecord(TypedDict):
    """Who signed in."""

    user_id: str
    email: str


class SignInRecord(TypedDict):
    """The token response, and who signed in."""

    access_token: str
    token_type: str
    expires_in: int
    refresh_token: str
    scope: str
    user: SignedInRecord


class CodeExchangeBody(TypedDict):
    """Exchange the code: ``client_secret`` of a confidential client, ``code_verifier`` of a public one."""

    grant_type: Literal["authorization_code"]
    code: str
    redirect_uri: str
    client_id: str
    client_secret: NotRequired[str]
    code_verifier: NotRequired[str]


class RefreshBody(TypedDict):
    """Refresh: both tokens are rotated. ``scope`` may ask for less than was granted."""

    grant_type: Literal["refresh_token"]
    refresh_token: str
    client_id: str
    client_secret: NotRequired[str]
    scope: NotRequired[str]


TokenBody = Annotated[CodeExchangeBody | RefreshBody, Field(discriminator="grant_type")]
"""What the token endpoint takes."""


class TokenQuestion(TypedDict):
    """A token that a client asks about or ends."""

    token: str
    token_type_hint: NotRequired[str]
    client_id: str
    client_secret: NotRequired[str]


class TokenRecord(TypedDict):
    """The token response; ``refresh_token`` is absent for a client that may not refresh."""

    access_token: str
    token_type: str
    expires_in: int
    refresh_token: NotRequired[str]
    scope: str


class MetadataRecord(TypedDict):
    """The authorization server's metadata (RFC 8414)."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    revocation_endpoint: str
    scopes_supported: list[str]
    response_types_supported: list[str]
    response_modes_supported: list[str]
    grant_types_supported: list[str]
    token_endpoint_auth_methods_supported: list[str]
    revocation_endpoint_auth_methods_supported: list[str]
    code_challenge_methods_supported: list[str]
    authorization_response_iss_parameter_supported: bool


class OAuthErrorRecord(TypedDict):
    """The error body of partner access; ``message`` says the same as ``error_description``."""

    error: str
    error_description: str
    message: str


class TriggerRecord(TypedDict):
    """When a rule fires."""

    reading: str
    op: Comparison
    value: float
    for_seconds: int


class RuleRecord(TypedDict):
    """A rule; ``last_fired_at`` is null before it has fired."""

    id: str
    product_id: str
    name: str
    enabled: bool
    trigger: TriggerRecord
    actions: list[JsonObject]
    last_fired_at: str | None
    created_at: str
    updated_at: str


class RuleOutcomeRecord(TypedDict):
    """What came of an action: ``command_id`` or ``record_id`` when done, ``error`` and ``message`` when failed."""

    type: Literal["command", "record"]
    status: Literal["done", "failed"]
    command_id: str | None
    record_id: str | None
    error: str | None
    message: str | None


class RuleFiringRecord(TypedDict):
    """One time that a rule fired; ``device_id`` is the device whose reading it was."""

    id: str
    rule_id: str
    device_id: str
    fired_at: str
    actions: list[RuleOutcomeRecord]


class ProductCountRecord(TypedDict):
    """Registered devices of one product."""

    product_id: str
    total: int
    online: int
    offline: int
    never_seen: int


IntervalCountRecord = TypedDict("IntervalCountRecord", {"from": str, "count": int})
IntervalCountRecord.__doc__ = "How many in the interval that begins at ``from``."


DeviceAnalyticsRecord = TypedDict(
    "DeviceAnalyticsRecord",
    {
        "total": int,
        "online": int,
        "offline": int,
        "never_seen": int,
        "by_product": list[ProductCountRecord],
        "messages": list[IntervalCountRecord],
        "commands": list[IntervalCountRecord],
        "from": str,
        "to": str,
        "interval": int,
    },
)
DeviceAnalyticsRecord.__doc__ = "Devices now; readings and commands per interval of ``interval`` seconds."


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


class ClockRecord(TypedDict):
    """The service's clock; ``rate`` is seconds of it for each second of the machine."""

    time: str
    mode: str
    rate: float
    system_time: str


class FaultRecord(TypedDict):
    """A fault: `match`, `times` and `effect` as they were sent, `times.seed` made where it was left out.

    Attributes:
        matched: requests that it was asked about and that fit its `match`.
        hits: of these, those that met its effect.
    """

    fault_id: str
    match: JsonObject
    times: JsonObject
    effect: JsonObject
    matched: int
    hits: int
    created_at: str


class FaultListRecord(TypedDict):
    """All faults, in the order in which they are asked."""

    data: list[FaultRecord]


class NewClientRecord(TypedDict):
    """A partner application that was registered just now; ``client_secret`` is null for a public one."""

    client_id: str
    client_secret: str | None
    name: str
    redirect_uris: list[str]
    scopes: list[str]
    grant_types: list[str]


class SeedRecord(TypedDict):
    """How many items of a seed were created, changed, and there already."""

    created: int
    changed: int
    unchanged: int


class ErrorDetailRecord(TypedDict):
    """One fault of a body or a query parameter."""

    field: str
    issue: str


class ErrorRecord(TypedDict):
    """The error body (specification, "Error body")."""

    error: str
    message: str
    details: NotRequired[list[ErrorDetailRecord]]
