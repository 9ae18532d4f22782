from __future__ import annotations

import itertools
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.config.commands import HandlerConfig
from agent.core.values import Contract
from agent.handlers.base import handler
from agent.handlers.loaded import InvalidPayload
from agent.handlers.registry import HandlerRegistry
from agent.plugins import PluginStatus

BUILT_INS = [
    "cancel",
    "collect_diagnostics",
    "identify",
    "log_level",
    "ping",
    "read_sensors",
    "reboot",
    "restart_agent",
    "run",
    "set_interval",
    "update_agent",
    "update_config",
]
ON_REQUEST = ["write_file"]

DOOR = """
from datetime import datetime
from agent import Contract, Handler, HandlerPayload, HandlerSettings, handler

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

class Knock(HandlerPayload):
    times: int

@handler("knock", contract=Contract.IDEMPOTENT, timeout_s=3)
def knock(payload: Knock, context) -> dict:
    '''Knocks.'''
    return {"knocked": payload.times}
"""

_numbers = itertools.count()


@pytest.fixture
def entry_point(tmp_path, monkeypatch):
    """Makes an entry point out of a module's text and an attribute in it."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def make(name: str, attribute: str, text: str = DOOR) -> EntryPoint:
        module = f"plugin_of_a_test_{next(_numbers)}"
        Path(tmp_path, f"{module}.py").write_text(text)
        return EntryPoint(name, f"{module}:{attribute}", "agent.handlers")

    return make


def judge(registry: HandlerRegistry, payload: dict[str, Any], key: str = "command") -> Any:
    """As triage and then the run do it."""
    found = registry.find(payload, key)
    if isinstance(found, InvalidPayload):
        return found
    return found.validate({name: value for name, value in payload.items() if name != key})


def load(*points: EntryPoint, sections=None, executables=None) -> HandlerRegistry:
    return HandlerRegistry.load(sections, executables, entry_points=points)


def info_of(registry: HandlerRegistry, name: str):
    (info,) = [info for info in registry.listing() if info.name == name]
    return info


def test_the_built_in_handlers_are_there_without_any_configuration():
    registry = load()
    assert registry.names() == BUILT_INS
    ready = [info for info in registry.listing() if info.name not in ON_REQUEST]
    assert {info.status for info in ready} == {PluginStatus.READY}
    assert {info.origin for info in registry.listing()} == {"built-in"}
    assert all(info.description and info.contract and info.timeout_s for info in ready)


@pytest.mark.parametrize("name", ON_REQUEST)
def test_a_built_in_that_needs_settings_is_off_without_them_and_says_which(name):
    info = info_of(load(), name)
    assert info.status is PluginStatus.DISABLED
    assert f"commands.handlers.{name}.settings" in info.reason


def test_in_safe_mode_only_what_mends_is_loaded_and_the_rest_is_listed(entry_point):
    broken = entry_point("knock", "knock", "raise RuntimeError('never imported')")
    sections = {"valve": {"argv": ["/bin/true"]}}
    registry = HandlerRegistry.load({}, sections, entry_points=[broken], safe_mode=True)
    assert all(registry.get(name).handler.in_safe_mode for name in registry.names())
    assert {"ping", "update_config", "restart_agent"} <= set(registry.names())
    for name in ("knock", "valve", "run"):
        assert info_of(registry, name).status is PluginStatus.SAFE_MODE
    refused = judge(registry, {"command": "knock", "times": 1})
    assert str(refused).startswith("handler_unusable: handler 'knock' is left_alone_in_safe_mode")


def test_a_handler_class_and_a_handler_function_are_found_by_entry_point(entry_point):
    registry = load(entry_point("open_door", "Door"), entry_point("knock", "knock"))
    door, knock = registry.get("open_door"), registry.get("knock")
    assert (door.contract, door.timeout_s, door.lane) == (Contract.ONCE, 7.0, "doors")
    assert (knock.contract, knock.timeout_s, knock.lane) == (Contract.IDEMPOTENT, 3.0, "knock")
    assert info_of(registry, "knock").description == "Knocks."
    assert door.handler.handle(door.validate({"door": 2}), None) == {
        "opened": 2,
        "pin": 4,
    }


def test_limits_and_attempts_are_the_class_s(entry_point):
    text = DOOR.replace(
        "lane = ",
        "start_timeout_s, inactivity_timeout_s, max_attempts = 90.0, 20.0, 5\n    lane = ",
    )
    own = load(entry_point("open_door", "Door", text)).get("open_door")
    assert (own.start_timeout_s, own.inactivity_timeout_s, own.max_attempts) == (90, 20, 5)


@pytest.mark.parametrize(
    ("attribute", "reason"),
    [
        ("start_timeout_s = 0", "start_timeout_s must be above 0"),
        ("inactivity_timeout_s = -1.0", "inactivity_timeout_s must be above 0"),
        ("max_attempts = 0", "max_attempts must be above 0"),
    ],
)
def test_a_class_that_says_nonsense_about_its_limits_is_no_plug_in(entry_point, attribute, reason):
    text = DOOR.replace("lane = ", f"{attribute}\n    lane = ")
    info = info_of(load(entry_point("open_door", "Door", text)), "open_door")
    assert info.status is PluginStatus.NOT_A_PLUGIN
    assert reason in info.reason


@pytest.mark.parametrize(
    ("text", "attribute", "status", "reason"),
    [
        ("import no_such_driver_module", "Door", PluginStatus.NOT_LOADED, "ModuleNotFoundError: No module named"),
        ("import sys; sys.exit(3)", "Door", PluginStatus.NOT_LOADED, "SystemExit: 3"),
        ("x = 1", "Door", PluginStatus.NOT_LOADED, "AttributeError"),
        ("Door = 5", "Door", PluginStatus.NOT_A_PLUGIN, "no agent.Handler: it must be a class"),
        ("def Door(p, c): ...", "Door", PluginStatus.NOT_A_PLUGIN, "a function needs the decorator @handler"),
        (DOOR.replace('"open_door"', '"other"'), "Door", PluginStatus.NOT_A_PLUGIN, "give both one name"),
        (DOOR.replace("def handle", "def handel"), "Door", PluginStatus.NOT_CREATED, "abstract method"),
        (
            DOOR.replace("lane = ", "def __init__(self, s): 1/0\n    lane = "),
            "Door",
            PluginStatus.NOT_CREATED,
            "ZeroDiv",
        ),
        (
            DOOR.replace("lane = ", "def check(self): raise OSError('no GPIO')\n    lane = "),
            "Door",
            PluginStatus.CHECK_FAILED,
            "handler 'open_door' cannot work here: no GPIO.",
        ),
    ],
)
def test_a_plug_in_that_fails_has_a_status_and_a_sentence_and_the_others_go_on(
    entry_point, caplog, *, text, attribute, status, reason
):
    registry = load(entry_point("open_door", attribute, text), entry_point("knock", "knock"))
    info = info_of(registry, "open_door")
    assert info.status is status
    assert reason in info.reason
    assert info.reason.endswith(".")
    assert registry.names() == sorted([*BUILT_INS, "knock"])
    assert f"handler open_door is {status}" in caplog.text
    refusal = judge(registry, {"command": "open_door"})
    assert str(refusal) == f"handler_unusable: handler 'open_door' is {status} on this device"


def test_settings_that_do_not_fit_name_the_member_and_the_near_one(entry_point):
    sections = {"open_door": HandlerConfig(settings={"pim": 1, "pin": "four"})}
    info = info_of(load(entry_point("open_door", "Door"), sections=sections), "open_door")
    assert info.status is PluginStatus.INVALID_SETTINGS
    assert "'pim' is not known here (did you mean 'pin'?)" in info.reason
    assert "'pin': input should be a valid integer" in info.reason


def test_an_executable_of_the_configuration_wins_over_a_built_in_and_the_loser_is_listed():
    registry = load(executables={"ping": {"argv": ["true"]}})
    assert [(info.origin, info.status) for info in registry.listing() if info.name == "ping"] == [
        ("built-in", PluginStatus.CLASH),
        ("configuration", PluginStatus.READY),
    ]
    assert registry.get("ping").handler.description == "runs true"


def test_a_package_never_replaces_a_built_in(entry_point):
    point = entry_point("ping", "Door", DOOR.replace('"open_door"', '"ping"'))
    registry = load(point)
    (loser,) = [info for info in registry.listing() if info.status is PluginStatus.CLASH]
    assert loser.origin == point.value
    assert "belongs to the built-in handler" in loser.reason


def test_of_two_packages_with_one_name_neither_is_used(entry_point):
    registry = load(entry_point("open_door", "Door"), entry_point("open_door", "Door"))
    assert registry.get("open_door") is None
    losers = [info for info in registry.listing() if info.name == "open_door"]
    assert [info.status for info in losers] == [PluginStatus.CLASH] * 2
    assert all("uninstall all but one" in info.reason for info in losers)


@pytest.mark.parametrize(
    ("payload", "code", "words"),
    [
        ({}, "missing_command_name", "no member 'command'"),
        ({"command": 5}, "missing_command_name", "must be the name of a handler"),
        ({"command": ""}, "missing_command_name", "must be the name of a handler"),
        ({"command": "opn_door"}, "unknown_command", "no handler 'opn_door' (did you mean 'open_door'?)"),
        ({"command": "open_door"}, "invalid_payload", "payload of 'open_door': 'door' is missing"),
        ({"command": "open_door", "door": "1"}, "invalid_payload", "'door': input should be a valid integer"),
        ({"command": "open_door", "door": 1.0}, "invalid_payload", "'door'"),
        ({"command": "open_door", "door": True}, "invalid_payload", "'door'"),
        ({"command": "open_door", "door": 1, "dor": 2}, "invalid_payload", "'dor' is not known here (did you mean"),
        ({"command": "open_door", "door": 1, "at": "soon"}, "invalid_payload", "'at'"),
    ],
)
def test_a_payload_is_refused_before_its_handler_runs(entry_point, payload, code, words):
    refusal = judge(load(entry_point("open_door", "Door")), payload)
    assert isinstance(refusal, InvalidPayload)
    assert refusal.code == code
    assert words in refusal.message


def test_times_travel_as_text_and_the_handler_key_is_not_part_of_the_payload(entry_point):
    registry = load(entry_point("open_door", "Door"))
    model = judge(registry, {"do": "open_door", "door": 1, "at": "2026-01-01T00:00:00Z"}, "do")
    assert (model.door, model.at.year) == (1, 2026)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
REGISTRY = load(executables={"valve": {"argv": ["true"]}})


@given(
    name=st.sampled_from([*BUILT_INS, "valve", "other"]), members=st.dictionaries(st.text(), json_values, max_size=4)
)
def test_no_payload_whatever_raises(name, members):
    judged = judge(REGISTRY, {**members, "command": name})
    assert isinstance(judged, InvalidPayload) or judged.__class__ is REGISTRY.get(name).handler.Payload


def test_a_function_without_a_payload_model_is_refused_when_it_is_decorated():
    def bare(payload, context):
        return None

    def nothing():
        return None

    for function in (bare, nothing):
        with pytest.raises(TypeError, match="annotate its first parameter with a pydantic model"):
            handler("bare")(function)
