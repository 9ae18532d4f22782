"""Devices get their tokens: one or many, known to the service already or registered there on the way."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import httpx
from pydantic import ValidationError

from agent.app.enroll import AUTHORITY, CONFIGURATION, TOKEN, gateway_configuration
from agent.app.version import VERSION
from agent.config.credentials import Credentials
from agent.config.model import ServiceConfig
from agent.errors import ConfigurationError, NotFound, RateLimited
from agent.files import replace_file
from agent.identity import as_owner_of
from agent.wire import topics
from agent.wire.base import describe_faults
from agent.wire.client import AddressTransport
from agent.wire.enrollment import EnrollmentAnswer
from agent.wire.network import authority as authority_of
from agent.wire.network import is_this_machine, service_trust
from agent.wire.secret import KeyPair, Secret
from agent.wire.server import COMMAND_STATUS
from gateway.client import OperatorClient, RegisterDevice
from gateway.config import GatewayConfig
from gateway.tokens import Randomness, id_fault, make_token, with_tokens

Value = TypeVar("Value")

BROKER_MARK: Final = "broker-wanted"
"""A file that says that the broker lacks the newest tokens; ``device-gateway-broker.path`` waits for it."""
_ASK_ONE_BY_ONE: Final = 20
_PATIENCE: Final = 20


def request_broker_update(state_dir: Path) -> None:
    """Set the mark that the broker lacks a token.

    Raises:
        OSError: it cannot be written.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    os.close(os.open(state_dir / BROKER_MARK, flags, 0o600))


# --- the way to the gateway -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Access:
    """How devices reach the gateway from where they are.

    Attributes:
        url: of the HTTP front; None for devices that only speak MQTT.
        broker: HOST or HOST:PORT; None for devices that only speak HTTP.
        authority: PEM text of the authority that signed the server's certificate; None for a public one.
        plain: no TLS, for a closed test network.
    """

    url: str | None = None
    broker: str | None = None
    authority: str | None = None
    plain: bool = False

    def handed(self, device_id: str, token: Secret, product_id: str | None) -> EnrollmentAnswer:
        """All that a device needs."""
        return EnrollmentAnswer(
            device_id=device_id,
            token=token,
            product_id=product_id,
            url=self.url,
            broker=self.broker,
            plain=self.plain,
            authority=self.authority,
        )


