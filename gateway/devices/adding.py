"""Devices get their tokens: one or many, known to the service already or registered there on the way."""

from __future__ import annotations

import csv
import io
import sqlite3
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from pydantic import ValidationError

from agent.errors import ConfigurationError, NotFound, RateLimited, ServiceError
from agent.process.identity import as_owner_of
from agent.wire.base import describe_faults
from agent.wire.extensions import COMMAND_STATUS
from agent.wire.registration import RegisterDevice, RegistrationClient
from gateway.devices.spreadsheets import spoiled
from gateway.devices.token_file import DeviceTokenFile, StoredToken
from gateway.devices.tokens import NewToken, Randomness, id_fault, make_token

Value = TypeVar("Value")

_CSV_BYTES: Final = 64 * 1024 * 1024
_COLUMNS: Final = frozenset({"device_id", "product_id", "identifier", "name", "user_id"})
_IDS: Final = ("device_id", "product_id", "identifier")
_ASK_ONE_BY_ONE: Final = 20
_PATIENCE: Final = 20


@dataclass(frozen=True, slots=True)
class RequestedDevice:
    """One device that shall have a token.

    Attributes:
        where: how a message names it: ``line 3``, or empty.
        device_id: its id at the service; None when it is to be registered.
        registration: what to register it by.
    """

    where: str = ""
    device_id: str | None = None
    registration: RegisterDevice | None = None

    def __str__(self) -> str:
        name = self.device_id or (self.registration.device_identifier if self.registration else "")
        return f"{self.where}: {name}" if self.where else name


@dataclass(frozen=True, slots=True)
class Found:
    """A device that the service knows."""

    device_id: str
    product_id: str | None = None


def wanted_device(
    *,
    device_id: str | None = None,
    product_id: str | None = None,
    identifier: str | None = None,
    name: str | None = None,
    user_id: str | None = None,
    where: str = "",
) -> RequestedDevice:
    """The request to add devices, checked.

    Raises:
        ConfigurationError: neither a device id nor all that a registration needs, or both; or an id that may not be.
    """
    label = {"product_id": product_id, "identifier": identifier, "user_id": user_id}
    given = [field for field, value in {**label, "name": name}.items() if value]
    if device_id:
        if given:
            text = f"give either device_id, or what to register it by; device_id and {', '.join(given)} are both here"
            raise ConfigurationError([text], where or "device")
        fault = id_fault(device_id)
        if fault is not None:
            raise ConfigurationError([fault], where or "device")
        return RequestedDevice(where, device_id)
    missing = [field for field, value in label.items() if not value]
    if missing:
        text = f"{', '.join(missing)} is missing: give device_id, or product_id, identifier and user_id to register it"
        raise ConfigurationError([text], where or "device")
    try:
        registration = RegisterDevice(
            user_id=user_id or "",
            product_id=product_id or "",
            device_identifier=identifier or "",
            device_name=name or None,
        )
    except ValidationError as error:
        raise ConfigurationError([describe_faults(error)], where or "device") from None
    return RequestedDevice(where, None, registration)


def read_csv(path: Path) -> list[RequestedDevice]:
    """The devices of a CSV file with a line of names: ``device_id``, or ``product_id,identifier,name,user_id``.

    Raises:
        ConfigurationError: every row that cannot be used, by its line; nothing is done then.
    """
    rows = csv.DictReader(io.StringIO(_text_of(path), newline=""))
    try:
        names = [(name or "").strip() for name in rows.fieldnames or []]
        unknown = sorted(set(names) - _COLUMNS)
        if unknown or not names:
            fault = f"line 1: {', '.join(unknown) or 'nothing'} is no column; known are {', '.join(sorted(_COLUMNS))}"
            raise ConfigurationError([fault], str(path))
        rows.fieldnames = names
        wanted, faults = _read_rows(rows)
    except csv.Error as error:
        raise ConfigurationError([f"line {rows.line_num}: this is no CSV: {error}"], str(path)) from None
    faults += _twice(wanted)
    if not wanted and not faults:
        faults.append("there is no device in it: one line for each, below the line of names")
    if faults:
        raise ConfigurationError(faults, str(path))
    return wanted


