"""Builds the client of the service from the configuration: URL, credential, trusted CA."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from agent.config import AgentConfig, Credentials
from agent.config.model import ServiceConfig
from agent.errors import ConfigurationError
from agent.wire.auth import Credential, KeyPair
from agent.wire.device_client import DeviceClient
from agent.wire.secret import Secret

if TYPE_CHECKING:
    from agent.transports.renewed_token import RenewedToken


class TokenFileCredential(Credential):
    """``Authorization: Bearer`` with what the file holds now (specification, "Step 3: call the API")."""

    def __init__(self, token: RenewedToken) -> None:
        super().__init__()
        self._token = token

    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._token.current().reveal()}"}

    def _secrets(self) -> tuple[Secret, ...]:
        return (self._token.last,)


def make_client(config: AgentConfig, service: ServiceConfig, credentials: Credentials, version: str) -> DeviceClient:
    """A client for the configured service.

    Raises:
        ConfigurationError: the address, the keys or the certificate file cannot be used.
    """
    if service.ca_file is not None and not os.access(service.ca_file, os.R_OK):
        raise ConfigurationError([f"service.ca_file: {service.ca_file} cannot be read; mend the path or its mode"])
    return DeviceClient(
        service.base_url,
        make_credential(credentials),
        timeout_s=service.timeout_s,
        ca_file=service.ca_file,
        user_agent=f"device-agent/{version}",
        reading=service.dialect.dialect().reading,
    )


def make_credential(credentials: Credentials) -> Credential:
    """The key pair or token of the configuration.

    Raises:
        ConfigurationError: it cannot be used.
    """
    if credentials.token_path is None:
        return KeyPair(credentials.api_key, credentials.secret)
    from agent.transports.renewed_token import RenewedToken  # not where the key pair is used

    return TokenFileCredential(RenewedToken(credentials.token_path, credentials.secret))
