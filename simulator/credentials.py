"""How a command reaches a service: its address, a key pair or a bearer token, and the trusted authorities."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click
import httpx

from agent.errors import ConfigurationError
from agent.wire.client import AddressTransport
from agent.wire.network import trust_store
from agent.wire.secret import BearerToken, Credential, KeyPair, Secret, never_show
from simulator.login.tokens import FileToken
from simulator.wire.client import ServiceClient

_CONNECTIONS: Final = 64


def _check_ca_file(_context: click.Context, _option: click.Parameter, ca_file: Path | None) -> Path | None:
    if ca_file is None:
        return None
    try:
        trust_store(ca_file)
    except OSError as error:
        text = f"{ca_file} cannot be used ({error.strerror or error}); give a PEM file with certificates"
        raise click.BadParameter(text) from None
    return ca_file.absolute()


takes_ca_file = click.option(
    "--ca-file",
    type=click.Path(path_type=Path),
    callback=_check_ca_file,
    help="PEM file with the authorities that alone are trusted over TLS.  [default: the system's]",
)
"""Add the option that says whom to trust; no other environment variable adds to it."""

_FILE: Final = click.Path(path_type=Path)
SERVICE_OPTIONS: Final = (
    click.option("--base-url", help="Address of the service, such as http://127.0.0.1:8080."),
    click.option("--api-key", help="The public key, mk_...; with --secret-key-file."),
    click.option(
        "--secret-key-file",
        type=_FILE,
        help="File with the secret key, msk_...; never given on the command line, where other users see it.",
    ),
    takes_ca_file,
)
_OPTIONS: Final = (
    *SERVICE_OPTIONS,
    click.option(
        "--token-file",
        type=_FILE,
        help="Instead of keys: the file of 'fleet-simulator login', which knows the address, or a bearer token.",
    ),
    click.option("--timeout-s", type=click.FloatRange(min=0.1), default=10.0, help="Patience with a request."),
)


def takes_access(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that lead to a service; the command gets them as ``access``."""

    @functools.wraps(command)
    def wrapper(**given: Any) -> Any:
        names = ("base_url", "api_key", "secret_key_file", "token_file", "ca_file", "timeout_s")
        return command(access=ServiceAccess(**{name: given.pop(name) for name in names}), **given)

    return functools.reduce(lambda made, add: add(made), reversed(_OPTIONS), wrapper)


@dataclass(frozen=True, slots=True)
class ServiceAccess:
    """Address and credentials of a service.

    Attributes:
        token_file: what ``fleet-simulator login`` wrote, read at each request, or a bearer token alone.
        ca_file: the authorities that alone are trusted; None trusts the system's.
        timeout_s: for one request.
    """

    base_url: str | None
    api_key: str | None = None
    secret_key_file: Path | None = None
    token_file: Path | None = None
    ca_file: Path | None = None
    timeout_s: float = 10.0

    def open(self) -> ServiceClient:
        """The client; nothing is sent yet.

        Raises:
            ConfigurationError: address or credentials cannot be used; the text names the option.
            ServiceError: the token file holds nothing that can be used.
        """
        base_url, credential = self.read()
        limits = httpx.Limits(max_connections=_CONNECTIONS, max_keepalive_connections=_CONNECTIONS)
        transport = AddressTransport(trust_store(self.ca_file), limits)
        return ServiceClient(base_url, credential, timeout_s=self.timeout_s, transport=transport)

    def read(self) -> tuple[str, Credential]:
        """Address and credential; raises as :meth:`open`."""
        base_url = self.base_url
        credential: Credential
        keys = self.api_key, self.secret_key_file
        if self.token_file is not None and not any(keys):
            token = read_secret_file(self.token_file, "--token-file")
            if token.reveal().startswith("{"):
                credential = FileToken(self.token_file)
                base_url = base_url or credential.base_url
            else:
                credential = BearerToken(token)
        elif self.token_file is None and self.api_key is not None and self.secret_key_file is not None:
            credential = KeyPair(self.api_key, read_secret_file(self.secret_key_file, "--secret-key-file"))
        else:
            fault = "give --api-key and --secret-key-file, or --token-file alone"
            raise ConfigurationError([fault], "credentials")
        if base_url is None:
            raise ConfigurationError(["--base-url is missing: give the address of the service"], "credentials")
        return base_url, credential


def read_secret_file(path: Path, option_name: str) -> Secret:
    """The secret in a file; no output shows it from here on.

    Args:
        path: the file, with the secret alone in it.
        option_name: the option that names the file, for error texts.

    Raises:
        ConfigurationError: the file cannot be read or is empty.
    """
    try:
        value = path.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not ASCII text"
        raise ConfigurationError([f"{option_name} {path} cannot be read: {reason}"], option_name) from None
    if not value:
        raise ConfigurationError([f"{option_name} {path} is empty: put the secret alone into it"], option_name)
    never_show(value)
    return Secret(value)
