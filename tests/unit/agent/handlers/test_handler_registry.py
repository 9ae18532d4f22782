from __future__ import annotations

from typing import Any

import pytest

from agent.config.model import HandlerConfig
from agent.core.values import Contract
from agent.handlers.base import HandlerRejected
from agent.handlers.registry import RESULT_BYTES, HandlerRegistry, ResultTooLarge, copy_result, read_payload
from agent.plugins import PluginStatus

DOOR = """
from datetime import datetime
from agent import Contract, Handler, HandlerPayload, HandlerSettings

class Door(Handler):
    name = "open_door"
    description = "Opens a door."
    contract = Contract.ONCE
    timeout_s = 7.0
    lane = "doors"

    class Payload(HandlerPayload):
        door: int
        at: datetime | None = None

    class Settings(HandlerSettings):
        pin: int = 4

    def handle(self, payload, context):
        return {"opened": payload.door, "pin": self.settings.pin}

class Knock(Handler):
    name = "knock"

    def handle(self, payload, context):
        return None
"""


@pytest.fixture
def door(entry_point):
    """An entry point of the handler ``open_door``, or of what this text makes of it."""
    return lambda text=DOOR, name="open_door", attribute="Door": entry_point(name, attribute, text)


def load(*points, sections=None, executables=None) -> HandlerRegistry:
    return HandlerRegistry(sections, executables, points=points)


def read(registry: HandlerRegistry, payload: dict[str, Any], key: str = "command") -> Any:
    """As admission and then the run do it."""
    found = registry.find(payload, key)
    return read_payload(found, {name: value for name, value in payload.items() if name != key})


def refusal(registry: HandlerRegistry, payload: dict[str, Any]) -> str:
    with pytest.raises(HandlerRejected) as caught:
        read(registry, payload)
    return str(caught.value)


def info_of(registry: HandlerRegistry, name: str):
    (info,) = [info for info in registry.listing if info.name == name]
    return info


def test_each_built_in_is_there_and_one_that_needs_settings_is_off_without_them():
    infos = {info.name: info for info in load().listing}
    off = infos.pop("write_file")
    assert len(infos) == 11
    assert all(info.status is PluginStatus.READY and info.origin == "built-in" for info in infos.values())
    assert all(info.description and info.contract and info.timeout_s for info in infos.values())
    assert off.status is PluginStatus.DISABLED
    assert "commands.handlers.write_file.settings" in off.reason


def test_a_class_is_found_by_entry_point_with_settings_and_limits(door):
    sections = {"open_door": HandlerConfig(timeout_s=9.0, settings={"pin": 3})}
    text = DOOR.replace("Contract.ONCE", '"once"')
    text = text.replace("lane = ", "start_timeout_s, inactivity_timeout_s, max_attempts = 90.0, 20.0, 5\n    lane = ")
    registry = load(door(text), door(DOOR, "knock", "Knock"), sections=sections)
    own, knock = registry.ready.get("open_door"), registry.ready.get("knock")
    assert own.handle(read(registry, {"command": "open_door", "door": 2}), None) == {"opened": 2, "pin": 3}
    assert own.contract is Contract.ONCE
    assert (own.timeout_s, own.lane) == (9.0, "doors")
    assert (own.start_timeout_s, own.inactivity_timeout_s, own.max_attempts) == (90, 20, 5)
    assert (knock.contract, knock.timeout_s, knock.lane) == (Contract.ONCE, 60.0, None)


