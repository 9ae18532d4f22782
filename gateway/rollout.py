"""A command for many devices in waves: the next wave follows once the one before has done well.

One SQLite file holds the plan and what has become of each device's command. A device is noted as ``sending`` before its
command goes out and as ``sent`` after the answer, so that a process which is killed at any moment leaves one device of
which it is not certain. Where the service takes idempotency keys, that command is sent again under the same key, which
stores it once. Where it does not, the device is not sent a second one and counts as silent.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import sqlite3
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any, Final, Self, TypeVar

import httpx

from agent.config.credentials import Credentials
from agent.config.model import ServiceConfig
from agent.errors import Advice, ConfigurationError, NotFound, RateLimited, ServiceError
from agent.wire.base import JsonObject
from agent.wire.client import AddressTransport
from agent.wire.limits import IDEMPOTENCY_S
from agent.wire.models import FINAL_STATES, RESULT_STATES, CommandStatus
from agent.wire.network import service_trust
from agent.wire.server import COMMAND_RESULTS, COMMAND_STATUS, LIST_PARAMETERS, CommandLists, Dialect, ResultPlace
from gateway.client import OperatorClient, SendCommand
from gateway.devices import service_client, unknown_devices, with_retries
from gateway.quota import Kind, Quota
from gateway.tokens import open_db, transaction

Value = TypeVar("Value")

GIVE_UP_S: Final = 600.0
"""So long a service that does not answer is asked again."""
_PAUSE_S, _PAUSE_MAX_S = 1.0, 30.0
_LOOK_S, _LOOK_MAX_S = 1.0, 30.0
_TABLE_EVERY_S: Final = 10.0
_KEY_GOOD_S: Final = IDEMPOTENCY_S - 3600.0  # not in the last hour in which the service still knows a key
_REASON_CHARACTERS: Final = 200
_UNCLEAR: Final = "whether it was sent is not known, so it is not sent again"
_NO_ID: Final = "the service's answer names no command id, so its result cannot be found"
_PERCENT: Final = re.compile(r"(\d{1,3}(?:\.\d{1,3})?)\s*%")

_VERSION: Final = 4
_DEVICES: Final = """
CREATE TABLE device (device_id TEXT NOT NULL UNIQUE, wave INTEGER NOT NULL, state TEXT NOT NULL, command_id TEXT,
    sending_at REAL, sent_at REAL, reason TEXT)
