"""Open a service by its address and files with credentials."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import httpx

from agent.errors import ConfigurationError
from agent.wire.auth import Credential, KeyPair
from agent.wire.network import open_transport
from agent.wire.trust import trust_store
from simulator.credentials import read_secret_file
from simulator.login.tokens import RefreshingBearer, TokenFile
from simulator.wire.client import ServiceClient

_CONNECTIONS = 64


@dataclass(frozen=True, slots=True)
class ServiceAccess:
    """Address and credentials of a service: a key pair, or the token file of ``fleet-simulator login``."""

    base_url: str | None
    api_key: str | None = None
    secret_key_file: Path | None = None
    token_file: Path | None = None
    ca_file: Path | None = None
    timeout_s: float = 10.0
    prefix: str = "--"

    @property
    def is_given(self) -> bool:
        """Whether there are any credentials."""
        return any(value is not None for value in (self.api_key, self.secret_key_file, self.token_file))

    def open(self) -> ServiceClient:
        """The client; nothing is sent yet.

        Raises:
            ConfigurationError: the credentials cannot be used; each fault names its option.
            ServiceError: the token file holds nothing that can be used.
        """
        credential, base_url = self._credential()
        limits = httpx.Limits(max_connections=_CONNECTIONS, max_keepalive_connections=_CONNECTIONS)
        transport = open_transport(trust_store(self.ca_file), limits)
        return ServiceClient(base_url, credential, timeout_s=self.timeout_s, transport=transport)

    def _credential(self) -> tuple[Credential, str]:
        keys = self.api_key, self.secret_key_file
        if any(keys) == (self.token_file is not None):
            fault = f"give {self.prefix}api-key and {self.prefix}secret-key-file, or {self.prefix}token-file"
            raise ConfigurationError([fault], "credentials")
        if self.token_file is not None:
            bearer = RefreshingBearer(TokenFile(self.token_file), timeout_s=self.timeout_s, ca_file=self.ca_file)
            return bearer, self.base_url or bearer.base_url
        if self.api_key is None or self.secret_key_file is None:
            raise ConfigurationError([f"a key pair has both {self.prefix}api-key and {self.prefix}secret-key-file"], "")
        if self.base_url is None:
            raise ConfigurationError(["--base-url is missing: give the address of the service"], "credentials")
        return KeyPair(self.api_key, read_secret_file(self.secret_key_file, "--secret-key-file")), self.base_url
