"""``fleet-simulator command``: click commands, no logic."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import click

from agent.error_text import bounded
from agent.errors import AgentError, ConfigurationError, InvalidMessage
from agent.wire.commands import CommandRecord
from agent.wire.limits import TTL_DEFAULT_S, TTL_MAX_S
from simulator.command.counter import CounterFile
from simulator.command.sending import KeySigner, read_payload, send, wait_for_end
from simulator.credentials import read_credential, takes_ca_file
from simulator.exit_codes import ExitCode, exit_code_of
from simulator.terminal import option
from simulator.wire.client import ServiceClient


@click.group("command", context_settings={"auto_envvar_prefix": "FLEET_SIMULATOR_COMMAND"})
def command_group() -> None:
    """Send commands to devices, signed or not."""


@command_group.command("send")
@option("--base-url", required=True, help="Address of the service, such as http://127.0.0.1:8080.")
@option("--api-key", help="The public key, mk_...; with --secret-key-file.")
@option("--secret-key-file", type=click.Path(path_type=Path), help="File with the secret key, msk_...")
@option("--token-file", type=click.Path(path_type=Path), help="File with a bearer token, instead of the two keys.")
@takes_ca_file
@option("--device", "device_id", required=True, help="The device's id.")
@option("--payload", required=True, help="The command_payload: a JSON object, @FILE, or @- for standard input.")
@option(
    "--ttl",
    "ttl_s",
    type=click.IntRange(1, TTL_MAX_S),
    help="Seconds that the command waits for its device, on a service with command-ttl.",
)
@option(
    "--sign", "key_file", type=click.Path(path_type=Path), help="Sign with this private key (device-agent keys make)."
)
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
@option("--timeout-s", type=click.FloatRange(min=0.1), default=10.0, help="Patience with one request.")
@option("--json", "as_json", is_flag=True, help="Print the command's record as JSON.")
def send_command(
    *,
    base_url: str,
    api_key: str | None,
    secret_key_file: Path | None,
    token_file: Path | None,
    ca_file: Path | None,
    device_id: str,
    payload: str,
    ttl_s: int | None,
    key_file: Path | None,
    counter_file: Path | None,
    lifetime_s: float | None,
    wait_s: float,
    timeout_s: float,
    as_json: bool,
) -> None:
    """Send one command to a device.

    With --sign it travels in an envelope that only this device takes, once, and until its lifetime is over.

    Exit code 0: the service took it and, with --wait, it succeeded. 1: refused, or it ended otherwise, or not in time.
    2: usage, keys or payload. 5: the service cannot be reached.
    """
    try:
        if key_file is None and (counter_file or lifetime_s):
            raise ConfigurationError(["--counter-file and --lifetime have no effect without --sign"], "command send")
        signer = None
        if key_file is not None:
            counter = CounterFile(counter_file or key_file.with_name(f"{key_file.name}.counter"), time.time_ns)
            signer = KeySigner(key_file, counter, lifetime_s or ttl_s or TTL_DEFAULT_S)
        members = read_payload(payload, _read_input)
        credential = read_credential("command send", api_key, secret_key_file, token_file)
        with ServiceClient(base_url, credential, timeout_s=timeout_s, ca_file=ca_file) as client:
            record = send(client, device_id, members, signer=signer, ttl_s=ttl_s)
            ended = wait_for_end(client, device_id, record.id or "", wait_s) if wait_s and record.id else None
    except AgentError as error:
        click.echo(bounded(error.in_one_line if isinstance(error, ConfigurationError) else str(error)), err=True)
        code = ExitCode.USAGE if isinstance(error, InvalidMessage) else exit_code_of(error)
        click.get_current_context().exit(code)
    _tell(ended or record, as_json=as_json)
    if wait_s and (ended is None or ended.status != "succeeded"):
        click.get_current_context().exit(ExitCode.CHECK_FAILED)


def _tell(record: CommandRecord, *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(record.model_dump(mode="json", exclude_none=True), ensure_ascii=False))
        return
    result = "" if record.result is None else f" {json.dumps(record.result, ensure_ascii=False)}"
    name = record.id or "(the answer names no id)"
    click.echo(f"{name} {record.status or 'sent'}{result} {record.error or record.status_reason or ''}".rstrip())


def _read_input(name: str) -> bytes:
    return sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