class Registrar:
    """Finds devices at the service, and registers new ones.

    Args:
        client: with the key pair.
        sleep: waits, when the quota is used up.
    """

    def __init__(self, client: RegistrationClient, sleep: Callable[[float], None] = time.sleep) -> None:
        self._client = client
        self._sleep = sleep

    def unknown(self, device_ids: Collection[str]) -> list[str]:
        """The devices that the service does not know.

        Raises:
            ServiceError: it could not be asked.
        """
        if len(device_ids) > _ASK_ONE_BY_ONE or not self._may_list_commands():
            known = self._with_retries(lambda: {device.device_id for device in self._client.devices(limit=None)})
            return [device_id for device_id in device_ids if device_id not in known]
        return [device_id for device_id in device_ids if not self._with_retries(partial(self._knows, device_id))]

    def register(self, registration: RegisterDevice) -> Found:
        """Register a device; the same registration again finds the same device.

        Raises:
            ServiceError: it was refused or could not be asked.
            ConfigurationError: the service gave it an id that may not have a token.
        """
        device = self._with_retries(lambda: self._client.register_device(registration))
        fault = "the service did not return its id" if not device.device_id else id_fault(device.device_id)
        if fault is not None:
            raise ConfigurationError([fault], "registration")
        return Found(device.device_id, registration.product_id)

    def _may_list_commands(self) -> bool:
        """The service says which of its commands are open; another one may hand a command out with a list and once."""
        return COMMAND_STATUS in self._with_retries(self._client.discover)

    def _knows(self, device_id: str) -> bool:
        try:
            self._client.device_commands(device_id)  # without a status it changes nothing
        except NotFound:
            return False
        return True

    def _with_retries(self, ask: Callable[[], Value]) -> Value:
        for _ in range(_PATIENCE):
            try:
                return ask()
            except RateLimited as error:
                self._sleep(min(error.retry_after_s or 10.0, 60.0))
        return ask()


def issue_tokens(
    path: Path, device_ids: Iterable[str], randomness: Randomness, now_s: float, overlap_s: float = 0.0
) -> dict[str, NewToken]:
    """A new token for each device, all of them or none; see :meth:`DeviceTokenFile.issue`.

    Raises:
        ConfigurationError: the file cannot be used.
    """
    new = {device_id: make_token(randomness) for device_id in device_ids}

    def issue() -> None:
        with open_tokens(path) as file:
            file.issue(new, now_s, overlap_s)

    as_owner_of(path, issue)
    return new


def with_valid_token(path: Path, device_ids: Sequence[str], now_s: float) -> set[str]:
    """The devices that have a valid token already.

    Raises:
        ConfigurationError: the file cannot be used.
    """

    def look() -> list[str]:
        with open_tokens(path) as file:
            return [each for each in device_ids if any(token.is_valid(now_s) for token in file.tokens(each))]

    return set(as_owner_of(path, look))


def all_tokens(path: Path) -> list[StoredToken]:
    """Every token that was ever issued, by device, oldest first.

    Raises:
        ConfigurationError: the file cannot be used.
    """
    with open_tokens(path) as file:
        return list(file.tokens())


def valid_devices(path: Path, now_s: float) -> list[str]:
    """The devices that have a valid token.

    Raises:
        ConfigurationError: the file cannot be used.
    """
    return as_owner_of(path, lambda: list(dict.fromkeys(t.device_id for t in all_tokens(path) if t.is_valid(now_s))))


@contextmanager
def open_tokens(path: Path) -> Iterator[DeviceTokenFile]:
    """The file of the tokens, for a command that has the identity of its owner.

    Raises:
        ConfigurationError: the file cannot be used.
    """
    with DeviceTokenFile(path) as file:
        try:
            yield file
        except sqlite3.Error as error:
            fault = f"{path} cannot be used: {error}; is its disk full, or another command at work?"
            raise ConfigurationError([fault], "device tokens") from None


def one_line(error: ServiceError | ConfigurationError) -> str:
    """The error of one device of many."""
    return "; ".join(error.faults) if isinstance(error, ConfigurationError) else str(error)


def _text_of(path: Path) -> str:
    try:
        with path.open("rb") as file:
            raw = file.read(_CSV_BYTES + 1)
        text = raw.decode("utf-8-sig")
    except OSError as error:
        raise ConfigurationError([f"cannot be read: {error.strerror}"], str(path)) from None
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ConfigurationError([f"line {line} is not UTF-8 text; save the file as UTF-8"], str(path)) from None
    if len(raw) > _CSV_BYTES:
        raise ConfigurationError([f"is larger than {_CSV_BYTES} bytes; is it the right file?"], str(path))
    return text


def _read_rows(rows: csv.DictReader[str]) -> tuple[list[RequestedDevice], list[str]]:
    wanted: list[RequestedDevice] = []
    faults: list[str] = []
    for row in rows:
        where = f"line {rows.line_num}"
        if None in row:
            faults.append(f"{where}: there are more values than names in line 1")
            continue
        values = {name: (value or "").strip() for name, value in row.items()}
        found = [
            f"{where}: {name} {values[name]!r} is {why}" for name in _IDS if (why := spoiled(values.get(name, "")))
        ]
        if found:
            faults += found
            continue
        try:
            wanted.append(wanted_device(**values, where=where))
        except ConfigurationError as error:
            faults += [f"{where}: {fault}" for fault in error.faults]
    return wanted, faults


def _twice(wanted: Sequence[RequestedDevice]) -> list[str]:
    seen: dict[tuple[str, ...], str] = {}
    faults: list[str] = []
    for each in wanted:
        label = each.registration
        name = (each.device_id,) if each.device_id else (label.product_id, label.device_identifier) if label else ()
        first = seen.setdefault(tuple(str(part) for part in name), each.where)
        if first != each.where:
            faults.append(f"{each}: the same device is in {first} already")
    return faults
