"""Devices get their tokens: one or many, known to the service already or registered there on the way."""

from __future__ import annotations

import csv
import io
import os
import re
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import httpx
from pydantic import ValidationError

from agent.adapters.files import replace_file
from agent.app.gateway_configuration import AUTHORITY, CONFIGURATION, TOKEN, GatewayAddress, gateway_configuration
from agent.app.version import VERSION
from agent.config.credentials import Credentials
from agent.config.model import ServiceConfig
from agent.config.section import is_this_machine
from agent.errors import ConfigurationError, NotFound, RateLimited, ServiceError
from agent.process.identity import as_owner_of
from agent.wire import topics
from agent.wire.address import authority as authority_of
from agent.wire.auth import KeyPair
from agent.wire.base import describe_faults
from agent.wire.enrollment import EnrollmentAnswer
from agent.wire.extensions import COMMAND_STATUS
from agent.wire.network import open_transport
from agent.wire.registration import RegisterDevice, RegistrationClient
from agent.wire.secret import Secret
from agent.wire.sending import SendingClient
from agent.wire.trust import service_trust
from gateway.config import GatewayConfig
from gateway.tokens import Randomness, id_fault, make_token, with_tokens

Value = TypeVar("Value")

BROKER_MARK: Final = "broker-wanted"
"""A file that says that the broker lacks the newest tokens; ``device-gateway-broker.path`` waits for it."""
_COLUMNS: Final = frozenset({"device_id", "product_id", "identifier", "name", "user_id"})
_IDS: Final = ("device_id", "product_id", "identifier")
_ASK_ONE_BY_ONE: Final = 20
_PATIENCE: Final = 20

_SPOILED: Final = (
    (r"#+|#[A-ZÀ-Ý]+(/[A-Z0]+)?[!?]?", "what a spreadsheet shows in place of a value"),
    (r"=.*", "a formula: export its value, from a column that is formatted as text"),
    (r"['\u2019].*", "guarded by an apostrophe, as spreadsheets mark text: take it away"),
    (
        r"(?i)[+-]?[0-9]([.,][0-9]+)?E\+[0-9]{2,3}|[+-]?[0-9][.,][0-9]+E-?[0-9]{1,3}",
        "a number in scientific notation, as spreadsheets shorten it: format the column as text and fill it anew",
    ),
    (
        r"[0-9]{5,}[.,]0{1,3}|[0-9]{1,3}(([,'\u2019][0-9]{3}){2,}|(\.[0-9]{3}){4,})([.,]0+)?",
        "a number that was formatted: format the column as text and fill it anew",
    ),
    (
        r"[0-9]{15}000+",
        "a number that a spreadsheet has rounded to 15 digits: format the column as text and fill it anew",
    ),
    (r"[0-9]{1,2}([./])[0-9]{1,2}\1(19|20)[0-9]{2}", "a date: format the column as text and fill it anew"),
    (r".*\ufffd.*", "a text that has lost a character: export the table again, as CSV UTF-8"),
)


def spoiled(value: str) -> str | None:
    """Why this is no identifier but what a spreadsheet made of one; None when it may be one."""
    return next((why for pattern, why in _SPOILED if re.fullmatch(pattern, value)), None)


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


# --- which devices ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WantedDevice:
    """A device that shall have a token: known to the service by its id, or to be registered.

    Attributes:
        where: how a message names it: ``line 3``, or empty.
    """

    where: str = ""
    device_id: str | None = None
    registration: RegisterDevice | None = None

    def __str__(self) -> str:
        name = self.device_id or (self.registration.device_identifier if self.registration else "")
        return f"{self.where}: {name}" if self.where else name


def wanted_device(where: str = "", **given: str | None) -> WantedDevice:
    """The device of these options or of this row.

    Args:
        where: how a message names it.
        given: ``device_id``, or ``product_id``, ``identifier``, ``user_id`` and maybe ``name``.

    Raises:
        ConfigurationError: neither a device id nor all that a registration needs, or both; or an id that may not be.
    """
    device_id = given.pop("device_id", None)
    others = ", ".join(field for field, value in given.items() if value)
    if not device_id:
        product_id, identifier, user_id, name = map(given.get, ("product_id", "identifier", "user_id", "name"))
        asked = checked_registration(product_id, identifier, user_id, name, where or "device")
        return WantedDevice(where, None, asked)
    fault = id_fault(device_id)
    if others:
        fault = f"give either device_id, or what to register it by; device_id and {others} are both here"
    if fault is not None:
        raise ConfigurationError([fault], where or "device")
    return WantedDevice(where, device_id)


