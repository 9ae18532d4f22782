"""A scenario is read whole: every fault at once, each with its line and column, and what to write instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.errors import ConfigurationError
from simulator.fleet.scenario.phases import HoldPhase, RampPhase
from simulator.fleet.scenario.reading import parse_scenario, read_scenario_file

SMALL = """\
scenario: small
fleet: {devices: 10}
phases:
  - {name: up, kind: ramp, duration_s: 30s}
  - {name: hold, kind: hold, duration_s: 2m, until: "online >= 99%"}
"""

UNKNOWN_KIND = (
    "line 9, column 22: fleet.models[0].signals.temperature: has no known kind 'random_wak'; "
    "did you mean 'random_walk'?"
)


def faults(text: str, folder: Path = Path()) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        parse_scenario(text.encode(), folder)
    return caught.value.faults


def changed(old: str, new: str) -> str:
    assert old in SMALL
    return SMALL.replace(old, new)


def test_a_small_scenario_is_read_with_its_durations_in_seconds():
    scenario = parse_scenario(SMALL.encode(), Path())
    assert [type(phase) for phase in scenario.phases] == [RampPhase, HoldPhase]
    assert [phase.duration_s for phase in scenario.phases] == [30.0, 120.0]
    assert scenario.duration_s == 150.0
    assert scenario.fleet.models[0].telemetry.every_s == 60.0


@pytest.mark.parametrize(
    ("text", "seconds"), [("250ms", 0.25), ("30s", 30), ("5m", 300), ("2h", 7200), ("1d", 86_400), ("0.5", 0.5)]
)
def test_a_duration_is_a_number_of_seconds_or_a_number_with_its_unit(text, seconds):
    assert parse_scenario(changed("30s", text).encode(), Path()).phases[0].duration_s == seconds


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("30 s", "; write 30s"),
        ("2 minutes", "; write 2m"),
        ("'30'", "; write 30s"),
        ("100 msec", "; write 100ms"),
        ("soon", ""),
        ("0", "not 0"),
        ("-3", "not -3"),
        ("[30]", "a number of seconds, or a number with its unit"),
        ("400d", "not '400d'"),
    ],
)
def test_a_wrong_unit_is_told_with_what_to_write(text, hint):
    (found,) = faults(changed("30s", text))
    assert found.startswith("line 4, column 40: phases[0].duration_s: must be ")
    assert found.endswith(hint) or hint in found


def test_all_faults_come_at_once_in_the_order_of_their_lines():
    found = faults(
        """\
scenario: faulty
sede: 3
target: {transport: mqt, timeout: 5s}
fleet:
  devices: 10k
  models:
    - share: 50%
      signals:
        temperature: {kind: random_wak, start: 21}
        humidity: {kind: constant, value: high, vale: 3}
phases:
  - {name: hold, kind: hold, duration: 2m}
  - {name: x, duration_s: 2m}
  - {kind: storm, name: y, duration_s: 1m, duration_s: 2m}
"""
    )
    assert found == [
        "line 2, column 1: sede: is no key of a scenario; did you mean 'seed'?",
        "line 3, column 21: target.transport: must be one of 'http_poll', 'http_long_poll' or 'mqtt', not 'mqt'",
        "line 3, column 26: target.timeout: is no key of a scenario; did you mean 'timeout_s'?",
        "line 5, column 12: fleet.devices: must be a whole number, not '10k'; write 10000",
        "line 7, column 14: fleet.models[0].share: must be a number, not '50%'; write 0.5",
        UNKNOWN_KIND,
        "line 10, column 43: fleet.models[0].signals.humidity.value: must be a number, not 'high'",
        "line 10, column 49: fleet.models[0].signals.humidity.vale: is no key of a scenario; did you mean 'value'?",
        "line 12, column 30: phases[0].duration: is no key of a scenario; did you mean 'duration_s'?",
        "line 13, column 5: phases[1]: is missing its 'kind'; add it",
        "line 14, column 44: phases[2].duration_s: is there twice; remove one",
    ]


def test_what_does_not_fit_together_is_told_beside_what_is_wrong_in_itself():
    found = faults(
        changed("fleet: {devices: 10}", "seeed: 1\nfleet: {devices: 10}\narrivals: [{kind: closed, users: 3}]")
    )
    assert [line.split(":")[1].strip() for line in found] == ["seeed", "arrivals"]


def test_a_consequence_of_a_fault_is_no_fault_of_its_own():
    models = "models: [{name: a, share: 0.5}, {name: b, share: half}]"
    (found,) = faults(changed("devices: 10", f"devices: 10, {models}"))
    assert "fleet.models[1].share" in found


def test_a_key_at_the_wrong_place_is_sent_home():
    (found,) = faults(changed("scenario: small", "scenario: small\nusers: 3"))
    assert found == "line 2, column 1: users: is no key of a scenario; it belongs to arrivals"


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("", "line 1, column 1: is empty"),
        ("- a\n- b\n", "line 1, column 1: a scenario is a section"),
        ("fleet: {devices: 3\nphases: [", "line 2, column 7: is not YAML"),
        ("fleet: &a {devices: 3}\nscenario: *a\n", "line 2, column 11: the alias *a is not taken"),
        ("a: " + "[" * 60 + "]" * 60, "line 1, column 43: is nested too deeply"),
        ("scenario: \x07bell\n", "line 1, column 11: is not YAML"),
        ("scenario: [a, \xff".encode().decode("latin-1"), "line 1"),
    ],
)
def test_what_is_no_document_is_told_with_its_place(text, start):
    assert faults(text)[0].startswith(start)


def test_a_tag_runs_nothing():
    found = faults(changed("small", '!!python/object/apply:os.system ["true"]'))
    assert any("the tag" in fault or "must be text" in fault for fault in found)


def test_yes_and_clock_times_are_text_as_in_yaml_1_2():
    (found,) = faults(changed("30s", "1:30"))
    assert "not '1:30'" in found


def test_a_key_pair_in_the_wrong_place_is_not_shown():
    (found,) = faults(changed("devices: 10", "devices: msk_live"))
    assert "msk_" not in found


def test_a_file_that_is_not_there_is_one_line(tmp_path):
    with pytest.raises(ConfigurationError, match="cannot be read: No such file"):
        read_scenario_file(tmp_path / "none.yaml")


def test_an_item_that_is_left_out_does_not_move_the_places_of_the_others():
    found = faults(
        """\
scenario: s
fleet: {devices: 10}
commands:
  - {payload: {command: ping}, rate_per_s: 1}
  - {payload: {command: ping}, rate: 1}
  - {payload: {command: pong}, rate_per_s: 1}
faults:
  - {kind: nonsense, at_s: 3}
  - {kind: frozen_sensor, at_s: 30s, duration_s: 3h}
phases: [{name: hold, kind: hold, duration_s: 1m}]
"""
    )
    assert [line.partition(": ")[0] for line in found] == [
        "line 5, column 32",
        "line 6, column 15",
        "line 8, column 5",
        "line 9, column 50",
    ]
