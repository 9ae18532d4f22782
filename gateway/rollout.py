"""``device-gateway rollout``: a command for many devices in waves, each after the one before has gone well.

One SQLite file holds the plan and what has become of each device's command. A device is noted as ``sending`` before its
command goes out and as ``sent`` after the answer. So when this process is killed, it is uncertain for one device at
most whether it was sent the command. Where the service takes idempotency keys, that command is sent again under the
same key, and is stored once. Where it does not, nothing is sent again, and the device counts as silent.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import signal
import sqlite3
import time
import uuid
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any, Final, Self

import click

from agent.cli.program import json_option, print_json
from agent.errors import (
    EXIT_CHECK_FAILED,
    EXIT_INTERRUPTED,
    Advice,
    ConfigurationError,
    InvalidMessage,
    NotFound,
    RateLimited,
    ServiceError,
)
from agent.text import bounded
from agent.wire.encoding import parse_object
from agent.wire.limits import COMMAND_PAYLOAD_BYTES, IDEMPOTENCY_S, TTL_MAX_S
from agent.wire.models import FINAL_STATES, RESULT_STATES, CommandStatus, JsonObject
from agent.wire.server import (
    COMMAND_RESULTS,
    COMMAND_STATUS,
    COMMAND_TTL,
    IDEMPOTENCY_KEY,
    CommandLists,
    Dialect,
    ResultPlace,
)
from gateway.client import OperatorClient, SendCommand
from gateway.config import GatewayConfig
from gateway.options import (
    complain,
    errors_end_it,
    extensions_of,
    gateway_config_option,
    load,
    print_rows,
    read_duration,
    read_lines,
    service_client,
)
from gateway.tokens import open_db, transaction

_LOOK_S, _LOOK_MAX_S = 1.0, 30.0
_TABLE_EVERY_S: Final = 10.0
_KEY_GOOD_S: Final = IDEMPOTENCY_S - 3600.0  # one hour less than the service remembers a key
_REASON_CHARACTERS: Final = 200
_FIRST_IDS: Final = 3
_NEVER_BEGUN: Final = "there is no rollout to resume: compare --name, or begin it without --resume"
_UNCLEAR: Final = "whether it was sent is not known, so it is not sent again"
_NO_ID: Final = "the service's answer names no command id, so its result cannot be found"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_PERCENT: Final = re.compile(r"(\d{1,3}(?:\.\d{1,3})?)\s*%")

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
    """What is decided when a rollout begins; the last three may be decided anew when it is resumed.

    Attributes:
        rollout_id: random; the commands' idempotency keys are made of it.
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
    """A share such as ``5%`` as a number from 0 to 1."""
    found = _PERCENT.fullmatch(text.strip())
    if found is None or float(found[1]) > 100:
        raise click.BadParameter(f"{text!r} is no share: write 0% to 100%")
    return float(found[1]) / 100


def wave_sizes(text: str, devices: int) -> list[int]:
    """How many devices each wave has, of ``1,5%,25%,all``: each entry says how many have the command after its wave.

    A wave that would have no device of its own is left out.
    """
    entries = [entry.strip().lower() for entry in text.split(",")]
    if entries[-1] not in {"all", "100%"}:
        raise click.BadParameter(f"--waves {text!r}: the last one must be 'all', or some devices get nothing")
    sizes: list[int] = []
    for entry in entries:
        if entry == "all":
            wanted = float(devices)
        elif _PERCENT.fullmatch(entry):
            wanted = read_share(entry) * devices
        elif entry.isascii() and entry.isdigit() and int(entry) > 0:
            wanted = float(entry)
        else:
            raise click.BadParameter(f"--waves: {entry!r} is none: write a number of devices, a share as 5%, or all")
        more = min(devices, math.ceil(wanted)) - sum(sizes)
        sizes += [more] if more > 0 else []
    return sizes


