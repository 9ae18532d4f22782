"""Shared by the gateway's commands: options, configuration, errors, output, and the client of the service."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TextIO, TypeVar

import click
import httpx

from agent.app.version import VERSION
from agent.cli.program import config_option_of, file_to_load, print_json, print_table
from agent.config.credentials import Credentials
from agent.config.model import ServiceConfig
from agent.errors import (
    EXIT_CHECK_FAILED,
    EXIT_CONFIGURATION,
    EXIT_UNREACHABLE,
    Advice,
    ConfigurationError,
    ServiceError,
)
from agent.text import bounded
from agent.wire.client import AddressTransport
from agent.wire.network import service_trust
from agent.wire.secret import KeyPair
from gateway.client import OperatorClient
from gateway.config import PREFIX, GatewayConfig, load_gateway
from gateway.quota import Kind, Quota

Function = TypeVar("Function", bound=Callable[..., Any])

DEFAULT_PATH: Final = Path("/etc/device-gateway/config.yaml")
_UNITS: Final = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_LONGEST_S: Final = 366 * 86_400.0
_ENDS: Final = {Advice.RETRY: EXIT_UNREACHABLE, Advice.REAUTHENTICATE: EXIT_CONFIGURATION}

gateway_config_option = config_option_of(DEFAULT_PATH, "DEVICE_GATEWAY_CONFIG", "The gateway's configuration file")
"""``--config FILE``."""


def path_option(
    name: str, text: str, default: Path | None = None, *, is_folder: bool = False
) -> Callable[[Function], Function]:
    """An option for a file, or for a folder."""
    kind = click.Path(path_type=Path, file_okay=not is_folder, dir_okay=is_folder)
    return click.option(name, type=kind, default=default, show_default=default is not None, help=text)


def read_duration(text: str) -> float:
    """A time such as ``90s``, ``15m``, ``1h`` or ``7d``, in seconds."""
    found = re.fullmatch(r"(\d{1,9}(?:\.\d{1,3})?)([smhd])", text)
    if found is None or not 1.0 <= float(found[1]) * _UNITS[found[2]] <= _LONGEST_S:
        raise click.BadParameter(f"{text!r} is no time: write 15m, 1h or 7d, from 1s to 366d")
    return float(found[1]) * _UNITS[found[2]]


def read_lines(file: TextIO, option: str) -> list[str]:
    """The ids of a file, one in each line, each once; ``#`` begins a comment.

    Raises:
        ConfigurationError: there are none, or it is not text.
    """
    try:
        lines = [line.strip() for line in file]
    except UnicodeDecodeError as error:
        raise ConfigurationError([f"{file.name} is not UTF-8 text: {error}"], option) from None
    found = list(dict.fromkeys(line for line in lines if line and not line.startswith("#")))
    if not found:
        raise ConfigurationError([f"{file.name} has no device id: write one in each line"], option)
    return found


def load(config_path: Path, *, with_keys: bool = False) -> GatewayConfig:
    """The configuration that a command works with; most of them need no key pair.

    Raises:
        ConfigurationError: see :func:`gateway.config.load_gateway`.
    """
    return load_gateway(file_to_load(config_path, DEFAULT_PATH, PREFIX), os.environ, with_keys=with_keys)


@contextmanager
def errors_end_it() -> Iterator[None]:
    """An error of the service ends the program with one line."""
    try:
        yield
    except ServiceError as error:
        complain(f"the service: {error}")
        raise SystemExit(_ENDS.get(error.advice, EXIT_CHECK_FAILED)) from None


@contextmanager
def files_in_use(source: str, fix: str) -> Iterator[None]:
    """A file that cannot be read or written becomes one sentence that names it and the fix.

    Raises:
        ConfigurationError: instead of :class:`OSError`.
    """
    try:
        yield
    except OSError as error:
        fault = f"{error.filename or 'a file'} cannot be used: {error.strerror or error}; {fix}"
        raise ConfigurationError([fault], source) from None


def complain(text: str) -> None:
    """One line on standard error."""
    click.echo(bounded(text), err=True)


def print_rows(rows: list[dict[str, Any]], *, as_json: bool) -> None:
    """Rows with the same members, as JSON or as a table."""
    if as_json:
        print_json(rows)
    elif rows:
        cells = [["-" if value is None else str(value) for value in row.values()] for row in rows]
        print_table([name.replace("_", " ") for name in rows[0]], cells)


# --- asking the service -----------------------------------------------------------------------------------------------


class _Patient(httpx.BaseTransport):
    """For commands that a person types: leaves half of the key's quota to the running gateway, waits after a 429."""

    def __init__(self, network: httpx.BaseTransport) -> None:
        self._network = network
        self._quota = Quota(None, time.monotonic)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Make one request when the quota has room for it, again after a 429."""
        while True:
            while wait_s := self._quota.wait_s(Kind.POLLS):
                time.sleep(min(wait_s, 5.0))  # another program may spend or free the quota meanwhile
            with self._quota.request(Kind.POLLS):
                response = self._network.handle_request(request)
                self._quota.answered(response.status_code, response.headers)
            if response.status_code != 429:
                return response
            response.close()
            complain(f"the quota of the key is used up; going on in {self._quota.wait_s(Kind.POLLS):.0f} s")

    def close(self) -> None:
        """Give the connections back."""
        self._network.close()


def service_client(service: ServiceConfig, credentials: Credentials, *, is_patient: bool = True) -> OperatorClient:
    """A client with the key pair, for a command.

    Args:
        service: where.
        credentials: the key pair.
        is_patient: waits while the quota of the key is used up, for as long as it takes.

    Raises:
        ConfigurationError: the address, the keys or the certificate file cannot be used.
    """
    trust = service_trust(service.ca_file) if service.base_url.startswith("https:") else None
    network = AddressTransport(trust, httpx.Limits())
    client = OperatorClient(
        service.base_url,
        KeyPair(credentials.api_key, credentials.secret),
        timeout_s=service.timeout_s,
        transport=_Patient(network) if is_patient else network,
        user_agent=f"device-gateway/{VERSION}",
    )
    client.dialect = service.dialect.dialect()
    return client


def extensions_of(client: OperatorClient, service: ServiceConfig) -> frozenset[str]:
    """The extensions of the service, as the configuration or the service itself names them.

    Raises:
        ServiceError: it could not be asked.
    """
    configured = service.dialect.dialect().extensions
    return client.discover().extensions if configured is None else configured


def unknown_devices(client: OperatorClient, device_ids: Collection[str]) -> list[str]:
    """Those of these devices that the service does not list.

    Raises:
        ServiceError: it could not be asked.
    """
    unknown = dict.fromkeys(device_ids)
    for device in client.devices(limit=None):
        unknown.pop(device.device_id, None)
        if not unknown:
            break
    return [*unknown]
