"""Tokens go out: for devices that are added, and for those whose token is rotated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import httpx

from agent.app.gateway_configuration import AUTHORITY
from agent.app.version import VERSION
from agent.config.credentials import Credentials
from agent.config.model import ServiceConfig
from agent.config.section import is_this_machine
from agent.errors import ConfigurationError, ServiceError
from agent.process.identity import as_owner_of
from agent.wire import topics
from agent.wire.address import authority as authority_of
from agent.wire.auth import KeyPair
from agent.wire.network import open_transport
from agent.wire.registration import RegistrationClient
from agent.wire.trust import service_trust
from gateway.config import GatewayConfig
from gateway.devices.adding import Found, Registrar, RequestedDevice, issue_tokens, one_line, with_valid_token
from gateway.devices.handout import GatewayAccess, Handout, check_place, write_handout
from gateway.devices.tokens import Randomness


@dataclass(frozen=True, slots=True)
class Place:
    """The folder for the devices' files.

    Attributes:
        directory: of one device's share; with several devices it has a folder for each.
        device_dir: where the files will lie on the device.
        several: whether each device gets a folder of its own, named by its id as one path segment.
    """

    directory: Path
    device_dir: Path
    several: bool = False

    def of(self, device_id: str) -> Path:
        """The folder of one device."""
        return self.directory / topics.user_name(device_id) if self.several else self.directory


@dataclass(frozen=True, slots=True)
class Issued:
    """A token that has just been made.

    Attributes:
        handout: what the device gets.
        registered: the device was registered on the way.
        lines: what was written for it.
    """

    handout: Handout
    registered: bool = False
    lines: tuple[str, ...] = ()


@dataclass(slots=True)
class AddedDevices:
    """The result for each of the devices that were asked for.

    Attributes:
        kept: ids that had a valid token already, which stays.
        failed: one sentence for each device that got none.
    """

    issued: list[Issued] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Issuer:
    """Issues device tokens, and the files that a device needs with one.

    Attributes:
        tokens: the file of the tokens.
        reach: how devices reach the gateway.
        place: where their shares are written; None writes none.
        randomness: such as :func:`secrets.token_bytes`.
        wall: epoch seconds.
    """

    tokens: Path
    reach: GatewayAccess
    place: Place | None
    randomness: Randomness
    wall: Callable[[], float]

    def add(self, wanted: Sequence[RequestedDevice], registrar: Registrar | None, *, check: bool) -> AddedDevices:
        """A token for each device that has none.

        Args:
            wanted: the devices.
            registrar: registers and checks at the service; None where nothing is to be asked.
            check: ask the service whether it knows the devices that were given by their id.

        Raises:
            ConfigurationError: the service does not know some of them, or files cannot be used; nothing was issued.
            ServiceError: it could not be asked; nothing was issued.
        """
        added = AddedDevices()
        ids = [each.device_id for each in wanted if each.device_id is not None]
        added.kept += sorted(with_valid_token(self.tokens, ids, self.wall()))
        if check and registrar is not None:
            self._refuse_unknown(wanted, registrar, set(added.kept))
        found = self._find(wanted, registrar, added)
        return self._issue(found, added, replace=False)

    def rotate(self, device_ids: Sequence[str], overlap_s: float) -> AddedDevices:
        """Another token for each of these devices; the old ones are good for a while, until the new one is used.

        Raises:
            ConfigurationError: one of them has no valid token, or files cannot be used; nothing was issued.
        """
        valid = with_valid_token(self.tokens, device_ids, self.wall())
        faults = [
            f"{each} has no valid token: give it one with device-gateway devices add --device-id {each}"
            for each in device_ids
            if each not in valid
        ]
        if faults:
            raise ConfigurationError(faults, "rotate")
        found = {device_id: (Found(device_id), False) for device_id in device_ids}
        return self._issue(found, AddedDevices(), replace=True, overlap_s=overlap_s)

    def _refuse_unknown(self, wanted: Sequence[RequestedDevice], registrar: Registrar, kept: set[str]) -> None:
        asked = {each.device_id: each for each in wanted if each.device_id is not None and each.device_id not in kept}
        unknown = registrar.unknown(list(asked)) if asked else []
        if unknown:
            fix = "the service does not know this device: register it first, or mend the id (--no-check asks nobody)"
            raise ConfigurationError([f"{asked[device_id]}: {fix}" for device_id in unknown], "devices")

    def _find(
        self, wanted: Sequence[RequestedDevice], registrar: Registrar | None, added: AddedDevices
    ) -> dict[str, tuple[Found, bool]]:
        found: dict[str, tuple[Found, bool]] = {}
        for each in wanted:
            if each.device_id is not None:
                if each.device_id not in added.kept:
                    found[each.device_id] = (Found(each.device_id), False)
                continue
            if each.registration is None or registrar is None:
                continue
            try:
                device = registrar.register(each.registration)
            except (ServiceError, ConfigurationError) as error:
                added.failed.append(f"{each}: {one_line(error)}")
            else:
                found[device.device_id] = (device, True)
        registered = [device_id for device_id, (_, is_new) in found.items() if is_new]
        for device_id in sorted(with_valid_token(self.tokens, registered, self.wall())):
            added.kept.append(device_id)
            del found[device_id]
        return found

    def _issue(
        self, found: dict[str, tuple[Found, bool]], added: AddedDevices, *, replace: bool, overlap_s: float = 0.0
    ) -> AddedDevices:
        if self.place is not None:
            for device_id in found:
                as_owner_of(self.place.directory, partial(check_place, self.place.of(device_id), replace=replace))
        if not found:
            return added
        tokens = issue_tokens(self.tokens, found, self.randomness, self.wall(), overlap_s)
        device_dir = Path("/etc/device-agent") if self.place is None else self.place.device_dir
        for device_id, (device, registered) in found.items():
            handout = Handout(device_id, tokens[device_id].token, self.reach, device.product_id, device_dir)
            lines: list[str] = []
            if self.place is not None:
                lines = as_owner_of(self.place.directory, partial(write_handout, handout, self.place.of(device_id)))
            added.issued.append(Issued(handout, registered, tuple(lines)))
        return added


def gateway_access(
    config: GatewayConfig, url: str | None, broker: str | None, authority: Path | None, *, plain: bool, needed: bool
) -> GatewayAccess:
    """How devices reach the gateway, out of what was given and what the configuration says.

    Args:
        config: the gateway's.
        url: as given; without it the front's own address counts where it is loopback.
        broker: as given.
        authority: as given; without it the ``ca.pem`` beside the front's certificate or the one the gateway trusts.
        plain: no TLS.
        needed: an address is about to be shown or sent.

    Raises:
        ConfigurationError: it is needed and not known, or the authority's file is missing.
    """
    http = config.http
    if url is None and broker is None and http.enabled and is_this_machine(http.host):
        url = f"{'http' if http.certificate is None else 'https'}://{authority_of(http.host, http.port)}"
    if needed and url is None and broker is None:
        text = "devices need the address of the gateway: give --url https://HOST:PORT, or --broker HOST:PORT"
        raise ConfigurationError([text], "address")
    if authority is None and http.certificate is not None:
        beside = http.certificate.parent / AUTHORITY
        authority = beside if beside.is_file() else None
    if authority is None and broker is not None and not plain:
        authority = config.mqtt.ca_file
    if authority is not None and not authority.is_file():
        raise ConfigurationError([f"{authority}: there is no such file; name the authority's PEM file"], "--ca")
    return GatewayAccess(url, broker, authority, plain)


def service_client(service: ServiceConfig, credentials: Credentials) -> RegistrationClient:
    """A client with the key pair, for a command.

    Raises:
        ConfigurationError: the address, the keys or the certificate file cannot be used.
    """
    trust = service_trust(service.ca_file) if service.base_url.startswith("https:") else None
    return RegistrationClient(
        service.base_url,
        KeyPair(credentials.api_key, credentials.secret),
        timeout_s=service.timeout_s,
        max_answer_bytes=service.max_answer_bytes,
        transport=open_transport(trust, httpx.Limits()),
        user_agent=f"device-gateway/{VERSION}",
    )