def in_waves(name: str, device_ids: Iterable[str], waves: str) -> list[list[str]]:
    """The devices of each wave, in an order that is the same for one name and another for the next.

    So the first wave is not always the same devices, and a list sorted by place or age is spread over all waves.
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


# --- the results ------------------------------------------------------------------------------------------------------


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
        self._read_at_s = -math.inf
        self._ends: dict[tuple[str | None, str], tuple[DeviceState, str | None]] = {}

    def end_of(self, device_id: str, command_id: str) -> tuple[DeviceState, str | None] | None:
        """How this device's command has ended, and why not well; None while it has not.

        Raises:
            ServiceError: it could not be asked; ``NotFound`` when the service does not know the device.
        """
        if self._table is not None:
            if time.monotonic() - self._read_at_s >= _TABLE_EVERY_S:
                self._read_table(self._table)
            return self._ends.get((device_id, command_id))
        listed = self._client.device_commands(device_id)
        for record in listed.records:
            if record.id == command_id:
                said = (record.result or {}).get("error") or (record.result or {}).get("message")
                return _end((record.status or "").lower(), record.error or record.status_reason or said)
        if listed.incomplete is not None:
            raise listed.incomplete
        return None

    def _read_table(self, table: str) -> None:
        for record in self._client.runtime_data():
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


class Rollout:
    """One rollout in its state file, which is locked for as long as this process works on it.

    Args:
        path: of the file.
        begin: the plan, and the device ids of each wave; None opens the file that is there.

    Raises:
        ConfigurationError: there is none to open or one already, another process works on it, or it is none of ours.
    """

    def __init__(self, path: Path, begin: tuple[Plan, Sequence[Sequence[str]]] | None = None) -> None:
        if begin is None and not path.is_file():
            raise ConfigurationError([f"{path} is not there: {_NEVER_BEGUN}"], "rollout")
        with suppress(OSError):  # opening the file says it better
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._db = open_db(path, partial(_prepare, begin=begin), "rollout", busy_s=0.0)
        self._db.row_factory = sqlite3.Row
        self.plan = Plan(**json.loads(self._db.execute("SELECT plan FROM rollout").fetchone()[0]))
        self._wave = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._db.close()

    def replan(self, **limits: float | None) -> None:
        """Go on with other limits: ``max_failed``, ``max_silent`` or ``timeout_s``; None leaves one as it is."""
        for name, value in limits.items():
            if value is not None:
                setattr(self.plan, name, value)
        self._db.execute("UPDATE rollout SET plan = ?", (json.dumps(asdict(self.plan)),))

    def devices(self) -> list[dict[str, Any]]:
        """What has become of each device, in the order of sending."""
        query = "SELECT device_id, wave, state, command_id, reason FROM device ORDER BY rowid"
        return [dict(row) for row in self._db.execute(query)]

    def run(self, client: OperatorClient, results: Results, *, has_keys: bool) -> str | None:
        """All waves, or those until one goes wrong: why it stopped, or None when all is done.

        Args:
            client: for the commands; it keeps to the quota by itself.
            results: where the results are read.
            has_keys: the service takes idempotency keys.

        Raises:
            ServiceError: a command could not be sent, or the service takes the keys no more; to be resumed.
        """
        for wave in range(1, self.devices()[-1]["wave"] + 1):
            self._wave = wave
            complain(f"wave {wave}: {self._counts().total()} device(s)")
            reason = self._roll_wave(client, results, has_keys=has_keys)
            if reason is not None:
                return reason
        return None

    def _roll_wave(self, client: OperatorClient, results: Results, *, has_keys: bool) -> str | None:
        """Send to all devices of the wave, then wait for the results; why the rollout stops here, or None."""
        for row in self._rows("state IN ('planned', 'sending') ORDER BY rowid"):
            reason = stop_reason(self._wave, self._counts(), self.plan, is_over=False)
            if reason is not None:
                return reason
            self._send(row, client, has_keys=has_keys)
        is_over = False
        while True:
            reason = stop_reason(self._wave, self._counts(), self.plan, is_over=is_over)
            if reason is not None or is_over or not self._counts()[DeviceState.SENT]:
                return reason
            waited_s = time.time() - self._last_sent_s()
            is_over = waited_s >= self.plan.timeout_s
            if not is_over:
                time.sleep(min(max(waited_s / 5, _LOOK_S), _LOOK_MAX_S, self.plan.timeout_s - waited_s))
            self._look(results)

    def _send(self, row: sqlite3.Row, client: OperatorClient, *, has_keys: bool) -> None:
        plan, device_id = self.plan, row["device_id"]
        is_repeat = row["state"] == DeviceState.SENDING
        if is_repeat and not (has_keys and time.time() - row["sending_at"] < _KEY_GOOD_S):
            self._note(device_id, DeviceState.SILENT, reason=_UNCLEAR)
            return
        command = SendCommand(device_id=device_id, command_payload=plan.command_payload, ttl_seconds=plan.ttl_s)
        key = str(uuid.uuid5(uuid.UUID(plan.rollout_id), device_id)) if has_keys else None
        self._note(device_id, DeviceState.SENDING, sending_at=row["sending_at"] or time.time())
        try:
            sent = client.send_command(command, idempotency_key=key)
        except ServiceError as error:
            if error.advice is Advice.DROP:
                self._note(device_id, DeviceState.FAILED, reason=str(error))
                return
            is_not_stored = error.advice is Advice.REAUTHENTICATE or isinstance(error, RateLimited)
            if is_not_stored and not is_repeat:
                self._note(device_id, DeviceState.PLANNED, sending_at=None)
            raise
        if sent.id is None:
            self._note(device_id, DeviceState.SILENT, reason=_NO_ID)
        else:
            self._note(device_id, DeviceState.SENT, command_id=sent.id, sent_at=time.time())

    def _look(self, results: Results) -> None:
        """Ask how the commands that were sent have ended; after an error the rest is asked for in the next look."""
        # Each time in another order: a device for which the service always fails must not hide those behind it.
        for row in self._rows("state = 'sent' ORDER BY random()"):
            try:
                end = results.end_of(row["device_id"], row["command_id"])
            except NotFound as error:
                end = DeviceState.FAILED, str(error)
            except ServiceError as error:
                if error.advice is not Advice.RETRY:
                    raise
                complain(f"wave {self._wave}: {error}; looking again later")
                return
            if end is not None:
                self._note(row["device_id"], end[0], reason=end[1])

    def _counts(self) -> Counter[str]:
        query = "SELECT state, COUNT(*) FROM device WHERE wave = ? GROUP BY state"
        return Counter(dict(self._db.execute(query, (self._wave,)).fetchall()))

    def _last_sent_s(self) -> float:
        query = "SELECT MAX(sent_at) FROM device WHERE wave = ?"
        return float(self._db.execute(query, (self._wave,)).fetchone()[0] or 0.0)

    def _rows(self, which: str) -> list[sqlite3.Row]:
        query = f"SELECT * FROM device WHERE wave = ? AND {which}"  # noqa: S608 - constants
        return self._db.execute(query, (self._wave,)).fetchall()

    def _note(self, device_id: str, state: DeviceState, **columns: Any) -> None:
        assigned = "".join(f", {name} = ?" for name in columns)
        query = f"UPDATE device SET state = ?{assigned} WHERE device_id = ?"  # noqa: S608 - names of columns
        self._db.execute(query, (state, *columns.values(), device_id))


def _prepare(connection: sqlite3.Connection, begin: tuple[Plan, Sequence[Sequence[str]]] | None) -> None:
    """Lock the file until it is closed, and fill a new one."""
    connection.execute("PRAGMA locking_mode=EXCLUSIVE")
    with transaction(connection):
        is_begun = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'rollout'").fetchone() is not None
        if begin is None and not is_begun:  # it was interrupted while it began
            raise ConfigurationError([_NEVER_BEGUN], "rollout")
        if begin is not None and is_begun:
            fault = "this rollout was begun already: --resume goes on with it; give another --name for a new one"
            raise ConfigurationError([fault], "rollout")
        if begin is not None:
            plan, waves = begin
            connection.execute("CREATE TABLE rollout (plan TEXT NOT NULL)")
            connection.execute("INSERT INTO rollout VALUES (?)", (json.dumps(asdict(plan)),))
            connection.execute(_DEVICES)
            planned = [(each, wave) for wave, devices in enumerate(waves, 1) for each in devices]
            connection.executemany("INSERT INTO device (device_id, wave, state) VALUES (?, ?, 'planned')", planned)


# --- the command ------------------------------------------------------------------------------------------------------


@click.command()
@gateway_config_option
@json_option
@click.option("--command", help="The command_payload that each device gets: a JSON object.")
@click.option(
    "--devices",
    "listed",
    type=click.File(encoding="utf-8-sig"),
    help="The devices: a file, or - for standard input, with one id in each line.",
)
@click.option(
    "--waves",
    help="How many devices have the command after each wave: numbers, shares of all, at last 'all'. "
    "Default: 1,5%,25%,all.",
)
@click.option(
    "--wave-timeout",
    "timeout_s",
    type=read_duration,
    metavar="TIME",
    help="How long the results of a wave are waited for after its last command was sent: 90s, 30m, 6h. Default: 30m.",
)
@click.option(
    "--max-failed",
    metavar="SHARE",
    help="Stop when more than this share of a wave's devices fails or rejects the command. Default: 5%.",
)
@click.option(
    "--max-silent",
    metavar="SHARE",
    help="Stop when more than this share of a wave's devices gives no result in time. Default: 20%.",
)
@click.option("--name", help="Of this rollout: letters, digits, _ . - . Default: the time of its begin.")
@click.option("--resume", is_flag=True, help="Go on with the rollout --name, which was interrupted or has stopped.")
def rollout(*, config_path: Path, as_json: bool, resume: bool, **given: Any) -> None:
    """Send a command to many devices in waves; the next wave follows once the one before has done well.

    It stops by itself when too many devices of a wave fail or stay silent. Interrupted, even by kill -9, it goes on
    with --resume and sends no device a second command. With --resume, --wave-timeout, --max-failed and --max-silent
    may have other values than before.

    Exit codes: 0 all waves are done, 1 it stopped or the service refused, 2 usage or configuration, 5 the service
    cannot be reached, 130 interrupted.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup leaves it
            signal.signal(number, signal.default_int_handler)
    with errors_end_it(), ExitStack() as held:
        config = load(config_path)
        for limit in ("max_failed", "max_silent"):
            given[limit] = None if given[limit] is None else read_share(given[limit])
        found = _resumed(held, config, given) if resume else None
        with service_client(config.service, config.auth.credentials(os.environ)) as client:
            offers = extensions_of(client, config.service)
            results = Results(client, offers, config.service.dialect.dialect())
            if found is None:
                plan, waves = _planned(offers, config, given)
                found = held.enter_context(Rollout(_path(config, plan.name), (plan, waves)))
                complain(f"rollout {plan.name}: {sum(map(len, waves))} device(s) in {len(waves)} wave(s)")
            reason: str | None = f"device-gateway rollout --resume --name {found.plan.name}"
            ended, code = "interrupted", EXIT_INTERRUPTED
            try:
                reason = found.run(client, results, has_keys=IDEMPOTENCY_KEY in offers)
                ended, code = ("done", 0) if reason is None else ("stopped", EXIT_CHECK_FAILED)
            except KeyboardInterrupt:
                pass
            finally:
                _print_end(found, ended, reason, as_json=as_json)
    raise SystemExit(code)


