"""The client out of the configuration: where, as whom, trusting whom."""

from __future__ import annotations

import os

from agent.adapters.renewed_token import RenewedToken
from agent.adapters.token_file import TokenFile
from agent.config import Credentials
from agent.config.model import ServiceConfig
from agent.errors import ConfigurationError
from agent.wire.auth import Credential, KeyPair
from agent.wire.device_client import DeviceClient


def make_client(service: ServiceConfig, credentials: Credentials, version: str) -> DeviceClient:
    """A client for the configured service.

    Raises:
        ConfigurationError: the address, the keys or the certificate file cannot be used.
    """
    if service.ca_file is not None:
        if not os.access(service.ca_file, os.R_OK):
            raise ConfigurationError([f"service.ca_file: {service.ca_file} cannot be read; mend the path or its mode"])
        # OpenSSL's own variable: it replaces the system's trust store for the one context of this process.
        os.environ["SSL_CERT_FILE"] = str(service.ca_file)
    return DeviceClient(
        service.base_url,
        _credential(credentials),
        timeout_s=service.timeout_s,
        max_answer_bytes=service.max_answer_bytes,
        user_agent=f"device-agent/{version}",
    )


def _credential(credentials: Credentials) -> Credential:
    if credentials.token_path is not None:
        return TokenFile(RenewedToken(credentials.token_path, credentials.secret))
    return KeyPair(credentials.api_key, credentials.secret)
