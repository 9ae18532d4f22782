"""``fleet-simulator command send``: one command on its way, signed if there is a key, and waited for."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from agent.errors import ConfigurationError, InvalidMessage
from agent.files import replace_file
from agent.wire.encoding import parse_object
from agent.wire.limits import COMMAND_PAYLOAD_BYTES, INT_MAX, TTL_MAX_S
from agent.wire.models import FINAL_STATES, CommandRecord
from agent.wire.server import COMMAND_TTL
from gateway.client import SendCommand
from simulator.announced import ask_offers
from simulator.credentials import ServiceAccess, takes_access
from simulator.exit_codes import ExitCode
from simulator.file_lock import lock_file
from simulator.terminal import option
from simulator.wire.client import ServiceClient
from simulator.wire.limits import TTL_DEFAULT_S

_LOOK_EVERY_S: Final = 0.5
_MODE: Final = 0o600


@click.group("command", context_settings={"auto_envvar_prefix": "FLEET_SIMULATOR_COMMAND"})
def command_group() -> None:
    """Send commands to devices, signed or not."""


@command_group.command("send")
@takes_access
@option("--device", "device_id", required=True, help="The device's id.")
@option("--payload", required=True, help="The command_payload: a JSON object, @FILE, or @- for standard input.")
@option(
    "--ttl",
    "ttl_s",
    type=click.IntRange(1, TTL_MAX_S),
    help="Seconds that the command waits for its device, on a service with command-ttl.",
)
@option("--sign", "key_file", type=click.Path(path_type=Path), help="Sign with this private key (device-agent keys).")
@option(
    "--counter-file",
    type=click.Path(path_type=Path),
    show_default="the --sign file with .counter at the end",
    help="Where the key's counter is kept; one file for each key.",
)
@option(
    "--lifetime",
    "lifetime_s",
    type=click.FloatRange(min=1),
    show_default="--ttl, or an hour",
    help="Seconds that the signature holds; the device runs nothing after that.",
)
@option("--wait", "wait_s", type=click.FloatRange(min=0), default=0.0, help="Seconds to wait for the command's end.")
@option("--json", "as_json", is_flag=True, help="Print the command's record as JSON.")
def send_command(
    *,
    access: ServiceAccess,
    device_id: str,
    payload: str,
    ttl_s: int | None,
    key_file: Path | None,
    counter_file: Path | None,
    lifetime_s: float | None,
    wait_s: float,
    as_json: bool,
) -> int:
    """Send one command to a device.

    With --sign it travels in an envelope that only this device takes, once, and until its lifetime is over.

    Exit code 0: the service took it and, with --wait, it succeeded. 1: refused, or it ended otherwise, or not in time.
    2: usage, keys or payload. 5: the service cannot be reached.
    """
    if key_file is None and (counter_file or lifetime_s):
        raise ConfigurationError(["--counter-file and --lifetime have no effect without --sign"], "command send")
    members = read_payload(payload, _read_input)
    with access.open() as client:
        if ttl_s is not None and COMMAND_TTL not in ask_offers(client):
            fault = (
                "--ttl: the service announces no command-ttl, so it would be sent a member that the specification does "
                "not have; leave --ttl out, or bound a signed command with --lifetime"
            )
            raise ConfigurationError([fault], "--ttl")
        if key_file is not None:
            counter = CounterFile(counter_file or key_file.with_name(f"{key_file.name}.counter"), time.time_ns)
            members = KeySigner(key_file, counter, lifetime_s or ttl_s or TTL_DEFAULT_S).sign(device_id, members)
        record = client.send_command(SendCommand(device_id=device_id, command_payload=members, ttl_seconds=ttl_s))
        ended = _wait_for_end(client, device_id, record.id, wait_s) if wait_s and record.id else None
    _print(ended or record, as_json=as_json)
    is_good = not wait_s or (ended is not None and ended.status == "succeeded")
    return ExitCode.GOOD if is_good else ExitCode.CHECK_FAILED


def read_payload(text: str, read_file: Callable[[str], bytes]) -> dict[str, Any]:
    """The payload that the command line gives: JSON text, or ``@FILE``, or ``@-`` for standard input.

    Raises:
        ConfigurationError: it is no JSON object, or the file cannot be read.
    """
    try:
        raw = read_file(text[1:]) if text.startswith("@") else text.encode()
        return parse_object(raw, max_bytes=COMMAND_PAYLOAD_BYTES)
    except OSError as error:
        raise ConfigurationError([f"--payload: {text[1:]} cannot be read: {error.strerror}"], "--payload") from None
    except (InvalidMessage, UnicodeEncodeError) as error:
        fault = f'--payload: {error}; give a JSON object such as \'{{"command":"ping"}}\', or @FILE'
        raise ConfigurationError([fault], "--payload") from None


def _read_input(name: str) -> bytes:
    return sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()


def _wait_for_end(client: ServiceClient, device_id: str, command_id: str, within_s: float) -> CommandRecord | None:
    """The record once the command is over; None when it is not within that time."""
    deadline_s = time.monotonic() + within_s
    while True:
        for record in client.device_commands(device_id).records:
            if record.id == command_id and record.status in FINAL_STATES:
                return record
        left_s = deadline_s - time.monotonic()
        if left_s <= 0:
            return None
        time.sleep(min(_LOOK_EVERY_S, left_s))


def _print(record: CommandRecord, *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(record.model_dump(mode="json", exclude_none=True), ensure_ascii=False))
        return
    result = "" if record.result is None else f" {json.dumps(record.result, ensure_ascii=False)}"
    name = record.id or "(the answer names no id)"
    click.echo(f"{name} {record.status or 'sent'}{result} {record.error or record.status_reason or ''}".rstrip())


@dataclass(frozen=True, slots=True)
class KeySigner:
    """Signs with a private key from a file.

    Attributes:
        key_file: as ``device-agent keys`` writes it.
        counter: gives each command its counter.
        lifetime_s: how long the signature holds.
    """

    key_file: Path
    counter: CounterFile
    lifetime_s: float

    def sign(self, device_id: str, payload: dict[str, Any]) -> dict[str, Any]:
        """The ``command_payload`` with the envelope.

        Raises:
            ConfigurationError: key or counter cannot be used, no device would take this payload, or the extra
                ``device`` is not installed.
        """
        from agent.wire.signed import read_signing_key  # cryptography, only to sign

        key = read_signing_key(self.key_file)
        try:
            signed: dict[str, Any] = key.sign(
                device_id=device_id,
                id=str(uuid.uuid4()),
                counter=self.counter.take(),
                expires_at=time.time() + self.lifetime_s,
                payload=payload,
            )
        except InvalidMessage as error:
            raise ConfigurationError([f"--payload: {error}"], "--payload") from None
        return signed


class CounterFile:
    """The highest counter that was given out, kept in a file of its own beside the private key.

    A counter is the time in nanoseconds, or one more than the last one where the clock says less. So it grows when the
    clock was set back, and it also grows, by the clock, when the file was lost or another machine sends with the same
    key. Several processes may take counters at the same time.

    Args:
        path: the file; it is made with mode 600 when it is missing, and a file ``.lock`` beside it.
        now_ns: nanoseconds since the epoch.
    """

    def __init__(self, path: Path, now_ns: Callable[[], int]) -> None:
        self._path = path
        self._now_ns = now_ns

    def take(self) -> int:
        """The next counter; it is on the disk before it is returned.

        Raises:
            ConfigurationError: the file cannot be read or written, or holds something else.
        """
        try:
            with self._locked():
                counter = max(self._last() + 1, self._now_ns())
                if counter > INT_MAX:
                    raise self._fault("is at its end; make a new key with device-agent keys")
                replace_file(self._path, f"{counter}\n", _MODE, durable=True)
                return counter
        except OSError as error:
            raise self._fault(f"cannot be kept: {error.strerror}; give another --counter-file") from None

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        descriptor = os.open(self._path.with_name(f"{self._path.name}.lock"), os.O_RDWR | os.O_CREAT, _MODE)
        try:
            lock_file(descriptor, wait=True)
            yield
        finally:
            os.close(descriptor)

    def _last(self) -> int:
        try:
            text = self._path.read_text("ascii").strip()
        except FileNotFoundError:
            return 0
        except UnicodeDecodeError:
            text = ""
        if not (text.isdecimal() and len(text) <= len(str(INT_MAX))):
            raise self._fault("holds no counter; give another --counter-file, or remove it and let the clock decide")
        return int(text)

    def _fault(self, sentence: str) -> ConfigurationError:
        return ConfigurationError([f"{self._path}: {sentence}"], "--counter-file")
