"""A scenario is read whole: every fault at once, each with its line and column, and what to write instead."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.errors import ConfigurationError
from simulator.fleet.scenario.phases import holds
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


@pytest.mark.parametrize("address", ["not-a-url", "ftp://x", "http://h:0", "https://h/?a=b"])
def test_an_address_that_is_none_is_told_before_anything_is_planned(address):
    (found,) = faults(changed("scenario: small", f"scenario: small\ntarget: {{base_url: '{address}'}}"))
    assert "target.base_url: " in found


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
  - {kind: hold, name: y, duration_s: 1m, duration_s: 2m}
"""
    )
    assert found == [
        "line 2, column 1: sede: is no key here; did you mean 'seed'?",
        "line 3, column 21: target.transport: should be 'http_poll' or 'http_long_poll', not 'mqt'",
        "line 3, column 26: target.timeout: is no key here; did you mean 'timeout_s'?",
        "line 5, column 12: fleet.devices: should be a valid integer, not '10k'",
        "line 7, column 14: fleet.models[0].share: should be a valid number, not '50%'",
        "line 9, column 22: fleet.models[0].signals.temperature: has no known kind 'random_wak'; "
        "known are constant, diurnal, random_walk, markov, battery, python, csv",
        "line 10, column 43: fleet.models[0].signals.humidity.value: should be a valid number, not 'high'",
        "line 10, column 49: fleet.models[0].signals.humidity.vale: is no key here; did you mean 'value'?",
        "line 12, column 5: phases[0].duration_s: is missing; add it",
        "line 12, column 30: phases[0].duration: is no key here; did you mean 'duration_s'?",
        "line 13, column 5: phases[1]: is missing its 'kind'; add it",
        "line 14, column 43: phases[2].duration_s: is there twice; remove one",
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
    name = key.split(":")[0]
    fleet = "" if name == "fleet" else "fleet: {devices: 3}\n"
    found = faults(f"scenario: s\nkind: {kind}\n{fleet}{key}\n")
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
        (changed("small", '!!python/object/apply:os.system ["true"]'), "line 1, column 11: scenario: "),
        ("scenario: [a, \xff".encode().decode("latin-1"), "line 1"),
    ],
)
def test_what_is_no_document_is_told_with_its_place(text, start):
    assert faults(text)[0].startswith(start)


def test_a_key_pair_in_the_wrong_place_is_not_shown():
    (found,) = faults(changed("devices: 10", "devices: msk_live"))
    assert "msk_" not in found


# --- whatever bytes a file holds --------------------------------------------------------------------------------------

LINE = "line 1, column 1: read without a fault"
STARTERS = sorted((Path(__file__).resolve().parents[5] / "configs" / "scenarios").glob("*.yaml"))
WORDS = st.sampled_from(
    ["kind", "kind: hold", "- ", ": ", "{", "}", "[", "]", "30 s", "*a", "&a ", "!!int ", "null", "1e999", "'", "\t",
     "duration_s: 5m", "share: 2", "devices: -1", "until: x", "<<: ", "? ", "| ", "% ", "0x1", "\x00", "é", "\ud7ff"]
)  # fmt: skip


def only_faults_with_lines(raw: bytes) -> None:
    found = [LINE]
    try:
        parse_scenario(raw, Path("/nowhere"))
    except ConfigurationError as error:
        found = error.faults
    assert found
    for fault in found:
        assert re.match(r"line [1-9]\d*, column [1-9]\d*: ", fault), fault
        assert "\n" not in fault


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(STARTERS), st.lists(st.tuples(st.floats(0, 1), st.integers(0, 20), WORDS), max_size=4))
def test_a_scenario_with_anything_written_over_it(path, edits):
    text = path.read_text(encoding="utf-8")
    for place, length, word in edits:
        at = int(place * len(text))
        text = text[:at] + word + text[at + length :]
    only_faults_with_lines(text.encode("utf-8", "surrogatepass"))