def gateway_access(
    config: GatewayConfig, url: str | None, broker: str | None, authority: Path | None, *, plain: bool, needed: bool
) -> Access:
    """How devices reach the gateway, out of what was given and what the configuration says.

    Args:
        config: the gateway's.
        url: as given; without it the front's own address counts where it is loopback.
        broker: as given.
        authority: as given; without it the ``ca.pem`` beside the front's certificate or the one the gateway trusts.
        plain: no TLS.
        needed: an address is about to be shown or sent.

    Raises:
        ConfigurationError: it is needed and not known, or the authority's file cannot be read.
    """
    http = config.http
    if url is None and broker is None and http.enabled and is_this_machine(http.host):
        url = f"{'http' if http.certificate is None else 'https'}://{authority_of(http.host, http.port)}"
    if needed and url is None and broker is None:
        text = "devices need the address of the gateway: give --url https://HOST:PORT, or --broker HOST:PORT"
        raise ConfigurationError([text], "address")
    if authority is None and http.certificate is not None and (http.certificate.parent / AUTHORITY).is_file():
        authority = http.certificate.parent / AUTHORITY
    if authority is None and broker is not None and not plain:
        authority = config.mqtt.ca_file
    if authority is None:
        return Access(url, broker, None, plain)
    try:
        text = as_owner_of(authority, partial(authority.read_text, encoding="ascii"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError([f"{authority} is no PEM file that can be read ({error})"], "--ca") from None
    return Access(url, broker, text, plain)


def checked_registration(
    product_id: str | None, identifier: str, user_id: str | None, name: str | None
) -> RegisterDevice:
    """A registration at the service, with all that it needs.

    Raises:
        ConfigurationError: something is missing, or may not be.
    """
    missing = ", ".join(field for field, value in {"product_id": product_id, "user_id": user_id}.items() if not value)
    if missing:
        raise ConfigurationError([f"{missing} is missing, which a device is registered by"], "registration")
    try:
        return RegisterDevice(
            user_id=user_id or "", product_id=product_id or "", device_identifier=identifier, device_name=name or None
        )
    except ValidationError as error:
        raise ConfigurationError([describe_faults(error)], "registration") from None


# --- asking the service -----------------------------------------------------------------------------------------------


def service_client(
    service: ServiceConfig, credentials: Credentials, transport: httpx.BaseTransport | None = None
) -> OperatorClient:
    """A client with the key pair, for a command.

    Args:
        service: where.
        credentials: the key pair.
        transport: the network; None opens one.

    Raises:
        ConfigurationError: the address, the keys or the certificate file cannot be used.
    """
    trust = service_trust(service.ca_file) if service.base_url.startswith("https:") else None
    client = OperatorClient(
        service.base_url,
        KeyPair(credentials.api_key, credentials.secret),
        timeout_s=service.timeout_s,
        transport=transport or AddressTransport(trust, httpx.Limits()),
        user_agent=f"device-gateway/{VERSION}",
    )
    client.dialect = service.dialect.dialect()
    return client


def with_retries(ask: Callable[[], Value]) -> Value:
    """Ask, and while the quota is used up wait and ask again; for a command that a person has typed."""
    for _ in range(_PATIENCE):
        try:
            return ask()
        except RateLimited as error:
            time.sleep(min(error.retry_after_s or 10.0, 60.0))
    return ask()


def unknown_devices(client: OperatorClient, device_ids: Collection[str]) -> list[str]:
    """Those of these devices that the service does not know.

    Raises:
        ServiceError: it could not be asked.
    """
    # A service that does not say which commands are open may hand one out with a list, and only once.
    if len(device_ids) > _ASK_ONE_BY_ONE or COMMAND_STATUS not in with_retries(client.discover).extensions:
        known = with_retries(lambda: {device.device_id for device in client.devices(limit=None)})
        return [device_id for device_id in device_ids if device_id not in known]
    unknown = []
    for device_id in device_ids:
        try:
            with_retries(lambda each=device_id: client.device_commands(each))  # type: ignore[misc]  # a default binds it
        except NotFound:
            unknown.append(device_id)
    return unknown


# --- tokens and what a device is handed -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Issuer:
    """Issues device tokens, and the files that a device needs with one.

    Attributes:
        state_dir: of the gateway.
        access: how devices reach it.
        randomness: such as :func:`secrets.token_bytes`.
        folder: where their files are written; None writes none.
        several: each device has a folder of its own in it.
        device_dir: where the files will lie on the device.
    """

    state_dir: Path
    access: Access
    randomness: Randomness
    folder: Path | None
    several: bool
    device_dir: Path

    def add(self, device_ids: Sequence[str], client: OperatorClient | None) -> tuple[list[EnrollmentAnswer], list[str]]:
        """A token for each device that has none; beside them the ids that have one, which stays.

        Args:
            device_ids: the service's.
            client: says which devices the service knows; None where nobody is to be asked.

        Raises:
            ConfigurationError: an id may not be, the service does not know it, or files cannot be used; nothing was
                issued.
            ServiceError: it could not be asked; nothing was issued.
        """
        faults = [f"{each!r}: {fault}" for each in device_ids if (fault := id_fault(each))]
        if faults:
            raise ConfigurationError(faults, "devices")
        kept = self._with_token(device_ids)
        new = [each for each in dict.fromkeys(device_ids) if each not in set(kept)]
        if client is not None and new:
            fix = "the service does not know this device: register it first, or mend the id (--no-check asks nobody)"
            faults = [f"{each}: {fix}" for each in unknown_devices(client, new)]
        if faults:
            raise ConfigurationError(faults, "devices")
        return self._issue(new), kept

    def rotate(self, device_ids: Sequence[str], overlap_s: float) -> list[EnrollmentAnswer]:
        """Another token for each of these devices; the old ones are good for a while, until the new one is used.

        Raises:
            ConfigurationError: one of them has no valid token, or files cannot be used; nothing was issued.
        """
        missing = set(device_ids) - set(self._with_token(device_ids))
        if missing:
            faults = [f"{each} has no valid token: see device-gateway devices add" for each in sorted(missing)]
            raise ConfigurationError(faults, "rotate")
        return self._issue(device_ids, overlap_s, replace=True)

    def folder_of(self, device_id: str) -> Path | None:
        """Where the files of a device are written."""
        return self.folder / topics.user_name(device_id) if self.folder and self.several else self.folder

    def _with_token(self, device_ids: Iterable[str]) -> list[str]:
        return with_tokens(self.state_dir, lambda tokens: [each for each in device_ids if tokens.serves(each)])

    def _issue(
        self, device_ids: Sequence[str], overlap_s: float = 0.0, *, replace: bool = False
    ) -> list[EnrollmentAnswer]:
        """Make tokens, and write the files of each device; what can be refused is refused before one is issued."""
        new = {device_id: make_token(self.randomness) for device_id in device_ids}
        handed = [self.access.handed(device_id, made.token, None) for device_id, made in new.items()]
        files = [
            (folder, gateway_configuration(each, self.device_dir), each)
            for each in handed
            if (folder := self.folder_of(each.device_id)) is not None
        ]
        for folder, _text, _each in files:
            _as_owner(partial(_check_folder, folder, replace=replace), folder)
        if new:
            with_tokens(self.state_dir, lambda tokens: tokens.issue(new, overlap_s))
        for folder, text, each in files:
            _as_owner(partial(_write_files, folder, text, each), folder)
        return handed


def _as_owner(do: Callable[[], None], folder: Path) -> None:
    """Write with the identity of whom the folder belongs to.

    Raises:
        ConfigurationError: it cannot be written.
    """
    try:
        as_owner_of(folder, do)
    except OSError as error:
        fault = f"{error.filename} cannot be written: {error.strerror}; mend it, or give another --config-out"
        raise ConfigurationError([fault], "config-out") from None


def _write_files(folder: Path, configuration: str, handed: EnrollmentAnswer) -> None:
    replace_file(folder / TOKEN, handed.token.reveal() + "\n", 0o600)
    replace_file(folder / CONFIGURATION, configuration, 0o644)
    if handed.authority is not None:
        replace_file(folder / AUTHORITY, handed.authority, 0o644)


def _check_folder(folder: Path, *, replace: bool) -> None:
    """Make sure of a folder before there is a token to put there.

    Raises:
        ConfigurationError: it holds a configuration already.
        OSError: it cannot be written.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not replace and (folder / CONFIGURATION).exists():
        fault = f"{folder / CONFIGURATION} is there already, and a device has a folder of its own"
        raise ConfigurationError([f"{fault}: give another --config-out"], "config-out")
