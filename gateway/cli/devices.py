"""``device-gateway devices``: tokens, and codes with which devices enroll."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, TextIO, TypeVar

import click

from agent.cli.program import acts_for_owners, json_option, print_json
from agent.errors import EXIT_CHECK_FAILED
from agent.identity import as_owner_of
from agent.wire.enrollment import EnrollmentAnswer, label_text
from agent.wire.times import to_rfc3339
from gateway.certificates import shown_certificate
from gateway.cli.options import (
    complain,
    errors_end_it,
    gateway_config_option,
    load,
    path_option,
    print_qr,
    print_rows,
    read_duration,
    read_lines,
)
from gateway.codes import Code, Codes, Terms
from gateway.config import GatewayConfig
from gateway.devices import Access, Issuer, gateway_access, request_broker_update, service_client
from gateway.tokens import Tokens, with_tokens

Function = TypeVar("Function", bound=Callable[..., Any])

_DAY_S = 86_400.0


@click.group()
def devices() -> None:
    """Give devices their tokens, and take them back. The running gateway follows at once."""


def _access_options(command: Function) -> Function:
    """How devices reach the gateway, and how that is shown."""
    for option in (
        click.option("--plain", is_flag=True, help="The broker or the address has no TLS: for a closed test network."),
        path_option("--ca", "The authority devices shall trust. Default: ca.pem beside the gateway's certificate."),
        click.option("--broker", help="How devices reach the broker, HOST or HOST:PORT, for devices that speak MQTT."),
        click.option("--url", help="How devices reach the HTTP front. Default: where it listens, if that is loopback."),
        click.option("--qr", is_flag=True, help="Show what a device needs as a QR symbol."),
        json_option,
        gateway_config_option,
    ):
        command = option(command)
    return command


def _folder_options(command: Function) -> Function:
    """Where the files of a device are written."""
    out = path_option(
        "--config-out",
        "Write the agent's configuration and token file into this folder; with several devices into a folder for each.",
        is_folder=True,
    )
    where = Path("/etc/device-agent")
    there = path_option("--device-dir", "Where the files will lie on the device.", where, is_folder=True)
    return _access_options(out(there(command)))


@devices.command()
@_folder_options
@click.option("--device-id", "device_ids", multiple=True, help="The service's id of a device; once for each.")
@click.option(
    "--from", "listed", type=click.File(encoding="utf-8-sig"), help="Many: a file, or -, with one id in each line."
)
@click.option("--check/--no-check", default=True, help="Ask the service whether it knows the device ids.")
@acts_for_owners
def add(
    *, config_path: Path, as_json: bool, device_ids: tuple[str, ...], listed: TextIO | None, check: bool, **given: Any
) -> None:
    """Give devices that the service knows their tokens, shown this once. A new device is registered by a code: invite.

    Exit codes: 0 good, 1 a device has a token already or the service refused, 2 usage or configuration (then nothing
    was done), 5 the service cannot be reached.
    """
    with errors_end_it():
        config = load(config_path)
        wanted = [*device_ids, *(read_lines(listed, "--from") if listed else ())]
        if not wanted:
            raise click.UsageError("name the devices: --device-id, or --from")
        issuer = _issuer(config, given, several=len(wanted) > 1)
        with ExitStack() as held:
            client = None
            if check:
                client = held.enter_context(service_client(config.service, config.auth.credentials(os.environ)))
            issued, kept = issuer.add(wanted, client)
    _show(issued, kept, issuer, config, as_json=as_json, qr=given["qr"])
    if kept:
        complain(f"{len(kept)} had a token and keep it, such as {kept[0]}: device-gateway devices rotate {kept[0]}")
    if kept and listed is None:  # a file may be run again after a fault
        raise SystemExit(EXIT_CHECK_FAILED)


@devices.command("list")
@gateway_config_option
@json_option
@click.option("--all", "show_all", is_flag=True, help="Also devices without a valid token.")
def list_devices(*, config_path: Path, as_json: bool, show_all: bool) -> None:
    """List the devices with the state of their tokens; a token itself is never shown again."""
    with errors_end_it():
        found = with_tokens(load(config_path).state_dir, lambda tokens: tokens.listed())
    print_rows([each for each in found if show_all or each["state"] == "valid"], as_json=as_json)


@devices.command()
@_folder_options
@click.argument("device_ids", nargs=-1, metavar="DEVICE_ID...")
@click.option("--all", "every", is_flag=True, help="Every device that has a valid token.")
@click.option(
    "--overlap-s",
    type=click.FloatRange(0, 366 * _DAY_S),
    default=_DAY_S,
    show_default=True,
    help="How long the old token is good beside the new one, at the most: it ends when the new one is used. Over HTTP; "
    "a broker knows only the newest.",
)
@acts_for_owners
def rotate(
    *, config_path: Path, as_json: bool, device_ids: tuple[str, ...], every: bool, overlap_s: float, **given: Any
) -> None:
    """Give each DEVICE_ID another token. The old one is good until the new one is used, for a day at the most."""
    if every == bool(device_ids):
        raise click.UsageError("name the devices, or give --all")
    with errors_end_it():
        config = load(config_path)
        chosen = list(dict.fromkeys(device_ids))
        if every:
            chosen = with_tokens(config.state_dir, lambda tokens: tokens.device_ids())
        issuer = _issuer(config, given, several=every or len(chosen) > 1)
        issued = issuer.rotate(chosen, overlap_s)
    _show(issued, [], issuer, config, as_json=as_json, qr=given["qr"])


@devices.command()
@gateway_config_option
@json_option
@click.argument("device_ids", nargs=-1, required=True, metavar="DEVICE_ID...")
def revoke(*, config_path: Path, as_json: bool, device_ids: tuple[str, ...]) -> None:
    """Take back all tokens of each DEVICE_ID: refused over HTTP at once, at the broker after broker-update.

    Exit code 1 when one of the devices had no valid token.
    """
    with errors_end_it():
        config = load(config_path)
        revoked = with_tokens(config.state_dir, lambda tokens: {each: tokens.revoke(each) for each in device_ids})
    if as_json:
        print_json(revoked)
    for device_id, count in revoked.items():
        if not count:
            complain(f"{device_id} has no valid token")
        elif not as_json:
            click.echo(f"{device_id}: {count} token(s) revoked")
    if any(revoked.values()):
        _want_broker_update(config)
    if not all(revoked.values()):
        raise SystemExit(EXIT_CHECK_FAILED)


# --- codes ------------------------------------------------------------------------------------------------------------


@devices.command()
@_access_options
@click.option("--product-id", help="Register each device that enrolls at the service: its product.")
@click.option("--user-id", help="Register: the user account that the devices belong to.")
@click.option("--name", help="Register: a name for people; a device may say one of its own.")
@click.option("--device-id", help="Instead of registering: the id of the one device that the code is for.")
@click.option(
    "--count",
    type=click.IntRange(1, 100_000),
    default=1,
    show_default=True,
    help="How many devices may enroll with this code: an image of many cards has one code.",
)
@click.option("--replace", is_flag=True, help="Also devices that hold a valid token may enroll; that token then ends.")
@click.option(
    "--expires",
    type=read_duration,
    metavar="TIME",
    default="1h",
    show_default=True,
    help="How long the code is good: 15m, 1h, 7d.",
)
@path_option("--certificate", "The certificate that devices are shown, where a proxy has another one than the gateway.")
@acts_for_owners
def invite(
    *,
    config_path: Path,
    as_json: bool,
    count: int,
    expires: float,
    certificate: Path | None,
    qr: bool,
    **given: Any,
) -> None:
    """Print a code with which a device enrolls: device-agent enroll URL. It is shown this once.

    The identifier of a device that holds a valid token is refused, unless it comes again within ten minutes, or with
    --replace or --device-id.
    """

    def make(tokens: Tokens) -> tuple[str, dict[str, Any]]:
        code, made = Codes(tokens).make(terms, expires, count, shown, secrets.token_bytes)
        return label_text(url, code), {**_members(made), "code": str(code)}

    with errors_end_it():
        config = load(config_path)
        access = _access(config, given, needed=True)
        url = access.url or ""
        shown = shown_certificate(url, certificate or config.http.certificate, plain=access.plain)
        terms = Terms(
            # A device that is to speak MQTT needs the HTTP front for this one request only.
            url=None if access.broker else access.url,
            broker=access.broker,
            authority=access.authority,
            plain=access.plain,
            **{name: given[name] for name in ("device_id", "product_id", "user_id", "name", "replace")},
        )
        label, made = with_tokens(config.state_dir, make)
    if as_json:
        print_json({**made, "url": url, "label": label})
        return
    click.echo(made["code"])
    click.echo(f"good until {made['expires_at']} for {count} device(s); on the device, as root:")
    click.echo(f"  device-agent enroll {url}     (it asks for the code)")
    if qr:
        print_qr(label)
    if config.mqtt.enabled and access.broker is not None:
        complain("for MQTT: device-gateway-broker.path brings each device to the broker; else run broker-update")


@devices.command()
@gateway_config_option
@json_option
@click.option("--all", "show_all", is_flag=True, help="Also those that are used, expired or taken back.")
@click.option("--revoke", "revoked", multiple=True, metavar="INVITE_ID", help="Take this code back, also a used one.")
def invites(*, config_path: Path, as_json: bool, show_all: bool, revoked: tuple[str, ...]) -> None:
    """List the codes that are open, by an id that says nothing of the code; or take some back.

    Devices that have enrolled keep their tokens. Exit code 1 when a code to take back was not good any more.
    """

    def look(tokens: Tokens) -> tuple[list[str], list[dict[str, Any]]]:
        codes = Codes(tokens)
        missing = [each for each in revoked if not codes.revoke(each)]
        return missing, [_members(each) for each in codes.all() if show_all or each.state == "open"]

    with errors_end_it():
        missing, found = with_tokens(load(config_path).state_dir, look)
    print_rows(found, as_json=as_json)
    for each in missing:
        complain(f"{each}: no open or used code has this id; device-gateway devices invites --all lists them")
    if missing:
        raise SystemExit(EXIT_CHECK_FAILED)


def _members(code: Code) -> dict[str, Any]:
    return {
        "invite_id": code.code_id,
        "state": code.state,
        "enrolled": code.enrolled,
        "count": code.count,
        "expires_at": to_rfc3339(code.expires_at),
        "device_id": code.terms.device_id,
        "product_id": code.terms.product_id,
    }


# --- what was given, and what is shown --------------------------------------------------------------------------------


def _access(config: GatewayConfig, given: dict[str, Any], *, needed: bool) -> Access:
    return gateway_access(config, given["url"], given["broker"], given["ca"], plain=given["plain"], needed=needed)


def _issuer(config: GatewayConfig, given: dict[str, Any], *, several: bool) -> Issuer:
    folder = given["config_out"]
    access = _access(config, given, needed=folder is not None or given["qr"])
    return Issuer(config.state_dir, access, secrets.token_bytes, folder, several, given["device_dir"].absolute())


def _show(
    issued: list[EnrollmentAnswer],
    kept: list[str],
    issuer: Issuer,
    config: GatewayConfig,
    *,
    as_json: bool,
    qr: bool,
) -> None:
    if as_json:
        found = [{"device_id": each.device_id, "token": each.token.reveal()} for each in issued]
        print_json({"issued": found, "kept": kept})
    for handed in issued if not as_json else ():
        folder = issuer.folder_of(handed.device_id)
        if qr:
            click.echo(handed.device_id)
            print_qr(_qr_text(handed))
        elif folder is not None:
            click.echo(f"{handed.device_id}: wrote its files into {folder}")
            click.echo(f"  next: bring them to {issuer.device_dir} on the device, owned by the agent's user")
        else:
            click.echo(f"{handed.device_id}: {handed.token.reveal()}")
    if issued:
        _want_broker_update(config)


def _qr_text(handed: EnrollmentAnswer) -> str:
    """Compact JSON with ``v``, ``device_id``, ``token``, ``url`` and ``broker``."""
    token = handed.token.reveal()
    members = {"v": 1, "device_id": handed.device_id, "token": token, "url": handed.url, "broker": handed.broker}
    return json.dumps({name: value for name, value in members.items() if value is not None}, separators=(",", ":"))


def _want_broker_update(config: GatewayConfig) -> None:
    if config.mqtt.enabled:
        with suppress(OSError):  # the line below says what to do by hand
            as_owner_of(config.state_dir, lambda: request_broker_update(config.state_dir))
        complain("for MQTT: device-gateway-broker.path brings this to the broker; where it does not run: broker-update")