"""


class DeviceState(StrEnum):
    """What has become of the command of one device."""

    PLANNED = "planned"
    SENDING = "sending"
    """After a crash nobody can say whether the service has it."""
    SENT = "sent"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    """The device failed at it or rejected it, or the service refused it."""
    SILENT = "silent"
    """No result will come: it expired, or whether it was sent cannot be found out."""


# --- the waves --------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Plan:
    """What is decided when a rollout begins; when it stops may be decided anew.

    Attributes:
        rollout_id: random; the commands' idempotency keys are made of it.
        base_url: of the service.
        ttl_s: how long a command waits for its device, seconds; None leaves it to the service.
        max_failed: it stops when more than this share of a wave's devices fails, 0 to 1.
        max_silent: the same for those that give no result.
        timeout_s: how long a wave's results are waited for after its last command was sent, seconds.
    """

    rollout_id: str
    name: str
    base_url: str
    command_payload: JsonObject
    ttl_s: int | None
    max_failed: float
    max_silent: float
    timeout_s: float


def read_share(text: str) -> float:
    """A share such as ``5%`` as a number from 0 to 1.

    Raises:
        ConfigurationError: it is none.
    """
    found = _PERCENT.fullmatch(text.strip())
    if found is None or float(found[1]) > 100:
        raise ConfigurationError([f"{text!r} is no share: write 0% to 100%"], "rollout")
    return float(found[1]) / 100


def wave_sizes(text: str, devices: int) -> list[int]:
    """How many devices each wave has, of ``1,5%,25%,all``: each entry says how many have the command after its wave.

    A wave that would have no device of its own is left out.

    Raises:
        ConfigurationError: an entry is none, they do not ascend, or the last one is not all.
    """
    entries = [entry.strip().lower() for entry in text.split(",")]
    if entries[-1] not in {"all", "100%"}:
        fault = f"--waves {text!r}: the last one must be 'all', or some devices get nothing"
        raise ConfigurationError([fault], "rollout")
    sizes: list[int] = []
    before = {True: 0.0, False: 0.0}  # numbers and shares ascend each by themselves
    for entry in entries:
        if entry == "all":
            wanted = float(devices)
        elif _PERCENT.fullmatch(entry):
            wanted = read_share(entry) * devices
        elif entry.isascii() and entry.isdigit() and int(entry) > 0:
            wanted = float(entry)
        else:
            fault = f"--waves: {entry!r} is none: write a number of devices, a share such as 5%, or all"
            raise ConfigurationError([fault], "rollout")
        if wanted < before[entry.isdigit()]:
            raise ConfigurationError([f"--waves {text!r}: {entry} is less than an entry before it"], "rollout")
        before[entry.isdigit()] = wanted
        more = min(devices, math.ceil(wanted)) - sum(sizes)
        sizes += [more] if more > 0 else []
    return sizes


def in_waves(name: str, device_ids: Iterable[str], waves: str) -> list[list[str]]:
    """The devices of each wave, in an order that is the same for one name and another for the next.

    So the first wave is not always the same devices, and a list sorted by place or age is spread over all waves.

    Raises:
        ConfigurationError: see :func:`wave_sizes`.
    """
    ordered = sorted(set(device_ids), key=lambda each: hashlib.sha256(f"{name}\0{each}".encode()).digest())
    left = iter(ordered)
    return [[next(left) for _ in range(size)] for size in wave_sizes(waves, len(ordered))]


def stop_reason(wave: int, counts: Counter[str], plan: Plan, *, is_over: bool) -> str | None:
    """Why the rollout stops in this wave: one sentence; None while it may go on.

    Args:
        wave: its number, from 1.
        counts: its devices by state.
        plan: says how many may fail.
        is_over: no more results are waited for, so that a device without one counts as silent.
    """
    silent = counts[DeviceState.SILENT] + (counts[DeviceState.SENT] if is_over else 0)
    for count, share, what in (
        (counts[DeviceState.FAILED], plan.max_failed, "failed"),
        (silent, plan.max_silent, "gave no result"),
    ):
        if count > share * counts.total():
            part = 100 * count / counts.total()
            which = f"{count} of the {counts.total()} device(s) of wave {wave} {what}"
            return f"{which} ({part:.3g} %), and {100 * share:.3g} % may"
    return None


# --- the state file ---------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Row:
    """One device of the rollout; times are epoch seconds.

    Attributes:
        wave: from 1.
        command_id: the service's; None before it has answered, or when it gave none.
        sending_at: when the command was first about to be sent.
        sent_at: when the service had taken it.
        reason: why it failed or is silent.
        look_at: when its result is looked for next; not kept.
    """

    device_id: str
    wave: int
    state: DeviceState
    command_id: str | None = None
    sending_at: float | None = None
    sent_at: float | None = None
    reason: str | None = None
    look_at: float = 0.0


class RolloutFile:
    """The state file, locked for as long as this process works on it. Every method may raise :class:`sqlite3.Error`.

    Args:
        path: of the file.
        begin: the plan, and the device ids of each wave; None opens the one that is there.

    Raises:
        ConfigurationError: there is none to open or one already, another process works on it, or it is none of ours.
    """

    def __init__(self, path: Path, begin: tuple[Plan, Sequence[Sequence[str]]] | None = None) -> None:
        if begin is None and not path.is_file():
            fix = "compare --name; a rollout that was never begun is begun without --resume"
            raise ConfigurationError([f"there is no rollout to resume: {path} does not exist; {fix}"], "rollout")
        with suppress(OSError):  # opening the file says it better
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._connection = open_db(path, partial(_lock, begin=begin), "rollout", busy_s=0.0)
        [kept] = self._connection.execute("SELECT plan FROM rollout").fetchone()
        self.plan = Plan(**json.loads(kept))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the file back."""
        self._connection.close()

    def replan(self, **limits: float | None) -> None:
        """Go on with other limits: ``max_failed``, ``max_silent`` or ``timeout_s``; None leaves one as it is."""
        for name, value in limits.items():
            if value is not None:
                setattr(self.plan, name, value)
        self._connection.execute("UPDATE rollout SET plan = ?", (json.dumps(asdict(self.plan)),))

    def rows(self) -> list[Row]:
        """All devices, in the order of sending."""
        found = self._connection.execute("SELECT * FROM device ORDER BY rowid")
        return [Row(device_id, wave, DeviceState(state), *rest) for device_id, wave, state, *rest in found]

    def note(self, row: Row) -> None:
        """Write down what has become of a device's command."""
        self._connection.execute(
            "UPDATE device SET state = ?, command_id = ?, sending_at = ?, sent_at = ?, reason = ? WHERE device_id = ?",
            (row.state, row.command_id, row.sending_at, row.sent_at, row.reason, row.device_id),
        )


