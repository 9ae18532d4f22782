"""The screen that ``fleet-simulator up`` prints."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from agent.wire.secret import Secret
from simulator.fleet.runner import DeviceIdentity
from simulator.gateway.broker import Broker
from simulator.gateway.trial import HTTP, MQTT, Gateway, Trial, TrialDevice
from simulator.keys import Keys
from simulator.up import Up, UpSettings
from simulator.up_command import show_screen

KEYS = Keys("mk_1", Secret("msk_1"))
URL = "http://127.0.0.1:8080"
SETTINGS = UpSettings(rate_limit=0)
VIRTUAL = (DeviceIdentity("d-1", "p-1", "virtual-001"),)
SCREEN_LINES = 24


class NamedBroker:
    port, name = 1883, "mosquitto"


def trial() -> Trial:
    devices = tuple(TrialDevice(kind, f"d-{kind}", "t", Path("/x") / kind / "config.yaml") for kind in (MQTT, HTTP))
    gateway = SimpleNamespace(url="http://127.0.0.1:8081")
    return Trial(cast("Broker", NamedBroker()), cast("Gateway", gateway), devices)


def printed(capsys: pytest.CaptureFixture[str], up: Up, settings: UpSettings = SETTINGS) -> str:
    show_screen(up, settings)
    return capsys.readouterr().out


def pasted(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.startswith("  ") and not line.startswith("   ")]


def test_by_default_it_is_one_screen_with_the_console_first_and_commands_to_paste(capsys):
    text = printed(capsys, Up(URL, KEYS, VIRTUAL, trial(), console_url=f"{URL}/console/#token=t"))
    assert text.startswith(f"Console   {URL}/console/#token=t\n")
    assert len(text.splitlines()) <= SCREEN_LINES
    agent, other, send, look = pasted(text)
    assert agent == "device-agent run --config /x/MQTT/config.yaml"
    assert other == "device-agent run --config /x/HTTP/config.yaml"
    assert send.endswith(f"{URL}/commands/send")
    assert look.endswith(f"{URL}/devices/d-MQTT/commands")


def test_without_a_gateway_the_commands_are_for_a_virtual_device(capsys):
    text = printed(capsys, Up(URL, KEYS, VIRTUAL, console_url=f"{URL}/console/#token=t"))
    assert [line.rsplit(URL, 1)[1] for line in pasted(text)] == ["/commands/send", "/devices/d-1/commands"]


def test_without_any_device_three_commands_stand_there_too(capsys):
    text = printed(capsys, Up(URL, KEYS, (), console_url=f"{URL}/console/#token=t"))
    assert len(pasted(text)) == 3
    assert "Devices" not in text


def test_without_a_console_nothing_speaks_of_it(capsys):
    text = printed(capsys, Up(URL, KEYS, VIRTUAL, trial()), settings=UpSettings(rate_limit=0, console=False))
    assert "console" not in text.lower()


def test_a_console_that_a_browser_cannot_reach_says_how_to(capsys):
    text = printed(capsys, Up("http://192.168.1.20:8080", KEYS, VIRTUAL, trial()))
    assert text.startswith("Console   none: ")
    assert "--host 0.0.0.0" in text


def test_keys_in_a_folder_are_not_printed(capsys):
    keys = Keys("mk_1", Secret("msk_hidden"), Path("/x/keys/secret_key"))
    text = printed(capsys, Up(URL, keys, VIRTUAL), settings=UpSettings(data_dir=Path("/x")))
    assert "msk_hidden" not in text
    assert "/x/keys/secret_key" in text
