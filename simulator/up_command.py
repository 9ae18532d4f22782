"""``fleet-simulator up``: starts everything, and prints what a person or a program needs to go on."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from typing import Any, Final

import click

from simulator.exit_codes import ExitCode
from simulator.interrupts import terminations_as_interrupts
from simulator.keys import curl_line
from simulator.options import make_options, take_settings
from simulator.up import MODEL, Up, UpSettings, running_up

_LOOK_S: Final = 1.0


def show_json(up: Up, _settings: UpSettings) -> None:
    """Addresses and keys as one JSON object."""
    keys, trial = up.keys, up.trial
    document: dict[str, object] = {
        "base_url": up.base_url,
        "api_key": keys.api_key,
        "secret_key": keys.secret_key.reveal(),
        "console_url": up.console_url,
        "device_ids": [device.device_id for device in up.devices],
    }
    if trial is not None:
        document |= {
            "gateway_url": trial.gateway.url,
            "enroll": up.enroll,
            "mqtt_port": trial.broker.port,
            "broker": trial.broker.name,
            "own_devices": [
                {
                    "transport": device.transport,
                    "device_id": device.device_id,
                    "device_token": device.token,
                    "agent_config": str(device.agent_config),
                }
                for device in trial.devices
            ],
        }
    click.echo(json.dumps(document))


def show_screen(up: Up, settings: UpSettings) -> None:
    """What runs, the console, and commands to paste: one screen."""
    secret = f"in {up.keys.secret_path}" if settings.data_dir else up.keys.secret_key.reveal()
    data = settings.data_dir or "in a temporary folder, gone at the end"
    lines = [("Console", f"{up.console_url}\n")] if up.console_url else []
    if settings.console and not up.console_url:
        lines = [("Console", "none: its pages are for this machine; --host 0.0.0.0 serves it as well\n")]
    lines += [("Service", f"{up.base_url}   data {data}"), ("Keys", f"{up.keys.api_key}   secret {secret}")]
    if up.trial is not None:
        lines.append(("Gateway", f"{up.trial.gateway.url}   alone holds the keys; devices come with tokens"))
        lines.append(("Broker", f"mqtt://127.0.0.1:{up.trial.broker.port}   {up.trial.broker.name}"))
    if up.devices or up.trial:
        waiting = " and 2 that wait for an agent of yours" if up.trial else ""
        lines.append(("Devices", f"{len(up.devices)} virtual{waiting}"))
    for name, text in lines:
        click.echo(f"{name:<9} {text}")
    click.echo("\nPaste into another terminal:")
    for text in _commands(up):
        click.echo(f"  {text}")
    if up.enroll:
        click.echo(f"\nOn the board, with device-agent installed, within an hour:\n  {up.enroll}")
    needed = round(settings.devices * (60 / MODEL.wait_s + 60 / MODEL.interval_s))  # held polls, and readings
    if 0 < settings.rate_limit < needed:
        click.echo(
            f"\nThe devices need about {needed} requests a minute and the quota is {settings.rate_limit}: the service "
            "will make them wait; raise --rate-limit"
        )
    click.echo("\nCtrl-C ends it.")


def _commands(up: Up) -> list[str]:
    """A real agent for each device that waits for one; a command to a device, and what came of it."""
    if up.trial is None and not up.devices:
        product = json.dumps({"name": "My product"})
        first = curl_line(up.base_url, up.keys, "/products", product)
        return [first, *(curl_line(up.base_url, up.keys, path) for path in ("/products", "/devices"))]
    agents = [device.agent for device in up.trial.devices] if up.trial else []
    device_id = up.trial.devices[0].device_id if up.trial else up.devices[0].device_id
    command = json.dumps({"device_id": device_id, "command_payload": {"command": "ping"}})
    send = curl_line(up.base_url, up.keys, "/commands/send", command)
    return [*agents, send, curl_line(up.base_url, up.keys, f"/devices/{device_id}/commands")]


@click.command(
    "up", params=make_options(UpSettings), short_help="Service, gateway and devices on this machine, until Ctrl-C."
)
@click.option("--json", "as_json", is_flag=True, help="Print addresses and keys as one JSON object.")
@click.pass_context
def up_command(context: click.Context, /, *, as_json: bool, **given: Any) -> int:
    """Start service, broker and gateway on this machine, and virtual devices when asked for; Ctrl-C ends everything.

    Prints one screen: what runs, the console's address, and commands to paste, such as a real agent over MQTT and one
    over HTTP.

    Exit codes: 0 ended by Ctrl-C, 1 one of them ended by itself and so all did, 2 the settings cannot be used, 5
    service, broker or gateway could not be started.
    """
    defaulted = {name for name in given if context.get_parameter_source(name) is click.core.ParameterSource.DEFAULT}
    chosen = {name: value for name, value in take_settings(UpSettings, given).items() if name not in defaulted}
    settings = UpSettings(**chosen)
    with contextlib.suppress(KeyboardInterrupt), terminations_as_interrupts(), running_up(settings) as up:
        (show_json if as_json else show_screen)(up, settings)
        sys.stdout.flush()
        while True:
            time.sleep(_LOOK_S)
            up.look()
    click.echo("ended", err=True)
    return ExitCode.GOOD