def _lock(connection: sqlite3.Connection, begin: tuple[Plan, Sequence[Sequence[str]]] | None) -> None:
    """Lock the file until it is closed, and fill a new one.

    Raises:
        ConfigurationError: why it cannot be used.
    """
    connection.execute("PRAGMA locking_mode=EXCLUSIVE")
    fault = ""
    with transaction(connection):
        version = int(connection.execute("PRAGMA user_version").fetchone()[0])
        if begin is not None and version == 0:  # also one whose begin was cut off
            plan, waves = begin
            connection.execute("CREATE TABLE rollout (plan TEXT NOT NULL)")
            connection.execute("INSERT INTO rollout VALUES (?)", (json.dumps(asdict(plan)),))
            connection.execute(_DEVICES)
            planned = [(each, wave) for wave, devices in enumerate(waves, 1) for each in devices]
            connection.executemany("INSERT INTO device (device_id, wave, state) VALUES (?, ?, 'planned')", planned)
            connection.execute(f"PRAGMA user_version={_VERSION}")
        elif begin is not None:
            fix = "--resume goes on with it; give another --name to begin a new one"
            fault = f"this rollout was begun already: {fix}"
        elif version == 0:
            fault = "its begin was cut off, so leave --resume out"
        elif version != _VERSION:
            fault = f"its version is {version}, and this program knows {_VERSION}"
    if fault:
        raise ConfigurationError([fault], "rollout")


# --- the service ------------------------------------------------------------------------------------------------------


