"""Builds the client of the service from the configuration: URL, credential, trusted CA."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

import httpx

from agent.config import AgentConfig, Credentials
from agent.config.model import ServiceConfig
from agent.errors import ConfigurationError, ServiceError, SignInEnded
from agent.wire.auth import Credential, KeyPair, origin_of
from agent.wire.device_client import DeviceClient
from agent.wire.secret import Secret

if TYPE_CHECKING:
    from agent.adapters.renewed_token import RenewedToken
    from agent.wire.token_keeper import TokenStore

OWN_TOKENS: Final = "token.json"
"""The file in the state directory that holds what the agent has renewed."""


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
        make_credential(config, service, credentials),
        timeout_s=service.timeout_s,
        max_answer_bytes=service.max_answer_bytes,
        ca_file=service.ca_file,
        user_agent=f"device-agent/{version}",
        reading=service.dialect.dialect().reading,
    )


def token_store(config: AgentConfig, token_path: Path) -> TokenStore:
    """Where the agent keeps tokens that renew themselves: begun from ``token_path``, kept in the state directory."""
    from agent.token_store import SeededTokenFile, TokenFile

    own = config.state_dir / OWN_TOKENS
    if os.path.realpath(own) == os.path.realpath(token_path):
        return TokenFile(own)
    return SeededTokenFile(TokenFile(token_path), TokenFile(own))


def make_credential(config: AgentConfig, service: ServiceConfig, credentials: Credentials) -> Credential:
    """The key pair or token of the configuration.

    Raises:
        ConfigurationError: it cannot be used.
    """
    if credentials.token_path is None:
        return KeyPair(credentials.api_key, credentials.secret)
    if credentials.tokens is None:
        from agent.adapters.renewed_token import RenewedToken  # not where the key pair is used

        return TokenFileCredential(RenewedToken(credentials.token_path, credentials.secret))
    from agent.wire.refreshing import RefreshingBearer  # only for tokens that renew themselves

    fault = ""
    try:
        bearer = RefreshingBearer(
            token_store(config, credentials.token_path),
            client_secret=credentials.client_secret,
            timeout_s=service.timeout_s,
            ca_file=service.ca_file,
        )
        if origin_of(httpx.URL(bearer.base_url)) == origin_of(httpx.URL(service.base_url)):
            return bearer
        fault = (
            f"the tokens in {credentials.token_path} are for {bearer.base_url}, and service.base_url is "
            f"{service.base_url}: correct it, or sign in there with fleet-simulator login --base-url ADDRESS"
        )
    except SignInEnded as error:
        fault = error.message
    except ServiceError as error:
        fault = str(error)
    raise ConfigurationError([f"auth.token_file: {fault}"], "credentials")
