"""Every path of the service, relative to ``{base_url}`` (specification, "Endpoints"; extensions are marked).

The constants are templates, as a server routes them. The functions fill in ids, each percent-encoded as one segment.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

from agent.errors import InvalidMessage

PRODUCTS: Final = "/products"
PRODUCT: Final = "/products/{product_id}"
PRODUCT_COMMANDS: Final = "/products/{product_id}/commands"
PRODUCT_DASHBOARD: Final = "/products/{product_id}/dashboard"
PRODUCT_SCHEMAS: Final = "/products/{product_id}/database/schemas"

DEVICES: Final = "/devices"
DEVICE: Final = "/devices/{device_id}"
"""Extension ``single-records``."""
DEVICE_COMMANDS: Final = "/devices/{device_id}/commands"
SEND_COMMAND: Final = "/commands/send"
SENSOR_DATA: Final = "/sensor-data"

TABLES: Final = "/database/tables"
RUNTIME_DATA: Final = "/database/runtime-data"
RUNTIME_RECORD: Final = "/database/runtime-data/{record_id}"

SCAN_QR: Final = "/onboarding/scan-qr"
ONBOARDING_DEVICES: Final = "/onboarding/device"
ONBOARDING_DEVICE: Final = "/onboarding/device/{device_id}"
USER_DEVICES: Final = "/onboarding/user/{user_id}/devices"

RULES: Final = "/rules"
RULE: Final = "/rules/{rule_id}"
DEVICE_ANALYTICS: Final = "/analytics/devices"
SIGN_IN: Final = "/auth/signin"

OAUTH_AUTHORIZE: Final = "/partner-oauth-authorize"
"""Relative to the authorization address, not to ``{base_url}``."""
OAUTH_TOKEN: Final = "/functions/v1/partner-oauth-token"  # noqa: S105 - a path
OAUTH_REVOKE: Final = "/functions/v1/partner-oauth-revoke"
"""Extension, RFC 7009; the metadata document names it."""
OAUTH_METADATA: Final = "/.well-known/oauth-authorization-server"
"""Extension, RFC 8414; 404 on a plain server."""

DISCOVERY: Final = "/.well-known/device-service"
"""Extension document: which extensions this service has; 404 on a plain server."""
COMMAND_RESULT: Final = "/devices/{device_id}/commands/{command_id}/result"
"""Extension ``command-results``."""
COMMAND_EVENTS: Final = "/commands/events"
"""Extension ``command-events``."""


def segment(value: str) -> str:
    """One path segment: everything but unreserved characters is percent-encoded, the dots of ``.`` and ``..`` too.

    Raises:
        InvalidMessage: the value is empty or has no UTF-8 form.
    """
    if not value:
        raise InvalidMessage("an id in a path must not be empty")
    if value in {".", ".."}:
        return "%2E" * len(value)  # clients and servers would resolve the bare ones away
    try:
        return quote(value, safe="")
    except UnicodeEncodeError:
        raise InvalidMessage("an id in a path must not contain a lone surrogate") from None


def fill(template: str, **ids: str) -> str:
    """The template with each ``{name}`` replaced by its id as one segment."""
    return template.format_map({name: segment(value) for name, value in ids.items()})


def product(product_id: str) -> str:
    """``PUT``, ``DELETE``: one product."""
    return fill(PRODUCT, product_id=product_id)


def product_commands(product_id: str) -> str:
    """``GET``: the product's command vocabulary."""
    return fill(PRODUCT_COMMANDS, product_id=product_id)


def product_dashboard(product_id: str) -> str:
    """``GET``, ``PUT``: the product's dashboard."""
    return fill(PRODUCT_DASHBOARD, product_id=product_id)


def product_schemas(product_id: str) -> str:
    """``GET``, ``POST``: the product's database schemas."""
    return fill(PRODUCT_SCHEMAS, product_id=product_id)


def device(device_id: str) -> str:
    """``GET``, ``PUT``, extension: one device."""
    return fill(DEVICE, device_id=device_id)


def device_commands(device_id: str) -> str:
    """``GET``: commands of that device."""
    return fill(DEVICE_COMMANDS, device_id=device_id)


def command_result(device_id: str, command_id: str) -> str:
    """``POST``, extension: how a command goes or ended."""
    return fill(COMMAND_RESULT, device_id=device_id, command_id=command_id)


def runtime_record(record_id: str) -> str:
    """``PUT``, ``DELETE``: one runtime record."""
    return fill(RUNTIME_RECORD, record_id=record_id)


def onboarding_device(device_id: str) -> str:
    """``DELETE``: remove a device from its user."""
    return fill(ONBOARDING_DEVICE, device_id=device_id)


def user_devices(user_id: str) -> str:
    """``GET``: devices of that user."""
    return fill(USER_DEVICES, user_id=user_id)


def rule(rule_id: str) -> str:
    """``GET``, ``PUT``, ``DELETE``: one rule."""
    return fill(RULE, rule_id=rule_id)