def checked_registration(
    product_id: str | None, identifier: str | None, user_id: str | None, name: str | None, source: str
) -> RegisterDevice:
    """A registration at the service, with all that it needs.

    Raises:
        ConfigurationError: something is missing, or may not be.
    """
    given = {"product_id": product_id, "identifier": identifier, "user_id": user_id}
    missing = ", ".join(field for field, value in given.items() if not value)
    if missing:
        text = f"{missing} is missing: give device_id, or product_id, identifier and user_id to register it"
        raise ConfigurationError([text], source)
    try:
        return RegisterDevice(
            user_id=user_id or "",
            product_id=product_id or "",
            device_identifier=identifier or "",
            device_name=name or None,
        )
    except ValidationError as error:
        raise ConfigurationError([describe_faults(error)], source) from None


def read_csv(path: Path) -> list[WantedDevice]:
    """The devices of a CSV file with a line of names: ``device_id``, or ``product_id,identifier,name,user_id``.

    Raises:
        ConfigurationError: every row that cannot be used, by its line; nothing is done then.
    """
    try:
        raw = path.read_bytes()
        rows = csv.DictReader(io.StringIO(raw.decode("utf-8-sig"), newline=""))
        names = [(name or "").strip() for name in rows.fieldnames or []]
        unknown = sorted(set(names) - _COLUMNS)
        if unknown or not names:
            fault = f"line 1: {', '.join(unknown) or 'nothing'} is no column; known are {', '.join(sorted(_COLUMNS))}"
            raise ConfigurationError([fault], str(path))
        rows.fieldnames = names
        wanted, faults = _read_rows(rows)
    except OSError as error:
        raise ConfigurationError([f"cannot be read: {error.strerror}"], str(path)) from None
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ConfigurationError([f"line {line} is not UTF-8 text; save the file as UTF-8"], str(path)) from None
    except csv.Error as error:
        raise ConfigurationError([f"line {rows.line_num}: this is no CSV: {error}"], str(path)) from None
    if not wanted and not faults:
        faults.append("there is no device in it: one line for each, below the line of names")
    if faults:
        raise ConfigurationError(faults, str(path))
    return wanted


def _read_rows(rows: csv.DictReader[str]) -> tuple[list[WantedDevice], list[str]]:
    wanted: list[WantedDevice] = []
    faults: list[str] = []
    seen: dict[tuple[str, ...], str] = {}
    for row in rows:
        where = f"line {rows.line_num}"
        if None in row:
            faults.append(f"{where}: there are more values than names in line 1")
            continue
        values = {name: (value or "").strip() for name, value in row.items()}
        odd = [f"{where}: {each} {values[each]!r} is {why}" for each in _IDS if (why := spoiled(values.get(each, "")))]
        try:
            device = None if odd else wanted_device(where, **values)
        except ConfigurationError as error:
            odd, device = [f"{where}: {fault}" for fault in error.faults], None
        if device is not None:
            first = seen.setdefault(tuple(values.get(each, "") for each in _IDS), where)
            odd = [] if first == where else [f"{device}: the same device is in {first} already"]
            wanted.append(device)
        faults += odd
    return wanted, faults


# --- asking the service -----------------------------------------------------------------------------------------------


def service_client(
    service: ServiceConfig, credentials: Credentials, transport: httpx.BaseTransport | None = None
) -> SendingClient:
    """A client with the key pair, for a command.

    Args:
        service: where.
        credentials: the key pair.
        transport: the network; None opens one.

    Raises:
        ConfigurationError: the address, the keys or the certificate file cannot be used.
    """
    trust = service_trust(service.ca_file) if service.base_url.startswith("https:") else None
    return SendingClient(
        service.base_url,
        KeyPair(credentials.api_key, credentials.secret),
        timeout_s=service.timeout_s,
        max_answer_bytes=service.max_answer_bytes,
        transport=transport or open_transport(trust, httpx.Limits()),
        user_agent=f"device-gateway/{VERSION}",
        reading=service.dialect.dialect().reading,
    )


def with_retries(ask: Callable[[], Value], sleep: Callable[[float], None] = time.sleep) -> Value:
    """Ask, and while the quota is used up wait and ask again; for a command that a person has typed."""
    for _ in range(_PATIENCE):
        try:
            return ask()
        except RateLimited as error:
            sleep(min(error.retry_after_s or 10.0, 60.0))
    return ask()


def unknown_devices(client: RegistrationClient, device_ids: Collection[str]) -> list[str]:
    """Those of these devices that the service does not know.

    Raises:
        ServiceError: it could not be asked.
    """
    # A service that does not say which commands are open may hand one out with a list, and only once.
    if len(device_ids) > _ASK_ONE_BY_ONE or COMMAND_STATUS not in with_retries(client.discover):
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
class Issued:
    """A token that has just been made, at the only moment when it is known.

    Attributes:
        handed: what its device needs.
        registered: the device was registered on the way.
        lines: what was written for it.
    """

    handed: EnrollmentAnswer
    registered: bool = False
    lines: tuple[str, ...] = ()


