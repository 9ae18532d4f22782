"""Every path of the service, relative to ``{base_url}`` (specification, "Endpoints"; extensions are marked).

Those of devices and gateways are :mod:`agent.wire.paths`, and are here, too; templates and functions are as there.
"""

from __future__ import annotations

from typing import Final

from agent.wire.paths import *  # noqa: F403 - and those of devices and gateways
from agent.wire.paths import fill

PRODUCTS: Final = "/products"
PRODUCT: Final = "/products/{product_id}"
PRODUCT_COMMANDS: Final = "/products/{product_id}/commands"
PRODUCT_DASHBOARD: Final = "/products/{product_id}/dashboard"
PRODUCT_SCHEMAS: Final = "/products/{product_id}/database/schemas"

DEVICE: Final = "/devices/{device_id}"
"""Extension ``single-records``."""

TABLES: Final = "/database/tables"
RUNTIME_RECORD: Final = "/database/runtime-data/{record_id}"

SCAN_QR: Final = "/onboarding/scan-qr"
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
