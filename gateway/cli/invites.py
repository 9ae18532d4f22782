"""``device-gateway devices invite``, ``invites`` and ``uninvite``."""

from __future__ import annotations

import secrets
import sys
import time
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

import click

from agent.cli.lazy import acts_for_owners
from agent.cli.options import configuration_faults_end_it, json_option, print_json, print_table
from agent.error_text import bounded
from agent.exit_codes import EXIT_CHECK_FAILED
from agent.process.identity import as_owner_of
from agent.terminal import unescaped
from gateway.cli.options import gateway_config_option, load_without_keys, read_duration

_MOST: Final = 100_000


@click.command()
@gateway_config_option
@json_option
@click.option("--product-id", help="Register each device that enrolls at the service: its product.")
@click.option("--user-id", help="Register: the user account that the devices belong to.")
@click.option("--name", help="Register: a name for people; a device may say one of its own.")
@click.option("--device-id", help="Instead of registering: the id of the one device that the code is for.")
@click.option(
    "--count",
    type=click.IntRange(1, _MOST),
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
@click.option("--url", help="How devices reach the HTTP front. Default: where it listens, when that is loopback.")
@click.option("--broker", help="Enrolled devices speak MQTT: how they reach the broker, HOST or HOST:PORT.")
@click.option(
    "--ca",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The authority that devices shall trust. Default: ca.pem beside the gateway's certificate, if it is there.",
)
@click.option(
    "--certificate",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The certificate that devices are shown, where a proxy has another one than the gateway.",
)
@click.option("--plain", is_flag=True, help="The address has no TLS: for a closed test network.")
@click.option("--qr", is_flag=True, help="Show address and code as a QR symbol too.")
@click.option(
    "--qr-png", type=click.Path(path_type=Path, dir_okay=False), help="Write the QR symbol to this PNG file, mode 600."
)
@acts_for_owners
def invite(
    *,
    config_path: Path,
    as_json: bool,
    product_id: str | None,
    user_id: str | None,
    name: str | None,
    device_id: str | None,
    count: int,
    replace: bool,
    expires: float,
    certificate: Path | None,
    qr: bool,
    qr_png: Path | None,
    **given: Any,
) -> None:
    """Print a code with which a device enrolls: device-agent enroll URL. It is shown this once.

    The identifier of a device that holds a valid token is refused, unless it comes again within ten minutes, or with
    --replace or --device-id.
    """
    from agent.wire.enrollment import label_text
    from gateway.certificates import shown_certificate
    from gateway.devices.enrolling import InviteTerms
    from gateway.devices.enrolling import invite as make_invite
    from gateway.devices.invite_file import InviteAccess, WantedByInvite
    from gateway.devices.issuing import gateway_access

    with configuration_faults_end_it():
        config = load_without_keys(config_path)
        reach = gateway_access(config, given["url"], given["broker"], given["ca"], plain=given["plain"], needed=True)
        url = reach.url or ""
        shown = shown_certificate(url, certificate or config.http.certificate, plain=reach.plain)
        path = reach.authority
        authority = None if path is None else as_owner_of(path, partial(path.read_text, encoding="ascii"))
        terms = InviteTerms(
            WantedByInvite(device_id, product_id, user_id, name, replace),
            # A device that is to speak MQTT needs the HTTP front for this one request only.
            InviteAccess(None if reach.broker else reach.url, reach.broker, authority, reach.plain),
            expires,
            count,
        )
        code, made = make_invite(config.state_dir, terms, shown, time.time(), secrets.token_bytes)
    text = label_text(url, code)
    if qr_png is not None:
        _write_png(qr_png, text)
    if as_json:
        print_json(
            {
                "invite_id": made.invite_id,
                "code": str(code),
                "url": url,
                "label": text,
                "count": made.count,
                "expires_at": _time(made.expires_at),
            }
        )
        return
    click.echo(f"{code}")
    click.echo(f"good until {_time(made.expires_at)} for {made.count} device(s); on the device, as root:")
    click.echo(f"  device-agent enroll {url}     (it asks for the code)")
    if qr:
        from gateway.devices.qr import draw_text, make_symbol

        print(draw_text(make_symbol(text), colours=sys.stdout.isatty()), file=unescaped(sys.stdout))
    if config.mqtt.enabled and reach.broker is not None:
        text = "for MQTT: device-gateway-broker.path brings each device to the broker"
        click.echo(bounded(f"{text}; where it does not run: broker-update"), err=True)


@click.command()
@gateway_config_option
@json_option
@click.option("--all", "show_all", is_flag=True, help="Also those that are used, expired or taken back.")
def invites(*, config_path: Path, as_json: bool, show_all: bool) -> None:
    """List the codes that are open, by an id that says nothing of the code."""
    from gateway.devices.invite_file import FILE_NAME, InviteFile

    now_s = time.time()
    with configuration_faults_end_it(), InviteFile(load_without_keys(config_path).state_dir / FILE_NAME) as file:
        found = [each for each in file.invites() if show_all or each.state(now_s) == "open"]
    if as_json:
        members = [
            {
                "invite_id": each.invite_id,
                "state": each.state(now_s),
                "enrolled": each.enrolled,
                "count": each.count,
                "created_at": _time(each.created_at),
                "expires_at": _time(each.expires_at),
                "device_id": each.wanted.device_id,
                "product_id": each.wanted.product_id,
            }
            for each in found
        ]
        print_json(members)
        return
    rows = [
        (
            each.invite_id,
            each.state(now_s),
            f"{each.enrolled} of {each.count}",
            _time(each.expires_at),
            each.wanted.device_id or each.wanted.product_id or "",
        )
        for each in found
    ]
    print_table(("invite", "state", "enrolled", "expires", "device or product"), rows)


@click.command()
@gateway_config_option
@click.argument("invite_ids", nargs=-1, required=True, metavar="INVITE_ID...")
def uninvite(*, config_path: Path, invite_ids: tuple[str, ...]) -> None:
    """Take back the code of each INVITE_ID, used ones too; devices that have enrolled with them keep their tokens.

    Exit code 1 when one of them was not good any more.
    """
    from gateway.devices.invite_file import FILE_NAME, InviteFile

    with configuration_faults_end_it(), InviteFile(load_without_keys(config_path).state_dir / FILE_NAME) as file:
        missing = [each for each in invite_ids if not file.revoke(each, time.time())]
    for each in missing:
        click.echo(
            bounded(f"{each}: no open or used code has this id; device-gateway devices invites --all lists them"),
            err=True,
        )
    if missing:
        raise SystemExit(EXIT_CHECK_FAILED)


def _write_png(path: Path, text: str) -> None:
    from agent.adapters.files import replace_file
    from gateway.devices.qr import draw_png, make_symbol

    try:
        picture = draw_png(make_symbol(text))
        as_owner_of(path, lambda: replace_file(path, picture, 0o600))
    except OSError as error:
        text = f"{path} cannot be written: {error.strerror}; name another file; the code below is good all the same"
        click.echo(bounded(text), err=True)


def _time(epoch_s: float) -> str:
    return f"{datetime.fromtimestamp(epoch_s, UTC):%Y-%m-%dT%H:%M:%SZ}"
