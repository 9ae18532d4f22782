"""Builds the client of the service from the configuration: URL, credential, trusted CA."""

from __future__ import annotations

import os

from agent.app.version import VERSION
from agent.config import Credentials
from agent.config.model import ServiceConfig
from agent.errors import ConfigurationError
from agent.wire.client import DeviceClient
from agent.wire.secret import BearerToken, Credential, KeyPair, RenewedToken


def make_client(service: ServiceConfig, credentials: Credentials) -> DeviceClient:
    """A client for the configured service.

    Raises:
        ConfigurationError: the address, the keys or the certificate file cannot be used.
    """
    if service.ca_file is not None and not os.access(service.ca_file, os.R_OK):
        raise ConfigurationError([f"service.ca_file: {service.ca_file} cannot be read; mend the path or its mode"])
    credential: Credential
    if credentials.token_path is None:
        credential = KeyPair(credentials.api_key, credentials.secret)
    else:
        credential = BearerToken(RenewedToken(credentials.token_path, credentials.secret).current)
    client = DeviceClient(
        service.base_url,
        credential,
        timeout_s=service.timeout_s,
        ca_file=service.ca_file,
        user_agent=f"device-agent/{VERSION}",
    )
    client.dialect = service.dialect.dialect()
    return client
