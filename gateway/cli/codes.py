"""``device-gateway devices invite``, ``invites`` and ``uninvite``."""

from __future__ import annotations

import secrets
import time
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from agent.cli.lazy import acts_for_owners
from agent.cli.options import configuration_faults_end_it, json_option, print_json, print_table
from agent.error_text import bounded
from agent.exit_codes import EXIT_CHECK_FAILED
from agent.process.identity import as_owner_of
from gateway.cli.options import gateway_config_option, load_without_keys, print_qr, read_duration, write_qr

if TYPE_CHECKING:
    from gateway.codes import Code
    from gateway.tokens import Tokens

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
    from agent.wire.enrollment import LABEL_PREFIX
    from gateway.certificates import shown_certificate
    from gateway.codes import Codes, Terms
    from gateway.devices import gateway_access, with_tokens

    with configuration_faults_end_it():
        config = load_without_keys(config_path)
        reach = gateway_access(config, given["url"], given["broker"], given["ca"], plain=given["plain"], needed=True)
        url = reach.url or ""
        shown = shown_certificate(url, certificate or config.http.certificate, plain=reach.plain)
        path = reach.authority
        authority = None if path is None else as_owner_of(path, partial(path.read_text, encoding="ascii"))
        terms = Terms(
            device_id=device_id,
            product_id=product_id,
            user_id=user_id,
            name=name,
            replace=replace,
            # A device that is to speak MQTT needs the HTTP front for this one request only.
            url=None if reach.broker else reach.url,
            broker=reach.broker,
            authority=authority,
            plain=reach.plain,
        )

        def make(tokens: Tokens) -> tuple[str, str, float]:
            code, made = Codes(tokens).make(terms, expires, count, shown, time.time(), secrets.token_bytes)
            return str(code), made.code_id, made.expires_at

        code, code_id, expires_at = with_tokens(config.state_dir, make)
    text = f"{LABEL_PREFIX}{url} {code}"
    if qr_png is not None:
        try:
            write_qr(qr_png, text)
        except OSError as error:
            fault = (
                f"{qr_png} cannot be written: {error.strerror}; name another file; the code below is good all the same"
            )
            click.echo(bounded(fault), err=True)
    if as_json:
        print_json(
            {
                "invite_id": code_id,
                "code": code,
                "url": url,
                "label": text,
                "count": count,
                "expires_at": _time(expires_at),
            }
        )
        return
    click.echo(code)
    click.echo(f"good until {_time(expires_at)} for {count} device(s); on the device, as root:")
    click.echo(f"  device-agent enroll {url}     (it asks for the code)")
    if qr:
        print_qr(text)
    if config.mqtt.enabled and reach.broker is not None:
        text = "for MQTT: device-gateway-broker.path brings each device to the broker"
        click.echo(bounded(f"{text}; where it does not run: broker-update"), err=True)


@click.command()
@gateway_config_option
@json_option
@click.option("--all", "show_all", is_flag=True, help="Also those that are used, expired or taken back.")
def invites(*, config_path: Path, as_json: bool, show_all: bool) -> None:
    """List the codes that are open, by an id that says nothing of the code."""
    from gateway.codes import Codes
    from gateway.devices import with_tokens

    now_s = time.time()
    with configuration_faults_end_it():
        state_dir = load_without_keys(config_path).state_dir
        found = with_tokens(state_dir, lambda tokens: [_members(each, now_s) for each in Codes(tokens).all()])
    found = [each for each in found if show_all or each["state"] == "open"]
    if as_json:
        print_json(found)
        return
    rows = [
        (
            each["invite_id"],
            each["state"],
            f"{each['enrolled']} of {each['count']}",
            each["expires_at"],
            each["device_id"] or each["product_id"] or "",
        )
        for each in found
    ]
    print_table(("invite", "state", "enrolled", "expires", "device or product"), rows)


def _members(code: Code, now_s: float) -> dict[str, Any]:
    return {
        "invite_id": code.code_id,
        "state": code.state(now_s),
        "enrolled": code.enrolled,
        "count": code.count,
        "created_at": _time(code.created_at),
        "expires_at": _time(code.expires_at),
        "device_id": code.terms.device_id,
        "product_id": code.terms.product_id,
    }


@click.command()
@gateway_config_option
@click.argument("invite_ids", nargs=-1, required=True, metavar="INVITE_ID...")
def uninvite(*, config_path: Path, invite_ids: tuple[str, ...]) -> None:
    """Take back the code of each INVITE_ID, used ones too; devices that have enrolled with them keep their tokens.

    Exit code 1 when one of them was not good any more.
    """
    from gateway.codes import Codes
    from gateway.devices import with_tokens

    def revoke(tokens: Tokens) -> list[str]:
        return [each for each in invite_ids if not Codes(tokens).revoke(each, time.time())]

    with configuration_faults_end_it():
        missing = with_tokens(load_without_keys(config_path).state_dir, revoke)
    for each in missing:
        click.echo(
            bounded(f"{each}: no open or used code has this id; device-gateway devices invites --all lists them"),
            err=True,
        )
    if missing:
        raise SystemExit(EXIT_CHECK_FAILED)


def _time(epoch_s: float) -> str:
    return f"{datetime.fromtimestamp(epoch_s, UTC):%Y-%m-%dT%H:%M:%SZ}"