@dataclass(slots=True)
class AddedDevices:
    """The result of adding devices.

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
    folder: Path | None = None
    several: bool = False
    device_dir: Path = Path("/etc/device-agent")

    def add(self, wanted: Sequence[WantedDevice], client: RegistrationClient | None, *, check: bool) -> AddedDevices:
        """A token for each device that has none.

        Args:
            wanted: the devices.
            client: registers and checks at the service; None where nothing is to be asked.
            check: ask the service whether it knows the devices that were given by their id.

        Raises:
            ConfigurationError: the service does not know some of them, or files cannot be used; nothing was issued.
            ServiceError: it could not be asked; nothing was issued.
        """
        by_id = {each.device_id: each for each in wanted if each.device_id is not None}
        added = AddedDevices(kept=self._with_token(by_id))
        products: dict[str, str | None] = {each: None for each in by_id if each not in added.kept}
        if check and client is not None and products:
            fix = "the service does not know this device: register it first, or mend the id (--no-check asks nobody)"
            unknown = [f"{by_id[device_id]}: {fix}" for device_id in unknown_devices(client, products)]
            if unknown:
                raise ConfigurationError(unknown, "devices")
        registered: dict[str, str | None] = {}
        for each in wanted:
            if each.registration is None or client is None:
                continue
            try:
                registered[_register(client, each.registration)] = each.registration.product_id
            except (ServiceError, ConfigurationError) as error:
                reason = "; ".join(error.faults) if isinstance(error, ConfigurationError) else str(error)
                added.failed.append(f"{each}: {reason}")
        had_one = self._with_token(registered)
        added.kept += had_one
        products |= {each: product_id for each, product_id in registered.items() if each not in had_one}
        added.issued = self._issue(products, registered)
        return added

    def rotate(self, device_ids: Sequence[str], overlap_s: float) -> AddedDevices:
        """Another token for each of these devices; the old ones are good for a while, until the new one is used.

        Raises:
            ConfigurationError: one of them has no valid token, or files cannot be used; nothing was issued.
        """
        valid = set(self._with_token(device_ids))
        faults = [
            f"{each} has no valid token: give it one with device-gateway devices add --device-id {each}"
            for each in device_ids
            if each not in valid
        ]
        if faults:
            raise ConfigurationError(faults, "rotate")
        return AddedDevices(self._issue(dict.fromkeys(device_ids), (), overlap_s, replace=True))

    def _with_token(self, device_ids: Iterable[str]) -> list[str]:
        return with_tokens(self.state_dir, lambda tokens: [each for each in device_ids if tokens.serves(each)])

    def _issue(
        self,
        products: dict[str, str | None],
        registered: Collection[str],
        overlap_s: float = 0.0,
        *,
        replace: bool = False,
    ) -> list[Issued]:
        """Write tokens and files for these devices; device id -> product, where it is known."""
        access = self.access
        address = GatewayAddress(access.url, access.broker, access.plain, has_authority=access.authority is not None)
        texts: dict[str, str] = {}
        for device_id, product_id in products.items() if self.folder is not None else ():
            texts[device_id] = gateway_configuration(device_id, address, self.device_dir, product_id)
            self._as_owner(partial(_check_folder, self._folder_of(device_id), replace=replace))
        new = {device_id: make_token(self.randomness) for device_id in products}
        if new:
            with_tokens(self.state_dir, lambda tokens: tokens.issue(new, overlap_s))
        issued = []
        for device_id, product_id in products.items():
            handed = access.handed(device_id, new[device_id].token, product_id)
            lines = () if self.folder is None else self._write(handed, texts[device_id])
            issued.append(Issued(handed, device_id in registered, lines))
        return issued

    def _as_owner(self, do: Callable[[], None]) -> None:
        """Write with the identity of whom the folder belongs to.

        Raises:
            ConfigurationError: it cannot be written.
        """
        try:
            as_owner_of(self._folder_of(""), do)
        except OSError as error:
            fault = f"{error.filename} cannot be written: {error.strerror}; mend it, or give another --config-out"
            raise ConfigurationError([fault], "config-out") from None

    def _folder_of(self, device_id: str) -> Path:
        folder = self.folder or Path()
        return folder / topics.user_name(device_id) if device_id and self.several else folder

    def _write(self, handed: EnrollmentAnswer, text: str) -> tuple[str, ...]:
        folder = self._folder_of(handed.device_id)
        files = [(folder / TOKEN, handed.token.reveal() + "\n", 0o600), (folder / CONFIGURATION, text, 0o644)]
        if handed.authority is not None:
            files.append((folder / AUTHORITY, handed.authority, 0o644))

        def write() -> None:
            for path, content, mode in files:
                replace_file(path, content, mode)

        self._as_owner(write)
        lines = [f"wrote {path}{' (mode 600)' if mode == 0o600 else ''}" for path, _, mode in files]
        return (*lines, f"next: bring them to {self.device_dir} on the device, owned by the agent's user")


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


def _register(client: RegistrationClient, registration: RegisterDevice) -> str:
    device_id = with_retries(lambda: client.register_device(registration)).device_id
    fault = id_fault(device_id) if device_id else "the service did not return its id"
    if fault is not None:
        raise ConfigurationError([fault], "registration")
    return device_id
