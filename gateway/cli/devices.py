"""``device-gateway devices``."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from agent.cli.lazy import acts_for_owners
from agent.cli.options import configuration_faults_end_it, json_option, print_json, print_table
from agent.error_text import bounded
from agent.errors import Advice, ServiceError
from agent.exit_codes import EXIT_CHECK_FAILED, EXIT_UNREACHABLE
from agent.process.identity import as_owner_of
from agent.wire.times import to_rfc3339
from gateway.cli.codes import invite, invites, uninvite
from gateway.cli.options import gateway_config_option, load_without_keys, print_qr, write_qr

if TYPE_CHECKING:
    from gateway.config import GatewayConfig
    from gateway.devices import Access, AddedDevices, Issuer
    from gateway.tokens import StoredToken

Function = TypeVar("Function", bound=Callable[..., Any])

_DAY_S = 86_400.0


@click.group()
def devices() -> None:
    """Give devices their tokens, and take them back. The running gateway follows at once."""


def handout_options(command: Function) -> Function:
    """What a device is given beside the token itself."""
    options = (
        click.option("--qr", is_flag=True, help="Show address and token as a QR symbol instead of text."),
        click.option(
            "--qr-png",
            type=click.Path(path_type=Path, dir_okay=False),
            help="Write the QR symbol to this PNG file, mode 600. For one device.",
        ),
        click.option(
            "--config-out",
            type=click.Path(path_type=Path, file_okay=False),
            help="Write a ready configuration of the agent and its token file into this folder; with several devices "
            "into a folder for each.",
        ),
        click.option(
            "--url",
            help="How devices reach the HTTP front, such as https://gateway.example.com:8443. Default: where it "
            "listens, when that is loopback.",
        ),
        click.option("--broker", help="How devices reach the broker, HOST or HOST:PORT, for devices that speak MQTT."),
        click.option(
            "--ca",
            type=click.Path(path_type=Path, dir_okay=False),
            help="The authority that devices shall trust. Default: ca.pem beside the gateway's own certificate, if it "
            "is there.",
        ),
        click.option("--plain", is_flag=True, help="The broker or the address has no TLS: for a closed test network."),
        click.option(
            "--device-dir",
            type=click.Path(path_type=Path, file_okay=False),
            default=Path("/etc/device-agent"),
            show_default=True,
            help="Where the files will lie on the device.",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


@devices.command()
@gateway_config_option
@json_option
@click.option("--device-id", help="The id of a device that the service knows.")
@click.option("--product-id", help="Register the device at the service first: its product.")
@click.option("--identifier", help="Register: the identifier on the device's label, such as a serial number.")
@click.option("--user-id", help="Register: the user account that the device belongs to.")
@click.option("--name", help="Register: a name for people.")
@click.option(
    "--from",
    "csv_path",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Many devices: a CSV file with the columns device_id, or product_id, identifier, user_id and name.",
)
@click.option("--check/--no-check", default=True, help="Ask the service whether it knows the device ids.")
@handout_options
@acts_for_owners
def add(
    *,
    config_path: Path,
    as_json: bool,
    device_id: str | None,
    product_id: str | None,
    identifier: str | None,
    user_id: str | None,
    name: str | None,
    csv_path: Path | None,
    check: bool,
    **given: Any,
) -> None:
    """Give a device its token, shown this once. The service's device id is enough; or register the device by its label.

    Exit codes: 0 good, 1 some devices got none or the service refused, 2 usage or configuration (then nothing was
    done), 5 the service cannot be reached.
    """
    from gateway.devices import read_csv, service_client, wanted_device

    with _ending_well():
        config = load_without_keys(config_path)
        if csv_path is not None:
            if device_id or product_id or identifier or user_id or name:
                raise click.UsageError("--from brings the devices: leave the options for one device out")
            wanted = read_csv(csv_path)
        else:
            wanted = [
                wanted_device(
                    device_id=device_id, product_id=product_id, identifier=identifier, user_id=user_id, name=name
                )
            ]
        issuer = _issuer(config, given, several=csv_path is not None)
        if check or any(each.device_id is None for each in wanted):
            with service_client(config.service, config.auth.credentials(os.environ)) as client:
                added = issuer.add(wanted, client, check=check)
        else:
            added = issuer.add(wanted, None, check=False)
    _show(added, issuer.access, config, given, as_json=as_json)
    if csv_path is None and added.kept:
        click.echo(
            bounded(f"{added.kept[0]} has a token already: device-gateway devices rotate {added.kept[0]}"),
            err=True,
        )
    if added.failed or (csv_path is None and added.kept):
        raise SystemExit(EXIT_CHECK_FAILED)


@devices.command("list")
@gateway_config_option
@json_option
@click.option("--all", "show_all", is_flag=True, help="Also devices without a valid token.")
def list_devices(*, config_path: Path, as_json: bool, show_all: bool) -> None:
    """List the devices with the state of their tokens; a token itself is never shown again."""
    from gateway.devices import with_tokens

    now_s = time.time()
    with _ending_well():
        config = load_without_keys(config_path)
        found = with_tokens(config.state_dir, lambda tokens: _listed(tokens.tokens(), now_s, show_all=show_all))
    if as_json:
        print_json(found)
        return
    rows = [tuple("-" if value is None else value for value in each.values()) for each in found]
    print_table(("device", "state", "issued", "last used", "old token until"), rows)
    click.echo(f"{len(found)} device(s)")


def _listed(tokens: list[StoredToken], now_s: float, *, show_all: bool) -> list[dict[str, Any]]:
    """One entry for each device: the state of its newest token, and when any of its tokens was used last."""
    by_device: dict[str, list[StoredToken]] = {}
    for token in tokens:
        by_device.setdefault(token.device_id, []).append(token)
    found = []
    for device_id, own in by_device.items():
        if show_all or any(token.is_valid(now_s) for token in own):
            used = [token.last_used_at for token in own if token.last_used_at is not None]
            old = [token.ends_at for token in own[:-1] if token.is_valid(now_s) and token.ends_at is not None]
            entry = {
                "device_id": device_id,
                "state": own[-1].state(now_s),
                "issued_at": to_rfc3339(own[-1].created_at),
                "last_used_at": to_rfc3339(max(used)) if used else None,
                "old_token_until": to_rfc3339(max(old)) if old else None,
            }
            found.append(entry)
    return found


@devices.command()
@gateway_config_option
@json_option
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
@handout_options
@acts_for_owners
def rotate(
    *, config_path: Path, as_json: bool, device_ids: tuple[str, ...], every: bool, overlap_s: float, **given: Any
) -> None:
    """Give each DEVICE_ID another token. The old one is good until the new one is used, for a day at the most."""
    from gateway.devices import with_tokens

    if every == bool(device_ids):
        raise click.UsageError("name the devices, or give --all")
    with _ending_well():
        config = load_without_keys(config_path)
        chosen = list(dict.fromkeys(device_ids))
        if every:
            chosen = with_tokens(config.state_dir, lambda tokens: tokens.device_ids())
        issuer = _issuer(config, given, several=every or len(chosen) > 1)
        added = issuer.rotate(chosen, overlap_s)
    _show(added, issuer.access, config, given, as_json=as_json)


@devices.command()
@gateway_config_option
@json_option
@click.argument("device_ids", nargs=-1, required=True, metavar="DEVICE_ID...")
def revoke(*, config_path: Path, as_json: bool, device_ids: tuple[str, ...]) -> None:
    """Take back all tokens of each DEVICE_ID: refused over HTTP at once, at the broker after broker-update.

    Exit code 1 when one of the devices had no valid token.
    """
    from gateway.devices import with_tokens

    with _ending_well():
        config = load_without_keys(config_path)
        revoked = with_tokens(config.state_dir, lambda tokens: {each: tokens.revoke(each) for each in device_ids})
    if as_json:
        print_json(revoked)
    for device_id, count in revoked.items():
        if not as_json and count:
            click.echo(f"{device_id}: {count} token(s) revoked")
        elif not count:
            click.echo(bounded(f"{device_id} has no valid token"), err=True)
    _print_broker_hint(config, any(revoked.values()))
    if not all(revoked.values()):
        raise SystemExit(EXIT_CHECK_FAILED)


for _command in (invite, invites, uninvite):
    devices.add_command(_command)


@contextmanager
def _ending_well() -> Iterator[None]:
    """A wrong configuration and a service that does not answer end the program with one line for each fault."""
    with configuration_faults_end_it():
        try:
            yield
        except ServiceError as error:
            click.echo(bounded(f"the service: {error}"), err=True)
            is_away = error.advice is Advice.RETRY
            raise SystemExit(EXIT_UNREACHABLE if is_away else EXIT_CHECK_FAILED) from None


def _issuer(config: GatewayConfig, given: dict[str, Any], *, several: bool) -> Issuer:
    from gateway.devices import Issuer, Place, gateway_access

    if several and given["qr_png"] is not None:
        raise click.UsageError("--qr-png is for one device: one picture holds one token")
    directory = given["config_out"]
    needs_address = directory is not None or given["qr"] or given["qr_png"] is not None
    access = gateway_access(
        config, given["url"], given["broker"], given["ca"], plain=given["plain"], needed=needs_address
    )
    place = None
    if directory is not None:
        place = Place(directory, given["device_dir"].absolute(), several)
    return Issuer(config.state_dir, access, place, secrets.token_bytes)


def _show(added: AddedDevices, access: Access, config: GatewayConfig, given: dict[str, Any], *, as_json: bool) -> None:
    from gateway.devices import qr_text

    if given["qr_png"] is not None and added.issued:
        device_id = added.issued[0].device_id
        try:
            write_qr(given["qr_png"], qr_text(added.issued[0], access))
        except OSError as error:
            again = f"device-gateway devices rotate {device_id} --qr-png FILE"
            text = (
                f"{given['qr_png']} cannot be written: {error.strerror}; nobody has seen the token of {device_id}: "
                f"make room there, or name another file, and run {again}"
            )
            click.echo(bounded(text), err=True)
            raise SystemExit(EXIT_CHECK_FAILED) from None
    if as_json:
        print_json(_as_json(added))
    else:
        _show_text(added, access, given)
    for line in added.failed:
        click.echo(bounded(line), err=True)
    _print_broker_hint(config, bool(added.issued))


def _show_text(added: AddedDevices, access: Access, given: dict[str, Any]) -> None:
    from gateway.devices import qr_text

    for issued in added.issued:
        what = f"{issued.device_id} (registered)" if issued.registered else issued.device_id
        if given["qr"]:
            click.echo(what)
            print_qr(qr_text(issued, access))
        elif issued.lines:
            click.echo("\n".join([what, *(f"  {line}" for line in issued.lines)]))
        elif given["qr_png"] is not None:
            click.echo(f"{what}: its token is in {given['qr_png']}")
        else:
            click.echo(f"{what}: {issued.token.reveal()}")
    if added.kept and len(added.issued) + len(added.kept) > 1:
        click.echo(f"{len(added.kept)} device(s) had a token already and keep it")


def _as_json(added: AddedDevices) -> dict[str, Any]:
    return {
        "issued": [
            {
                "device_id": issued.device_id,
                "token": issued.token.reveal(),
                "registered": issued.registered,
            }
            for issued in added.issued
        ],
        "kept": added.kept,
        "failed": added.failed,
    }


def _print_broker_hint(config: GatewayConfig, changed: bool) -> None:
    if not changed or not config.mqtt.enabled:
        return
    from gateway.devices import request_broker_update

    with suppress(OSError):  # the line below says what to do by hand
        as_owner_of(config.state_dir, lambda: request_broker_update(config.state_dir))
    text = "for MQTT: device-gateway-broker.path brings this to the broker; where it does not run: broker-update"
    click.echo(bounded(text), err=True)