@pytest.mark.parametrize(
    ("text", "status", "reason"),
    [
        ("import no_such_driver_module", PluginStatus.NOT_LOADED, "ModuleNotFoundError: No module named"),
        ("import sys; sys.exit(3)", PluginStatus.NOT_LOADED, "SystemExit: 3"),
        ("def Door(p, c): ...", PluginStatus.NOT_LOADED, "is no class of agent.Handler"),
        (DOOR.replace('"open_door"', '"other"'), PluginStatus.NOT_LOADED, "give both one name"),
        (DOOR.replace("def handle", "def handel"), PluginStatus.NOT_LOADED, "abstract method"),
        (DOOR.replace("lane = ", "def __init__(self, s): 1/0\n    lane = "), PluginStatus.NOT_LOADED, "ZeroDiv"),
        (DOOR.replace("lane = ", "max_attempts = 0\n    lane = "), PluginStatus.NOT_LOADED, "a number above 0"),
        (DOOR.replace("7.0", '"7"'), PluginStatus.NOT_LOADED, "timeout_s must be a number above 0"),
        (DOOR.replace("Contract.ONCE", '"twice"'), PluginStatus.NOT_LOADED, "must be one of idempotent"),
        (
            DOOR.replace("lane = ", "def check(self): raise OSError('no GPIO')\n    lane = "),
            PluginStatus.CHECK_FAILED,
            "handler 'open_door' cannot work here: no GPIO.",
        ),
    ],
)
def test_a_plug_in_that_fails_has_a_status_and_a_sentence_and_the_others_go_on(door, caplog, text, status, reason):
    registry = load(door(text), door(DOOR, "knock", "Knock"))
    info = info_of(registry, "open_door")
    assert info.status is status
    assert reason in info.reason
    assert info.reason.endswith(".")
    assert {"ping", "knock"} <= set(registry.ready)
    assert f"handler open_door is {status}" in caplog.text
    assert refusal(registry, {"command": "open_door"}).endswith(f"handler 'open_door' is {status} on this device")


def test_settings_that_do_not_fit_name_the_member_and_the_near_one(door):
    sections = {"open_door": HandlerConfig(settings={"pim": 1, "pin": "four"}), "open_dor": HandlerConfig()}
    registry = load(door(), sections=sections)
    info = info_of(registry, "open_door")
    assert info.status is PluginStatus.INVALID_SETTINGS
    assert "pim is no key that this version knows (did you mean 'pin'?)" in info.reason
    assert "pin must be a valid integer" in info.reason
    unknown = info_of(registry, "open_dor")
    assert unknown.status is PluginStatus.UNKNOWN
    assert "did you mean 'open_door'" in unknown.reason


def test_of_two_of_one_name_the_devices_own_wins_then_the_built_in_and_no_package(door):
    registry = load(executables={"ping": {"argv": ["true"]}})
    assert registry.ready.get("ping").description == "runs true"
    point = door(DOOR.replace('"open_door"', '"ping"'), "ping")
    package = load(point)
    assert [(info.origin, info.status) for info in package.listing if info.name == "ping"] == [
        ("built-in", PluginStatus.READY),
        (point.value, PluginStatus.CLASH),
    ]
    neither = load(door(), door())
    assert neither.ready.get("open_door") is None
    assert info_of(neither, "open_door").status is PluginStatus.CLASH


@pytest.mark.parametrize(
    ("payload", "code", "words"),
    [
        ({}, "missing_command_name", "no member 'command'"),
        ({"command": 5}, "missing_command_name", "name of a handler"),
        ({"command": "opn_door"}, "unknown_command", "no handler 'opn_door' (did you mean 'open_door'?)"),
        ({"command": "open_door"}, "invalid_payload", "payload of 'open_door': door is missing"),
        ({"command": "open_door", "door": "1"}, "invalid_payload", "door must be a valid integer"),
        ({"command": "open_door", "door": 1.0}, "invalid_payload", "door must"),
        ({"command": "open_door", "door": True}, "invalid_payload", "door must"),
        (
            {"command": "open_door", "door": 1, "dor": 2},
            "invalid_payload",
            "dor is no key that this version knows (did you mean",
        ),
        ({"command": "open_door", "door": 1, "at": "soon"}, "invalid_payload", "at must"),
    ],
)
def test_a_payload_is_refused_before_its_handler_runs(door, payload, code, words):
    text = refusal(load(door()), payload)
    assert text.startswith(f"{code}: ")
    assert words in text


def test_times_travel_as_text_and_the_handler_key_is_not_part_of_the_payload(door):
    model = read(load(door()), {"do": "open_door", "door": 1, "at": "2026-01-01T00:00:00Z"}, "do")
    assert (model.door, model.at.year) == (1, 2026)


def test_the_longest_result_is_taken_and_one_byte_more_is_not():
    longest = {"x": "a" * (RESULT_BYTES - len('{"x":""}'))}
    assert copy_result(longest) == longest
    gigabyte = {"rows": [["x" * 10_000] * 10_000]}  # as text; as an object it is small
    for value in (
        {"x": longest["x"] + "a"},
        {"x": "\u20ac" * (RESULT_BYTES // 3)},
        {"x": [0] * RESULT_BYTES},
        gigabyte,
    ):
        with pytest.raises(ResultTooLarge):
            copy_result(value)
