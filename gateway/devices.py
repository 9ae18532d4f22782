"""``device-gateway devices``: tokens for devices, with the files that a device needs, and codes to enroll with."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, TextIO, TypeVar

import click

from agent.app.enroll import AUTHORITY, CONFIGURATION, TOKEN, gateway_configuration
from agent.cli.program import acts_for_owners, json_option, print_json
from agent.errors import EXIT_CHECK_FAILED, ConfigurationError
from agent.files import replace_file
from agent.identity import as_owner_of
from agent.text import unescaped
from agent.wire import topics
from agent.wire.encoding import to_rfc3339
from agent.wire.enrollment import EnrollmentAnswer, label_text
from agent.wire.network import authority as authority_of
from agent.wire.network import is_this_machine
from gateway.certificates import shown_certificate
from gateway.codes import Access, Code, Codes, Terms
from gateway.config import GatewayConfig
from gateway.options import (
    complain,
    errors_end_it,
    files_in_use,
    gateway_config_option,
    load,
    path_option,
    print_rows,
    read_duration,
    read_lines,
    service_client,
    unknown_devices,
)
from gateway.tokens import Tokens, id_fault, make_token, request_broker_update, with_tokens

Function = TypeVar("Function", bound=Callable[..., Any])

_BROKER_IS_BEHIND: Final = (
    "MQTT: the broker does not know this change yet; systemd's device-gateway-broker.path updates it, else run "
    "device-gateway broker-config --reload"
)


@click.group()
def devices() -> None:
    """Give devices their tokens, and take them back. The running gateway follows at once."""


def _access_options(command: Function) -> Function:
    """How devices reach the gateway."""
    for option in (
        click.option("--plain", is_flag=True, help="The broker or the address has no TLS: for a closed test network."),
        path_option("--ca", "The authority devices shall trust. Default: ca.pem beside the gateway's certificate."),
        click.option("--broker", help="How devices reach the broker, HOST or HOST:PORT, for devices that speak MQTT."),
        click.option("--url", help="How devices reach the HTTP front. Default: where it listens, if that is loopback."),
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


# --- tokens -----------------------------------------------------------------------------------------------------------


@devices.command()
@_folder_options
@click.option("--device-id", "device_ids", multiple=True, help="The service's id of a device; once for each.")
@click.option(
    "--from", "listed", type=click.File(encoding="utf-8-sig"), help="Many: a file, or -, with one id in each line."
)
@click.option("--check/--no-check", default=True, help="Ask the service whether it knows the device ids.")
@click.option("--again", is_flag=True, help="Give another token to those that have one, as rotate does.")
@acts_for_owners
def add(
    *,
    config_path: Path,
    as_json: bool,
    device_ids: tuple[str, ...],
    listed: TextIO | None,
    check: bool,
    again: bool,
    **given: Any,
) -> None:
    """Give tokens, shown only now, to devices that the service knows. A new device is registered by a code: invite.

    Exit codes: 0 good, 1 a device has a token already or the service refused, 2 usage or configuration (then nothing
    was done), 5 the service cannot be reached.
    """
    with errors_end_it():
        config = load(config_path)
        wanted = list(dict.fromkeys([*device_ids, *(read_lines(listed, "--from") if listed else ())]))
        if not wanted:
            raise click.UsageError("name the devices: --device-id, or --from")
        faults = [f"{each!r}: {fault}" for each in wanted if (fault := id_fault(each))]
        kept = []
        if not faults and not again:
            kept = with_tokens(config.state_dir, lambda tokens: [*filter(tokens.serves, wanted)])
        new = [each for each in wanted if each not in set(kept)]
        if check and new and not faults:
            fix = "the service does not know this device: register it first, or mend the id (--no-check asks nobody)"
            with service_client(config.service, config.auth.credentials(os.environ)) as client:
                faults = [f"{each}: {fix}" for each in unknown_devices(client, new)]
        if faults:
            raise ConfigurationError(faults, "devices")
        _issue(config, new, given, as_json=as_json, kept=kept, several=len(wanted) > 1, replace=again)
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
    found = with_tokens(load(config_path).state_dir, lambda tokens: tokens.listed())
    print_rows([each for each in found if show_all or each["state"] == "valid"], as_json=as_json)


@devices.command()
@_folder_options
@click.argument("device_ids", nargs=-1, metavar="DEVICE_ID...")
@click.option("--all", "every", is_flag=True, help="Every device that has a valid token.")
@acts_for_owners
def rotate(*, config_path: Path, as_json: bool, device_ids: tuple[str, ...], every: bool, **given: Any) -> None:
    """Give each DEVICE_ID another token. The old one is good until the new one is used, for a day at the most.

    A broker knows only the newest.
    """
    if every == bool(device_ids):
        raise click.UsageError("name the devices, or give --all")
    config = load(config_path)
    valid = with_tokens(config.state_dir, lambda tokens: list(tokens.passwords()))
    chosen = valid if every else list(dict.fromkeys(device_ids))
    missing = sorted(set(chosen) - set(valid))
    if missing:
        faults = [f"{each} has no valid token: see device-gateway devices add" for each in missing]
        raise ConfigurationError(faults, "rotate")
    several = every or len(chosen) > 1
    _issue(config, chosen, given, as_json=as_json, several=several, replace=True)


@devices.command()
@gateway_config_option
@json_option
@click.argument("device_ids", nargs=-1, required=True, metavar="DEVICE_ID...")
def revoke(*, config_path: Path, as_json: bool, device_ids: tuple[str, ...]) -> None:
    """Take back all tokens of each DEVICE_ID: refused over HTTP at once, at the broker after broker-config.

    Exit code 1 when one of the devices had no valid token.
    """
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


def _issue(
    config: GatewayConfig,
    device_ids: list[str],
    given: dict[str, Any],
    *,
    as_json: bool,
    several: bool,
    kept: list[str] | None = None,
    replace: bool = False,
) -> None:
    """Make a token for each device, write its files, and show what is shown only now.

    What can be refused is refused before a token is issued.

    Raises:
        ConfigurationError: files or the address cannot be used; nothing was issued.
    """
    out: Path | None = given["config_out"]
    device_dir: Path = given["device_dir"].absolute()
    new = {device_id: make_token() for device_id in device_ids}
    files: list[tuple[Path, str, EnrollmentAnswer]] = []
    if out is not None:
        access = _access(config, given)
        for device_id, made in new.items():
            handed = access.handed(device_id, made, None)
            folder = out / topics.user_name(device_id) if several else out
            files.append((folder, gateway_configuration(handed, device_dir), handed))
    with files_in_use("config-out", "mend it, or give another --config-out"):
        for folder, _, _ in files:
            as_owner_of(folder, partial(_check_folder, folder, replace=replace))
        if new:
            with_tokens(config.state_dir, lambda tokens: tokens.issue(new))
        for folder, text, handed in files:
            as_owner_of(folder, partial(_write_files, folder, text, handed))

    if as_json:
        issued = [{"device_id": device_id, "token": made.reveal()} for device_id, made in new.items()]
        print_json({"issued": issued, "kept": kept or []})
    elif files:
        for folder, _, handed in files:
            click.echo(f"{handed.device_id}: wrote its files into {folder}")
            click.echo(f"  next: bring them to {device_dir} on the device, owned by the agent's user")
    else:
        for device_id, made in new.items():
            click.echo(f"{device_id}: {made.reveal()}")
    if new:
        _want_broker_update(config)


def _check_folder(folder: Path, *, replace: bool) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not replace and (folder / CONFIGURATION).exists():
        fault = f"{folder / CONFIGURATION} is there already, and a device has a folder of its own"
        raise ConfigurationError([f"{fault}: give another --config-out"], "config-out")


def _write_files(folder: Path, configuration: str, handed: EnrollmentAnswer) -> None:
    replace_file(folder / TOKEN, handed.token.reveal() + "\n", 0o600)
    replace_file(folder / CONFIGURATION, configuration, 0o644)
    if handed.authority is not None:
        replace_file(folder / AUTHORITY, handed.authority, 0o644)


# --- codes ------------------------------------------------------------------------------------------------------------


@devices.command()
@_access_options
@click.option("--product-id", required=True, help="Each device that enrolls is registered at the service: its product.")
@click.option("--user-id", required=True, help="The user account that the devices belong to.")
@click.option(
    "--count",
    type=click.IntRange(1, 100_000),
    default=1,
    show_default=True,
    help="How many devices may enroll with this code: an image of many cards has one code.",
)
@click.option(
    "--replace",
    is_flag=True,
    help="Also devices that hold a valid token may enroll. The old token is good until the new one is used, for a day "
    "at the most.",
)
@click.option(
    "--expires",
    type=read_duration,
    metavar="TIME",
    default="1h",
    show_default=True,
    help="How long the code is good: 15m, 1h, 7d.",
)
@path_option("--certificate", "The certificate that devices are shown, where a proxy has another one than the gateway.")
@click.option("--qr", is_flag=True, help="Also show the code as a QR symbol, for device-agent enroll.")
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
    """Print a code with which a device enrolls: device-agent enroll URL. The code is shown only now.

    The identifier of a device that holds a valid token is refused, unless it comes again within ten minutes, or with
    --replace.
    """
    config = load(config_path)
    access = _access(config, given)
    url = access.url or ""
    shown = shown_certificate(url, certificate or config.http.certificate, plain=access.plain)
    terms = Terms(
        # A device that is to speak MQTT needs the HTTP front for this one request only.
        url=None if access.broker else access.url,
        broker=access.broker,
        authority=access.authority,
        plain=access.plain,
        **{name: given[name] for name in ("product_id", "user_id", "replace")},
    )

    def make(tokens: Tokens) -> tuple[str, dict[str, Any]]:
        code, made = Codes(tokens).make(terms, expires, count, shown)
        return label_text(url, code), {**_members(made), "code": str(code)}

    label, made = with_tokens(config.state_dir, make)
    if as_json:
        print_json({**made, "url": url, "label": label})
        return
    click.echo(made["code"])
    click.echo(f"good until {made['expires_at']} for {count} device(s); on the device, as root:")
    click.echo(f"  device-agent enroll {url}     (it asks for the code)")
    if qr:
        _print_qr(label)
    if config.mqtt.enabled and access.broker is not None:
        complain(_BROKER_IS_BEHIND)


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
        "product_id": code.terms.product_id,
    }


# --- both -------------------------------------------------------------------------------------------------------------


def _access(config: GatewayConfig, given: dict[str, Any]) -> Access:
    """How devices reach the gateway, out of the options and what the configuration says.

    Without ``--url`` the front's own address counts where it is loopback; without ``--ca`` the ``ca.pem`` beside the
    front's certificate, or the one that the gateway trusts at the broker.

    Raises:
        ConfigurationError: no address is known, or the authority's file cannot be read.
    """
    http, url, broker, plain = config.http, given["url"], given["broker"], given["plain"]
    if url is None and broker is None and is_this_machine(http.host):
        url = f"{'http' if http.certificate is None else 'https'}://{authority_of(http.host, http.port)}"
    if url is None and broker is None:
        text = "devices need the address of the gateway: give --url https://HOST:PORT, or --broker HOST:PORT"
        raise ConfigurationError([text], "address")
    path: Path | None = given["ca"]
    if path is None and http.certificate is not None and (http.certificate.parent / AUTHORITY).is_file():
        path = http.certificate.parent / AUTHORITY
    if path is None and broker is not None and not plain:
        path = config.mqtt.ca_file
    if path is None:
        return Access(url, broker, None, plain)
    try:
        pem = as_owner_of(path, partial(path.read_text, encoding="ascii"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError([f"{path} is no PEM file that can be read ({error})"], "--ca") from None
    return Access(url, broker, pem, plain)


def _print_qr(text: str) -> None:
    """The QR symbol of a text, drawn for a terminal."""
    import qrcode

    symbol: Any = qrcode.QRCode(error_correction=qrcode.constants.ERROR_CORRECT_M)
    symbol.add_data(text.encode())
    # Scanners dislike a light symbol on dark ground: on a terminal its own colours are set, elsewhere blocks are light.
    is_terminal = sys.stdout.isatty()
    symbol.print_ascii(out=unescaped(sys.stdout), tty=is_terminal, invert=not is_terminal)


def _want_broker_update(config: GatewayConfig) -> None:
    if config.mqtt.enabled:
        with suppress(OSError):  # the line below says what to do by hand
            as_owner_of(config.state_dir, lambda: request_broker_update(config.state_dir))
        complain(_BROKER_IS_BEHIND)