@settings(max_examples=40, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes(raw):
    only_faults_with_lines(raw)


# --- what the parts need of each other, and of the files that they name -----------------------------------------------

HEAD = "scenario: s\n"
PHASES = "phases: [{name: up, kind: ramp, duration_s: 30}, {name: hold, kind: hold, duration_s: 60}]\n"
WHOLE = HEAD + "fleet: {devices: 100}\n" + PHASES
TWICE = "phases: [{name: a, kind: hold, duration_s: 9}, {name: a, kind: hold, duration_s: 9}]\n"
KEYS = "target: {keys: [{api_key: k, secret_key_file: key}, {api_key: k, secret_key_file: key}]}"
PING = "commands: [{payload: {command: ping}, rate_per_s: 1}]\n"
REQUESTS = "kind: requests\narrivals: [{operation: poll, rate_per_s: 1}]\n"
LABELS = "kind: onboarding\nonboarding: {rate_per_s: 0.5}\nphases: [{name: a, kind: hold, duration_s: 90}]\n"


def models(*listed: str) -> str:
    return f"{HEAD}{PHASES}fleet: {{devices: 9, models: [{', '.join(f'{{{each}}}' for each in listed)}]}}\n"


CASES = [
    (models("name: a, share: 0.5", "name: a, share: 0.5"), "models: several models are called 'a'"),
    (models("name: a, share: 0.5", "name: b, share: 0.4"), "the models make 0.9 together; they must make 1"),
    (models("poll: {every_s: 9}"), "poll.every_s: does nothing with 'transport: http_long_poll'"),
    (
        models("poll: {wait_s: 9}") + "target: {transport: http_poll}",
        "wait_s: does nothing with 'transport: http_poll'",
    ),
    (models("signals: {t: {kind: csv, file: no.csv, column: a, every_s: 1}}"), "fleet.models[0].signals:"),
    (WHOLE + KEYS, "target.keys: holds a key pair twice"),
    (
        WHOLE + KEYS.replace("k, secret_key_file: key}]", "l, secret_key_file: none}]"),
        "target.keys[1].secret_key_file:",
    ),
    (WHOLE + "target: {base_url: 'https://x', ca_file: none.pem}", "target.ca_file:"),
    (WHOLE + "target: {transport: mqtt, ca_file: key}", "ca_file: "),
    (WHOLE.replace(PHASES, LABELS), "phases: at 0.5 labels/s only 45 of 100 are scanned"),
    (WHOLE.replace(PHASES, TWICE), "phases: several phases are called 'a'"),
    (
        WHOLE + "faults: [{kind: blackout, at_s: 80, duration_s: 20}]",
        "faults[0]: ends 100 s after the begin; the phases",
    ),
    (
        WHOLE + "faults: [{kind: frozen_sensor, at_s: 1, duration_s: 5, readings: [x]}]",
        "no model has a reading 'x'; there",
    ),
    (WHOLE + "thresholds: [http.poll.p99 < 1s in hol]", "thresholds[0]: "),
    (
        WHOLE + "thresholds: [commands.age.p99 < 1s]",
        "thresholds[0]: the scenario sends no commands: add 'commands:', or",
    ),
    (WHOLE + REQUESTS + "thresholds: [readings.rate > 1/s]", "thresholds[0]: nothing takes readings here"),
    (
        WHOLE.replace("100}", "9, product: none.yaml}"),
        "none.yaml: cannot be read: No such file or directory; built in is",
    ),
    (WHOLE + PING.replace("ping", "pong"), "payload: command 'pong' is not in the product's vocabulary (ping, "),
    (WHOLE + PING.replace("ping", "open_valve, seconds: 900"), "commands[0].payload: invalid_payload: seconds: "),
    (WHOLE + PING.replace("ping", "read_sensors, names: [boiler]"), "have one sensor, 'climate', and no 'boiler'"),
]


@pytest.mark.parametrize(("text", "said"), CASES, ids=[said for _, said in CASES])
def test_what_does_not_fit_is_told_where_it_is_to_be_changed(text, said, tmp_path):
    (tmp_path / "key").write_text("msk_x\n")
    (tmp_path / "key").chmod(0o600)
    (fault,) = faults(text, tmp_path)
    assert fault.startswith("line ")
    assert said in fault


def test_a_secret_key_that_others_can_read_is_refused(tmp_path):
    (tmp_path / "key").write_text("msk_x\n")
    (tmp_path / "key").chmod(0o644)
    text = WHOLE + "target: {keys: [{api_key: mk_a, secret_key_file: key}]}"
    assert "run chmod 600 on it" in faults(text, tmp_path)[0]
    (tmp_path / "key").chmod(0o600)
    assert parse_scenario(text.encode(), tmp_path).target.keys[0].api_key == "mk_a"


def test_a_refusal_that_is_expected_may_be_planned():
    text = WHOLE + "commands: [{payload: {command: pong}, rate_per_s: 1, expect: rejected}]"
    assert parse_scenario(text.encode(), Path()).commands[0].expect == "rejected"


@pytest.mark.parametrize(
    ("text", "gauges", "held"),
    [
        ("online >= 99%", {"online": 990}, True),
        ("online >= 99%", {"online": 989}, False),
        ("online >= 99.5%", {"online": 995}, True),
        ("online==1000", {"online": 1000}, True),
        ("open_commands == 0", {"open_commands": 0}, True),
        ("open_commands == 0", {}, False),
        ("online >= 99% and waiting_readings < 50", {"online": 1000, "waiting_readings": 49}, True),
        ("online >= 99% and waiting_readings < 50", {"online": 1000, "waiting_readings": 50}, False),
    ],
)
def test_a_condition_holds_or_not(text, gauges, held):
    assert holds(text, gauges, devices=1000) is held


@pytest.mark.parametrize(
    "text", ["online", "onlin > 3", "open_commands < 5%", "online > 3 or online < 2", "online > x"]
)
def test_what_is_no_condition_is_told_with_what_to_write(text):
    (fault,) = faults(changed("online >= 99%", text))
    assert "phases[1].until: " in fault
    assert "is no condition: compare online, connections, open_commands, waiting_readings with a number" in fault