class _Metered(httpx.BaseTransport):
    """Waits until half of the window's requests are left to the running gateway and others, before each request."""

    def __init__(self, network: httpx.BaseTransport) -> None:
        self._network = network
        self._quota = Quota(None, time.monotonic)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Make one request when the quota has room for it."""
        while wait_s := self._quota.wait_s(Kind.POLLS):
            time.sleep(min(wait_s, 5.0))
        with self._quota.request(Kind.POLLS):
            response = self._network.handle_request(request)
            self._quota.answered(response.status_code, response.headers)
            return response

    def close(self) -> None:
        """Give the connections back."""
        self._network.close()


def rollout_client(service: ServiceConfig, credentials: Credentials) -> OperatorClient:
    """A client that leaves a running gateway its part of the key's quota.

    Raises:
        ConfigurationError: the address, the keys or the certificate file cannot be used.
    """
    trust = service_trust(service.ca_file) if service.base_url.startswith("https:") else None
    return service_client(service, credentials, _Metered(AddressTransport(trust, httpx.Limits())))


def check_devices(client: OperatorClient, device_ids: Sequence[str]) -> None:
    """Ask whether the service knows these devices.

    Raises:
        ConfigurationError: it does not know some of them.
        ServiceError: it could not be asked.
    """
    fix = "mend the id, or leave it out"
    unknown = unknown_devices(client, device_ids)
    if unknown:
        raise ConfigurationError([f"the service does not know the device {each}: {fix}" for each in unknown], "rollout")


def devices_of_product(client: OperatorClient, offers: frozenset[str], product_id: str) -> list[str]:
    """All devices of a product.

    Raises:
        ConfigurationError: there are none, or the service does not say of each device which product it is of.
        ServiceError: it could not be asked.
    """
    filtered = product_id if LIST_PARAMETERS in offers else None
    try:
        found = with_retries(lambda: list(client.devices(product_id=filtered)))
    except NotFound:
        found = []
    unsaid = [each.device_id for each in found if each.product_id is None]
    mine = [each.device_id for each in found if each.device_id and each.product_id == product_id]
    fault = "" if mine else f"the product {product_id} has no device: compare the id, or register devices first"
    if unsaid:
        fault = f"the service does not say which product {unsaid[0]} is of ({len(unsaid)} such): give --devices"
    if fault:
        raise ConfigurationError([fault], "rollout")
    return mine


class Results:
    """The ends of commands, read where this service keeps results: in each device's list, or in a table.

    Args:
        client: for the requests.
        offers: the extensions of the service.
        dialect: what the configuration says of it.

    Raises:
        ConfigurationError: it shows them nowhere, so that no wave could be judged.
    """

    def __init__(self, client: OperatorClient, offers: frozenset[str], dialect: Dialect) -> None:
        place = dialect.results or (ResultPlace.ENDPOINT if COMMAND_RESULTS in offers else ResultPlace.TABLE)
        has_states = COMMAND_STATUS in offers or dialect.command_lists is CommandLists.EVERYTHING
        fault = ""
        if place is ResultPlace.NONE:
            fault = "service.dialect.results is none: without results no wave can be judged, so nothing was sent"
        elif place is ResultPlace.ENDPOINT and not has_states:
            fault = (
                "this service may hand a command out with the list that shows its result, so the list cannot be read "
                "here; if it lists all commands for ever, set service.dialect.command_lists to everything"
            )
        if fault:
            raise ConfigurationError([fault], "rollout")
        self._client = client
        self._table = dialect.results_table if place is ResultPlace.TABLE else None
        self._filter = self._table if LIST_PARAMETERS in offers else None
        self._read_at_s = -math.inf
        self._ends: dict[tuple[str | None, str], tuple[DeviceState, str | None]] = {}

    def end_of(self, row: Row) -> tuple[DeviceState, str | None] | None:
        """How this device's command has ended, and why not well; None while it has not.

        Raises:
            ServiceError: it could not be asked; ``NotFound`` when the service does not know the device.
        """
        if self._table is not None:
            if time.monotonic() - self._read_at_s >= _TABLE_EVERY_S:
                self._read_table(self._table)
            return self._ends.get((row.device_id, row.command_id or ""))
        listed = self._client.device_commands(row.device_id)
        for record in listed.records:
            if record.id == row.command_id:
                said = (record.result or {}).get("error") or (record.result or {}).get("message")
                return _end((record.status or "").lower(), record.error or record.status_reason or said)
        if listed.incomplete is not None:
            raise listed.incomplete
        return None

    def _read_table(self, table: str) -> None:
        for record in self._client.runtime_data(table_name=self._filter):
            payload = record.data_payload
            end = _end(str(payload.get("status")), payload.get("error"))
            if end is not None and record.table_name in {None, table}:
                self._ends[record.device_id, str(payload.get("command_id"))] = end
        self._read_at_s = time.monotonic()


def _end(status: str, reason: object) -> tuple[DeviceState, str | None] | None:
    if status not in FINAL_STATES:
        return None
    if status == CommandStatus.SUCCEEDED:
        return DeviceState.SUCCEEDED, None
    text = reason[:_REASON_CHARACTERS] if isinstance(reason, str) and reason else status
    return (DeviceState.FAILED if status in RESULT_STATES else DeviceState.SILENT), text


# --- under way --------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class Rollout:
    """Carries a rollout out, from wherever its state file says it is.

    Attributes:
        client: for the commands; it keeps to the quota by itself.
        results: where the results are read.
        show: called with the number of the present wave, its devices by state, and what holds it up; empty when
            nothing does.
        has_keys: the service takes idempotency keys.
    """

    file: RolloutFile
    client: OperatorClient
    results: Results
    show: Callable[[int, Counter[str], str], None]
    has_keys: bool
    _wave: int = 0
    _rows: list[Row] = field(default_factory=list)

    def run(self) -> str | None:
        """All waves, or those until one goes wrong: why it stopped, or None when all is done.

        Raises:
            ServiceError: the service takes the keys no more, or has not answered for ten minutes; to be resumed.
        """
        every = self.file.rows()
        for wave in range(1, every[-1].wave + 1):
            self._wave, self._rows = wave, [row for row in every if row.wave == wave]
            reason = self._roll_wave()
            if reason is not None:
                return reason
        return None

    def _roll_wave(self) -> str | None:
        """Send and look in turn, until the wave is over; why the rollout stops here, or None."""
        plan = self.file.plan
        unsent = [row for row in self._rows if row.state in {DeviceState.PLANNED, DeviceState.SENDING}]
        while True:
            self._tell("")
            reason = stop_reason(self._wave, self._counts(), plan, is_over=False)
            if reason is not None:
                return reason
            if unsent:
                self._send(unsent.pop(0))
            open_rows = [row for row in self._rows if row.state is DeviceState.SENT]
            if not unsent and not open_rows:
                return stop_reason(self._wave, self._counts(), plan, is_over=True)
            last_sent_s = max((row.sent_at or 0.0 for row in self._rows), default=0.0)
            is_over = not unsent and time.time() >= last_sent_s + plan.timeout_s
            due = [row for row in open_rows if is_over or row.look_at <= time.time()]
            for row in due[: 1 if unsent else None]:
                self._look(row)
            if is_over:
                return stop_reason(self._wave, self._counts(), plan, is_over=True)
            if not unsent and not due:
                time.sleep(_LOOK_S / 2)

    def _send(self, row: Row) -> None:
        is_repeat = row.state is DeviceState.SENDING
        if is_repeat and not (self.has_keys and time.time() - (row.sending_at or 0.0) < _KEY_GOOD_S):
            self._end(row, DeviceState.SILENT, _UNCLEAR)
            return
        plan = self.file.plan
        command = SendCommand(device_id=row.device_id, command_payload=plan.command_payload, ttl_seconds=plan.ttl_s)
        key = str(uuid.uuid5(uuid.UUID(plan.rollout_id), row.device_id)) if self.has_keys else None
        row.state, row.sending_at = DeviceState.SENDING, row.sending_at or time.time()
        self.file.note(row)
        try:
            sent = self._retried(lambda: self.client.send_command(command, idempotency_key=key), self.has_keys)
        except ServiceError as error:
            if error.advice is Advice.DROP:
                self._end(row, DeviceState.FAILED, str(error))
            elif error.advice is Advice.REAUTHENTICATE:
                row.state, row.sending_at = DeviceState.PLANNED, None
                self.file.note(row)
                raise
            elif self.has_keys:
                raise
            else:
                self._end(row, DeviceState.SILENT, f"{_UNCLEAR}: {error}")
            return
        if sent.id is None:
            self._end(row, DeviceState.SILENT, _NO_ID)
            return
        row.state, row.command_id, row.sent_at = DeviceState.SENT, sent.id, time.time()
        row.look_at = time.time() + _LOOK_S
        self.file.note(row)

    def _look(self, row: Row) -> None:
        """Note how the device's command has ended, or look again after a fifth of the time since it was sent."""
        try:
            end = self._retried(lambda: self.results.end_of(row), is_repeatable=True)
        except NotFound as error:
            end = DeviceState.FAILED, str(error)
        if end is not None:
            self._end(row, *end)
        row.look_at = time.time() + min(max((time.time() - (row.sent_at or 0.0)) / 5, _LOOK_S), _LOOK_MAX_S)

    def _end(self, row: Row, state: DeviceState, reason: str | None) -> None:
        row.state, row.reason = state, reason
        self.file.note(row)

    def _counts(self) -> Counter[str]:
        return Counter(row.state for row in self._rows)

    def _tell(self, note: str) -> None:
        self.show(self._wave, self._counts(), note)

    def _retried(self, ask: Callable[[], Value], is_repeatable: bool) -> Value:
        """Ask again while the service is away or its quota is used up, for ten minutes.

        Raises:
            ServiceError: it will not be otherwise by asking again, or must not be asked again.
        """
        began_s, pause_s = time.monotonic(), _PAUSE_S
        while True:
            try:
                return ask()
            except RateLimited as error:  # for whose end the client waits before its next request
                self._tell(f"the quota of the key is used up ({error})")
            except ServiceError as error:
                is_lasting = time.monotonic() - began_s >= GIVE_UP_S
                if error.advice is not Advice.RETRY or not is_repeatable or is_lasting:
                    raise
                self._tell(f"{error}; trying again in {pause_s:g} s")
                time.sleep(pause_s)
                pause_s = min(2 * pause_s, _PAUSE_MAX_S)


def summary(file: RolloutFile, ended: str, reason: str | None) -> dict[str, Any]:
    """How a rollout is, as JSON: each wave's devices by state, and each device."""
    rows = file.rows()
    waves = [
        {state.value: sum(row.wave == wave and row.state is state for row in rows) for state in DeviceState}
        for wave in sorted({row.wave for row in rows})
    ]
    names = ("device_id", "wave", "state", "command_id", "reason")
    devices = [{name: getattr(row, name) for name in names} for row in rows]
    return {"rollout": file.plan.name, "ended": ended, "reason": reason, "waves": waves, "devices": devices}
