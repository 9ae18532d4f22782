"""What ``fleet-simulator up`` prints once everything stands."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

import click

from simulator.config import UpSettings, quota_needed
from simulator.control.options import DEFAULT_URL
from simulator.fleet.device.model import DeviceModel
from simulator.fleet.runner import DeviceIdentity
from simulator.gateway.trial import MQTT, Trial
from simulator.keys import Keys, curl_line

_ELSE: Final = "up --verbose prints everything else."


class Style(Enum):
    """How it is printed."""

    SCREEN = auto()
    """What runs, the console, three commands to paste: one screen."""
    VERBOSE = auto()
    """Every address, key and line to paste, a name before each."""
    JSON = auto()


@dataclass(frozen=True, slots=True)
class RunningParts:
    """What runs and how to reach it.

    Attributes:
        devices: the virtual ones.
        trial: broker and gateway; None without them.
        others: the keys of the accounts beside the first one.
        console_url: opens the console once; None without it.
    """

    base_url: str
    keys: Keys
    devices: tuple[DeviceIdentity, ...]
    trial: Trial | None = None
    others: tuple[Keys, ...] = ()
    console_url: str | None = None


def print_startup(running: RunningParts, settings: UpSettings, style: Style) -> None:
    """Print it on standard output."""
    if style is Style.JSON:
        click.echo(json.dumps(_document(running)))
    else:
        lines = _screen(running, settings) if style is Style.SCREEN else _all_lines(running, settings)
        for line in lines:
            click.echo(line)
        _warn_of_quota(settings)
        click.echo("Ctrl-C ends it.")
    sys.stdout.flush()


def _document(running: RunningParts) -> dict[str, object]:
    keys = running.keys
    document: dict[str, object] = {
        "base_url": running.base_url,
        "api_key": keys.api_key,
        "secret_key": keys.secret_key.reveal(),
        "console_url": running.console_url,
        "device_ids": [device.device_id for device in running.devices],
        "other_accounts": [
            {"api_key": other.api_key, "secret_key": other.secret_key.reveal()} for other in running.others
        ],
    }
    if running.trial is not None:
        trial = running.trial
        document |= {
            "gateway_url": trial.url,
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
    return document


def _screen(running: RunningParts, settings: UpSettings) -> list[str]:
    keys, trial = running.keys, running.trial
    secret = f"in {keys.secret_path}" if keys.secret_path else keys.secret_key.reveal()
    lines = []
    if running.console_url is not None:
        lines += [
            f"Console   {running.console_url}",
            f"          opens once, within 15 minutes; again: fleet-simulator console{_base_url_option(running)}",
            "",
        ]
    lines += [
        f"Service   {running.base_url}   data {settings.data_dir or 'in a temporary folder, gone at the end'}",
        f"Keys      {keys.api_key}   secret {secret}",
    ]
    if trial is not None:
        lines.append(f"Gateway   {trial.url}   alone holds the keys; devices come with tokens")
        lines.append(f"Broker    mqtt://127.0.0.1:{trial.broker.port}   {trial.broker.name}")
    waiting = " and 2 that wait for an agent of yours" if trial is not None else ""
    if running.devices or waiting:
        lines.append(f"Devices   {len(running.devices)} virtual{waiting}")
    lines += ["", "Paste into another terminal:", *(f"  {text}" for text in _three_commands(running)), ""]
    everything = "Everything else is in the console; up --verbose prints it." if running.console_url else _ELSE
    return [*lines, everything]


def _base_url_option(running: RunningParts) -> str:
    return "" if running.base_url == DEFAULT_URL else f" --base-url {running.base_url}"


def _three_commands(running: RunningParts) -> list[str]:
    """With a gateway a real agent, a command to it and what came of it; else the same with a virtual device."""
    keys, url, trial = running.keys, running.base_url, running.trial
    if trial is not None:
        device = next(one for one in trial.devices if one.transport == MQTT)
        return [text for _, text in device.lines(url, keys)[:3]]
    if not running.devices:
        product = json.dumps({"name": "My product"})
        paths = [("/products", product), ("/products", None), ("/devices", None)]
        return [curl_line(url, keys, path, body) for path, body in paths]
    device_id = running.devices[0].device_id
    command = json.dumps({"device_id": device_id, "command_payload": {"command": "ping"}})
    return [
        curl_line(url, keys, "/devices"),
        curl_line(url, keys, "/commands/send", command),
        curl_line(url, keys, f"/devices/{device_id}/commands"),
    ]


def _all_lines(running: RunningParts, settings: UpSettings) -> list[str]:
    keys = running.keys
    device_id = running.devices[0].device_id if running.devices else None
    lines = [
        ("service", running.base_url),
        *([("console", f"{running.console_url}   (opens once, within 15 minutes)")] if running.console_url else []),
        ("data", str(settings.data_dir or "in a temporary folder, gone at the end")),
        ("api key", keys.api_key),
        ("secret key", keys.secret_key.reveal()),
        *(
            (f"account {number}", f"api key {other.api_key}, secret key {other.secret_key.reveal()}")
            for number, other in enumerate(running.others, 2)
        ),
        ("devices", f"{len(running.devices)} virtual ones" if device_id else "none; --devices 10 adds some"),
        ("products", curl_line(running.base_url, keys, "/products")),
    ]
    if device_id:
        command = json.dumps({"device_id": device_id, "command_payload": {"command": "ping"}})
        lines.append(("send", curl_line(running.base_url, keys, "/commands/send", command)))
        lines.append(("look", curl_line(running.base_url, keys, f"/devices/{device_id}/commands")))
    lines += running.trial.lines(running.base_url, keys) if running.trial is not None else []
    return [f"{name:<11} {text}" for name, text in lines]


def _warn_of_quota(settings: UpSettings) -> None:
    needed = quota_needed(settings.devices, settings.interval_s, DeviceModel().wait_s)
    if 0 < settings.rate_limit < needed:
        click.echo(
            f"note        the devices need about {needed} requests a minute and the quota is {settings.rate_limit}: "
            "the service will make them wait; raise --rate-limit or --interval",
        )
