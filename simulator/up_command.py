"""``fleet-simulator up``: starts everything, and prints what a person or a program needs to go on."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from typing import Any, Final

import click

from agent.error_text import bounded
from agent.errors import AgentError, ConfigurationError
from simulator.exit_codes import ExitCode, exit_code_of
from simulator.fleet.device.model import DeviceModel
from simulator.gateway.trial import MQTT
from simulator.interrupts import terminations_as_interrupts
from simulator.keys import curl_line
from simulator.options import make_options, take_settings
from simulator.up import Up, UpSettings, running_up

Line = tuple[str, str]
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
        "other_accounts": [{"api_key": one.api_key, "secret_key": one.secret_key.reveal()} for one in up.others],
    }
    if trial is not None:
        document |= {
            "gateway_url": trial.url,
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
    """What runs, the console, three commands to paste: one screen."""
    secret = f"in {up.keys.secret_path}" if settings.data_dir else up.keys.secret_key.reveal()
    lines = [("Console", f"{up.console_url}\n")] if up.console_url else []
    if settings.console and not up.console_url:
        lines = [("Console", "none: its pages are for this machine; --host 0.0.0.0 serves it as well\n")]
    lines += [
        ("Service", f"{up.base_url}   data {_where(settings)}"),
        ("Keys", f"{up.keys.api_key}   secret {secret}"),
    ]
    if up.trial is not None:
        lines.append(("Gateway", f"{up.trial.url}   alone holds the keys; devices come with tokens"))
        lines.append(("Broker", f"mqtt://127.0.0.1:{up.trial.broker.port}   {up.trial.broker.name}"))
    if up.devices or up.trial:
        waiting = " and 2 that wait for an agent of yours" if up.trial else ""
        lines.append(("Devices", f"{len(up.devices)} virtual{waiting}"))
    _print(lines, 9)
    click.echo("\nPaste into another terminal:")
    for _, text in _three_commands(up):
        click.echo(f"  {text}")
    if up.enroll:
        click.echo(f"\nOn the board, with device-agent installed, within an hour:\n  {up.enroll}")
    place = "is in the console; up --verbose prints it." if up.console_url else "is printed by up --verbose."
    click.echo(f"\nEverything else {place}")
    _end(settings)


def show_all(up: Up, settings: UpSettings) -> None:
    """Every address, key and line to paste, a name before each."""
    lines = [("service", up.base_url)]
    lines += [("console", up.console_url)] if up.console_url else []
    lines += [("data", _where(settings)), ("api key", up.keys.api_key), ("secret key", up.keys.secret_key.reveal())]
    for number, other in enumerate(up.others, 2):
        text = f"api key {other.api_key}, secret key {other.secret_key.reveal()}"
        lines.append((f"account {number}", text))
    lines.append(("devices", f"{len(up.devices)} virtual ones" if up.devices else "none; --devices 10 adds some"))
    lines.append(("products", curl_line(up.base_url, up.keys, "/products")))
    lines += _lines_of_device(up) if up.devices else []
    lines += up.trial.lines(up.base_url, up.keys) if up.trial else []
    lines += [("enroll", up.enroll)] if up.enroll else []
    _print(lines, 11)
    _end(settings)


def _where(settings: UpSettings) -> str:
    return str(settings.data_dir or "in a temporary folder, gone at the end")


def _print(lines: list[Line], width: int) -> None:
    for name, text in lines:
        click.echo(f"{name:<{width}} {text}")


def _three_commands(up: Up) -> list[Line]:
    """With a gateway a real agent, a command to it and what came of it; else the same with a virtual device."""
    if up.trial is not None:
        device = next(one for one in up.trial.devices if one.transport == MQTT)
        return device.lines(up.base_url, up.keys)[:3]
    if up.devices:
        return [("devices", curl_line(up.base_url, up.keys, "/devices")), *_lines_of_device(up)]
    product = json.dumps({"name": "My product"})
    paths = (("/products", product), ("/products", None), ("/devices", None))
    return [(path, curl_line(up.base_url, up.keys, path, body)) for path, body in paths]


def _lines_of_device(up: Up) -> list[Line]:
    device_id = up.devices[0].device_id
    command = json.dumps({"device_id": device_id, "command_payload": {"command": "ping"}})
    return [
        ("send", curl_line(up.base_url, up.keys, "/commands/send", command)),
        ("look", curl_line(up.base_url, up.keys, f"/devices/{device_id}/commands")),
    ]


def quota_needed(devices: int, interval_s: float, wait_s: float) -> int:
    """Requests in a minute that so many quiet devices make: their held polls and their readings."""
    return round(devices * (60 / wait_s + 60 / interval_s))


def _end(settings: UpSettings) -> None:
    needed = quota_needed(settings.devices, settings.interval_s, DeviceModel().wait_s)
    if 0 < settings.rate_limit < needed:
        click.echo(
            f"note        the devices need about {needed} requests a minute and the quota is {settings.rate_limit}: "
            "the service will make them wait; raise --rate-limit or --interval",
        )
    click.echo("Ctrl-C ends it.")


@click.command(
    "up", params=make_options(UpSettings), short_help="Service, gateway and devices on this machine, until Ctrl-C."
)
@click.option(
    "--verbose", is_flag=True, help="Print every address, key and line to paste, one on each line, not one screen."
)
@click.option("--json", "as_json", is_flag=True, help="Print addresses and keys as one JSON object.")
@click.pass_context
def up_command(context: click.Context, /, *, verbose: bool, as_json: bool, **given: Any) -> int:
    """Start service, broker and gateway on this machine, and virtual devices when asked for; Ctrl-C ends everything.

    Prints one screen: what runs, the console's address, three commands to paste. Everything else is in the console, and
    printed with --verbose: lines to paste for an agent over MQTT and one over HTTP, and for commands to both.

    Exit codes: 0 ended by Ctrl-C, 1 one of them ended by itself and so all did, 2 the settings cannot be used, 5
    service, broker or gateway could not be started.
    """
    defaulted = {name for name in given if context.get_parameter_source(name) is click.core.ParameterSource.DEFAULT}
    chosen = {name: value for name, value in take_settings(UpSettings, given).items() if name not in defaulted}
    show = show_json if as_json else show_all if verbose else show_screen
    try:
        settings = UpSettings(**chosen)
        with contextlib.suppress(KeyboardInterrupt), terminations_as_interrupts(), running_up(settings) as up:
            show(up, settings)
            sys.stdout.flush()
            while True:
                time.sleep(_LOOK_S)
                up.look()
    except ConfigurationError as error:
        for fault in error.faults:
            click.echo(bounded(f"fleet-simulator up: {fault}"), err=True)
        return ExitCode.USAGE
    except AgentError as error:
        click.echo(bounded(f"fleet-simulator up: {error}"), err=True)
        return exit_code_of(error)
    click.echo("ended", err=True)
    return ExitCode.GOOD