def _planned(offers: frozenset[str], config: GatewayConfig, given: dict[str, Any]) -> tuple[Plan, list[list[str]]]:
    """The plan of a new rollout, and the devices of each wave.

    Raises:
        ConfigurationError: something that was given cannot be; nothing was sent.
    """
    name = given["name"] or f"{datetime.now(UTC):%Y%m%d-%H%M%S}"
    if _NAME.fullmatch(name) is None:
        raise ConfigurationError([f"--name {name!r}: use letters, digits, _ . and -, 64 at most"], "rollout")
    try:
        payload = parse_object((given["command"] or "").encode(), max_bytes=COMMAND_PAYLOAD_BYTES)
    except (InvalidMessage, UnicodeEncodeError) as error:
        fault = f'--command: {error}; give a JSON object such as {{"command":"ping"}}'
        raise ConfigurationError([fault], "rollout") from None
    if given["listed"] is None:
        raise click.UsageError("name the devices: --devices FILE")
    timeout_s = given["timeout_s"] or 1800.0
    plan = Plan(
        rollout_id=str(uuid.uuid4()),
        name=name,
        base_url=config.service.base_url,
        command_payload=payload,
        # So that no device starts the command after it has counted as silent.
        ttl_s=max(1, round(min(timeout_s, TTL_MAX_S))) if COMMAND_TTL in offers else None,
        max_failed=0.05 if given["max_failed"] is None else given["max_failed"],
        max_silent=0.2 if given["max_silent"] is None else given["max_silent"],
        timeout_s=timeout_s,
    )
    return plan, in_waves(name, read_lines(given["listed"], "--devices"), given["waves"] or "1,5%,25%,all")


