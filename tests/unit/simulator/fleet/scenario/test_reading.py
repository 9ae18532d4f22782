"""A scenario is read whole: every fault at once, each with its line and column, and what to write instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.errors import ConfigurationError
from simulator.fleet.scenario.reading import parse_scenario

SMALL = """\
scenario: small
fleet: {devices: 10}
phases:
  - {name: up, kind: ramp, duration_s: 30s}
  - {name: hold, kind: hold, duration_s: 2m, until: "online >= 99%"}
"""


def faults(text: str, folder: Path = Path()) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        parse_scenario(text.encode(), folder)
    return caught.value.faults


def changed(old: str, new: str) -> str:
    assert old in SMALL
    return SMALL.replace(old, new)


@pytest.mark.parametrize(
    ("text", "seconds"), [("250ms", 0.25), ("30s", 30), ("5m", 300), ("2h", 7200), ("1d", 86_400), ("0.5", 0.5)]
)
def test_a_duration_is_a_number_of_seconds_or_a_number_with_its_unit(text, seconds):
    assert parse_scenario(changed("30s", text).encode(), Path()).phases[0].duration_s == seconds


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("30 s", "a number of seconds, or a number with its unit: 250ms, 30s, 5m, 2h, 1d; not '30 s'"),
        ("soon", "not 'soon'"),
        ("0", "should be greater than 0, not 0"),
        ("-3", "should be greater than 0, not -3"),
        ("[30]", "should be a valid number, not [30]"),
        ("400d", "should be less than or equal to 31622400"),
    ],
)
def test_a_wrong_unit_is_told_with_what_to_write(text, hint):
    (found,) = faults(changed("30s", text))
    assert found.startswith("line 4, column 40: phases[0].duration_s: ")
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
        "line 2, column 1: sede: is no key here; did you mean 'seed'?",
        "line 3, column 21: target.transport: should be 'http_poll' or 'http_long_poll', not 'mqt'",
        "line 3, column 26: target.timeout: is no key here; did you mean 'timeout_s'?",
        "line 5, column 12: fleet.devices: should be a valid integer, not '10k'",
        "line 7, column 14: fleet.models[0].share: should be a valid number, not '50%'",
        "line 9, column 22: fleet.models[0].signals.temperature: has no known kind 'random_wak'; "
        "known are battery, constant, diurnal, markov, python, random_walk, csv",
        "line 10, column 43: fleet.models[0].signals.humidity.value: should be a valid number, not 'high'",
        "line 10, column 49: fleet.models[0].signals.humidity.vale: is no key here; did you mean 'value'?",
        "line 12, column 5: phases[0].duration_s: is missing; add it",
        "line 12, column 30: phases[0].duration: is no key here; did you mean 'duration_s'?",
        "line 13, column 5: phases[1]: is missing its 'kind'; add it",
        "line 14, column 44: phases[2].duration_s: is there twice; remove one",
    ]


@pytest.mark.parametrize(
    ("kind", "key"),
    [
        ("requests", "commands: []"),
        ("requests", "fleet: {devices: 3, models: [{poll: {every_s: 1}}]}"),
        ("requests", "target: {transport: http_poll}"),
        ("requests", "faults: [{kind: frozen_sensor, at_s: 1, duration_s: 1}]"),
        ("onboarding", "faults: []"),
        ("onboarding", "phases: [{kind: hold, name: a, duration_s: 9, until: online > 1}]"),
        ("backfill", "phases: []"),
        ("backfill", "fleet: {devices: 3, models: [{firmware: {versions: {a: 1}}}]}"),
        ("devices", "arrivals: []"),
        ("devices", "onboarding: {}"),
        ("devices", "target: {transport: mqtt, connections: 3}"),
        ("devices", "level: core"),
    ],
)
def test_a_key_of_another_kind_is_unknown(kind, key):
    text = (
        f"scenario: s\nkind: {kind}\nfleet: {{devices: 3}}\n" if "fleet" not in key else f"scenario: s\nkind: {kind}\n"
    )
    name = key.split(":")[0]
    found = faults(f"{text}{key}\n")
    assert any("is no key here" in each or "has no known kind" in each for each in found if name in each), found


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
    assert any("the tag" in fault or "valid string" in fault for fault in found)


def test_a_key_pair_in_the_wrong_place_is_not_shown():
    (found,) = faults(changed("devices: 10", "devices: msk_live"))
    assert "msk_" not in found
