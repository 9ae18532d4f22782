"""The clients of the service: the key pair, bounded connections, and the meter under every request."""

from __future__ import annotations

import httpx

from agent.app.version import VERSION
from agent.config.credentials import Credentials
from agent.config.model import ServiceConfig
from agent.wire.auth import KeyPair
from agent.wire.device_client import DeviceClient
from agent.wire.network import open_transport
from agent.wire.trust import service_trust
from gateway.service.meter import Meter, MeteredTransport


def make_client(service: ServiceConfig, credentials: Credentials, meter: Meter, connections: int) -> DeviceClient:
    """A client whose every request takes a grant.

    Args:
        service: where.
        credentials: the key pair.
        meter: the key's budget.
        connections: at the same time.

    Raises:
        ConfigurationError: the address, the keys or the certificate file cannot be used.
    """
    network = open_transport(
        service_trust(service.ca_file) if service.base_url.startswith("https:") else None,
        httpx.Limits(max_connections=connections, max_keepalive_connections=connections, keepalive_expiry=60.0),
    )
    return DeviceClient(
        service.base_url,
        KeyPair(credentials.api_key, credentials.secret),
        timeout_s=service.timeout_s,
        max_answer_bytes=service.max_answer_bytes,
        transport=MeteredTransport(network, meter),
        user_agent=f"device-gateway/{VERSION}",
    )
