"""``fleet-simulator command send``: one command on its way, signed if there is a key, and waited for."""

from __future__ import annotations

import json
import os
import sys
import time
import uuid
from collections.abc import Callable
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
from simulator.credentials import ServiceAccess, takes_access
from simulator.exit_codes import ExitCode
from simulator.file_lock import lock_file
from simulator.wire.client import ServiceClient
from simulator.wire.limits import TTL_DEFAULT_S

_LOOK_EVERY_S: Final = 0.5
_MODE: Final = 0o600


@click.group("command")
def command_group() -> None:
    """Send commands to devices, signed or not."""


@command_group.command("send")
@takes_access
@click.option("--device", "device_id", required=True, help="The device's id.")
@click.option("--payload", required=True, help="The command_payload: a JSON object, @FILE, or @- for standard input.")
@click.option(
    "--ttl",
    "ttl_s",
    type=click.IntRange(1, TTL_MAX_S),
    help="Seconds that the command waits for its device, on a service with command-ttl.",
)
@click.option(
    "--sign", "key_file", type=click.Path(path_type=Path), help="Sign with this private key (device-agent keys)."
)
@click.option(
    "--counter-file",
    type=click.Path(path_type=Path),
    show_default="the --sign file with .counter at the end",
    help="Where the key's counter is kept; one file for each key.",
)
@click.option(
    "--lifetime",
    "lifetime_s",
    type=click.FloatRange(min=1),
    show_default="--ttl, or an hour",
    help="Seconds that the signature holds; the device runs nothing after that.",
)
@click.option(
    "--wait", "wait_s", type=click.FloatRange(min=0), default=0.0, help="Seconds to wait for the command's end."
)
@click.option("--json", "as_json", is_flag=True, help="Print the command's record as JSON.")
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
        if ttl_s is not None and COMMAND_TTL not in client.offers():
            fault = (
                "--ttl: the service announces no command-ttl, so it would be sent a member that the specification does "
                "not have; leave --ttl out, or bound a signed command with --lifetime"
            )
            raise ConfigurationError([fault], "--ttl")
        if key_file is not None:
            counter_file = counter_file or key_file.with_name(f"{key_file.name}.counter")
            members = sign_payload(key_file, counter_file, lifetime_s or ttl_s or TTL_DEFAULT_S, device_id, members)
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


def sign_payload(
    key_file: Path, counter_file: Path, lifetime_s: float, device_id: str, payload: dict[str, Any]
) -> dict[str, Any]:
    """The ``command_payload`` with the envelope.

    Args:
        key_file: the private key, as ``device-agent keys`` writes it.
        counter_file: see :func:`take_counter`.
        lifetime_s: how long the signature holds.
        device_id: the only device that takes it.
        payload: what it is to do.

    Raises:
        ConfigurationError: key or counter cannot be used, no device would take this payload, or the extra ``device`` is
            not installed.
    """
    from agent.wire.signed import read_signing_key  # cryptography, only to sign

    key = read_signing_key(key_file)
    try:
        signed: dict[str, Any] = key.sign(
            device_id=device_id,
            id=str(uuid.uuid4()),
            counter=take_counter(counter_file, time.time_ns()),
            expires_at=time.time() + lifetime_s,
            payload=payload,
        )
    except InvalidMessage as error:
        raise ConfigurationError([f"--payload: {error}"], "--payload") from None
    return signed


def take_counter(path: Path, now_ns: int) -> int:
    """The next counter of a key; it is on the disk before it is returned.

    The file beside the private key keeps the highest counter that was given out. A counter is the time in nanoseconds,
    or one more than the last one where the clock says less. So it grows when the clock was set back, and it also grows,
    by the clock, when the file was lost or another machine sends with the same key. Several processes may take counters
    at the same time.

    Args:
        path: the file; it is made with mode 600 when it is missing, and a file ``.lock`` beside it.
        now_ns: nanoseconds since the epoch.

    Raises:
        ConfigurationError: the file cannot be read or written, or holds something else.
    """
    try:
        lock = os.open(path.with_name(f"{path.name}.lock"), os.O_RDWR | os.O_CREAT, _MODE)
        with os.fdopen(lock, "rb+"):
            lock_file(lock, wait=True)
            text = path.read_text("latin-1").strip() if path.exists() else "0"
            if not (text.isascii() and text.isdecimal() and len(text) <= len(str(INT_MAX))):
                fix = "give another --counter-file, or remove it and let the clock decide"
                raise ConfigurationError([f"{path}: holds no counter; {fix}"], "--counter-file")
            counter = max(int(text) + 1, now_ns)
            if counter > INT_MAX:
                fix = "make a new key with device-agent keys"
                raise ConfigurationError([f"{path}: is at its end; {fix}"], "--counter-file")
            replace_file(path, f"{counter}\n", _MODE, durable=True)
            return counter
    except OSError as error:
        fault = f"{path}: cannot be kept: {error.strerror}; give another --counter-file"
        raise ConfigurationError([fault], "--counter-file") from None