def _resumed(held: ExitStack, config: GatewayConfig, given: dict[str, Any]) -> Rollout:
    """A rollout that was begun; ``held`` closes it.

    Raises:
        ConfigurationError: there is none, or it is for another service.
    """
    if not given["name"]:
        raise click.UsageError("--resume needs the --name of the rollout")
    options = {"--command": "command", "--waves": "waves", "--devices": "listed"}
    fixed = [option for option, name in options.items() if given[name]]
    if fixed:
        raise click.UsageError(f"a rollout that goes on has its command and its devices: leave out {', '.join(fixed)}")
    found = held.enter_context(Rollout(_path(config, given["name"])))
    if found.plan.base_url != config.service.base_url:
        fault = f"this rollout was begun at {found.plan.base_url}, not at {config.service.base_url}"
        raise ConfigurationError([f"{fault}: use the configuration that it was begun with"], "rollout")
    found.replan(**{limit: given[limit] for limit in ("max_failed", "max_silent", "timeout_s")})
    return found


def _path(config: GatewayConfig, name: str) -> Path:
    return config.state_dir / "rollouts" / f"{name}.db"


def _print_end(found: Rollout, ended: str, reason: str | None, *, as_json: bool) -> None:
    """Each wave's devices by state, what went wrong and where, and a last sentence; as JSON each device too."""
    devices, name = found.devices(), found.plan.name
    by_wave: dict[int, Counter[str]] = {}
    wrong: dict[tuple[str, str], list[str]] = {}
    for each in devices:
        by_wave.setdefault(each["wave"], Counter())[each["state"]] += 1
        if each["state"] in {DeviceState.FAILED, DeviceState.SILENT}:
            wrong.setdefault((each["state"], each["reason"]), []).append(each["device_id"])
    waves = [
        {"wave": wave, "devices": counts.total(), **{state: counts[state] for state in DeviceState}}
        for wave, counts in by_wave.items()
    ]
    if as_json:
        print_json({"rollout": name, "ended": ended, "reason": reason, "waves": waves, "devices": devices})
        return
    print_rows(waves, as_json=False)
    for (state, why), ids in wrong.items():
        more = ", ..." if len(ids) > _FIRST_IDS else ""
        click.echo(bounded(f"{state}, {len(ids)}: {why}: {', '.join(ids[:_FIRST_IDS])}{more}"))
    click.echo(bounded(f"rollout {name} {ended}{f': {reason}' if reason else ''}"))
