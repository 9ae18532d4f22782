"""What the parts of a scenario need of each other, and of the files that they name."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.errors import ConfigurationError
from simulator.fleet.scenario.identities import read_identifiers
from simulator.fleet.scenario.reading import parse_scenario
from tests.virtual_fleet.scenarios import CONTEXTS, Looker, merged

HEAD = "scenario: s\n"
FLEET = "fleet: {devices: 100}\n"
PHASES = "phases: [{name: up, kind: ramp, duration_s: 30}, {name: hold, kind: hold, duration_s: 60}]\n"
WHOLE = HEAD + FLEET + PHASES
PING = "commands: [{payload: {command: ping}, rate_per_s: 1}]\n"
WIRE = "level: wire\narrivals: [{kind: open, rate_per_s: 1}]\n"
HISTORY = "kind: backfill\nbackfill: {}\n"
SECTIONS = {
    "faults of history": (
        WHOLE + HISTORY + "faults: [{kind: blackout, at_s: 1, duration_s: 5}]",
        "faults: kind backfill plays none: history is lived through in virtual time",
    ),
    "faults of a storm of labels": (
        HEAD + PHASES + "fleet: {devices: 9}\nkind: onboarding_storm\nonboarding: {}\n"
        "faults: [{kind: blackout, at_s: 1, duration_s: 5}]",
        "faults: kind onboarding_storm plays none",
    ),
    "a frozen reading that is not there": (
        WHOLE + "faults: [{kind: frozen_sensor, at_s: 1, duration_s: 5, readings: [temprature_celsius]}]",
        "signal_dbm, temperature_celsius); did you mean 'temperature_celsius'?",
    ),
    "an interval that no device has": (
        WHOLE + "commands: [{payload: {command: set_interval, name: humidity, interval_s: 5}, rate_per_s: 1}]",
        "commands[0].payload: virtual devices have one sensor, 'climate', and no 'humidity'",
    ),
    "a sensor that no device has": (
        WHOLE + "commands: [{payload: {command: read_sensors, names: [t]}, rate_per_s: 1}]",
        "commands[0].payload: virtual devices have one sensor, 'climate', and no 't'",
    ),
    "an update without firmware": (
        WHOLE + "commands: [{payload: {command: update_firmware, version: 2.0.0}, rate_per_s: 1}]",
        "commands[0].payload: devices of the model 'climate' have no firmware that could be updated",
    ),
    "more devices than can be prepared": (
        HEAD + PHASES + "fleet: {devices: 1000000}",
        "fleet.devices: registering 1,000,000 devices takes about 42 minutes at 400/s, more than prepare_within_s (15)",
    ),
    "preparing labels": (
        HEAD + PHASES + "fleet: {devices: 9, prepare_within_s: 5m}\nkind: onboarding_storm\nonboarding: {}\n",
        "fleet.prepare_within_s: does nothing with kind onboarding_storm: its labels are what is registered; remove it",
    ),
    "two names": (
        HEAD + PHASES + "fleet: {devices: 9, models: [{name: a, share: 0.5}, {name: a, share: 0.5}]}",
        "fleet.models[1].name: there is a model 'a' already",
    ),
    "shares": (
        HEAD + PHASES + "fleet: {devices: 9, models: [{name: a, share: 0.5}, {name: b, share: 0.4}]}",
        "fleet.models: the shares of the models make 0.9 together; they must make 1",
    ),
    "poll of a held poll": (
        HEAD + PHASES + "fleet: {devices: 9, models: [{poll: {every_s: 9}}]}",
        "fleet.models[0].poll.every_s: does nothing with 'transport: http_long_poll'",
    ),
    "wait of a poll": (
        HEAD + PHASES + "target: {transport: http_poll}\nfleet: {devices: 9, models: [{poll: {wait_s: 9}}]}",
        "fleet.models[0].poll.wait_s: does nothing with 'transport: http_poll'",
    ),
    "mqtt without broker": (
        WHOLE + "target: {transport: mqtt, through: gateway}",
        "target.transport: mqtt needs a section 'broker:'",
    ),
    "mqtt to the service": (
        WHOLE + "target: {transport: mqtt, broker: {}}",
        "target.transport: the service speaks no MQTT, the gateway does",
    ),
    "broker without mqtt": (WHOLE + "target: {broker: {}}", "target.broker: does nothing without 'transport: mqtt'"),
    "pool without pool": (WHOLE + "target: {connections: per_device, pool: 9}", "target.pool: does nothing with"),
    "more workers than connections": (
        WHOLE + "workers: 8\ntarget: {pool: 3}",
        "workers: each has a connection at least, and target.pool has 3; write fewer, or more there",
    ),
    "pure load over mqtt": (
        WHOLE + "level: wire\ntarget: {transport: mqtt, through: gateway, broker: {}}\n"
        "arrivals: [{kind: open, rate_per_s: 1}]",
        "level: level wire makes requests over HTTP; take transport http_poll",
    ),
    "history over mqtt": (
        WHOLE + "kind: backfill\nbackfill: {}\ntarget: {transport: mqtt, through: gateway, broker: {}}",
        "kind: history goes as arrays straight to the service, which speaks no MQTT",
    ),
    "a pool of sessions": (
        WHOLE + "target: {transport: mqtt, through: gateway, broker: {}, pool: 9}",
        "target.pool: does nothing with 'transport: mqtt': every device has a session of its own",
    ),
    "tls of http": (WHOLE + "target: {tls: {}}", "target.tls: needs a base_url that begins with https://"),
    "a broker's authority without tls": (
        WHOLE + "target: {transport: mqtt, through: gateway, broker: {ca_file: key.pem}}",
        "target.broker.ca_file: needs 'tls: true'",
    ),
    "no numbers without devices": (
        WHOLE + "level: wire\naudit: {numbers: false}\narrivals: [{operation: sensor_data, kind: open, rate_per_s: 1}]",
        "audit.numbers: only devices with the agent's core",
    ),
    "wire with commands": (WHOLE + PING + WIRE, "commands: nobody would carry them out"),
    "wire with storms": (
        HEAD + FLEET + WIRE + "phases: [{name: s, kind: storm, duration_s: 9}]",
        "phases[0].kind: level wire has no devices for a storm",
    ),
    "wire with telemetry": (
        HEAD + PHASES + WIRE + "fleet: {devices: 9, models: [{telemetry: {every_s: 1m}}]}",
        "fleet.models[0].telemetry: level wire has no devices that read their sensors by a schedule",
    ),
    "wire with polls": (
        HEAD + PHASES + WIRE + "fleet: {devices: 9, models: [{poll: {wait_s: 9s}}]}",
        "fleet.models[0].poll: level wire has no devices that ask for commands by a schedule",
    ),
    "wire without arrivals": (WHOLE + "level: wire", "level: level wire sends what 'arrivals:' ask for"),
    "nobody who waits at level wire": (
        WHOLE + "level: wire\ntarget: {on_limited: defy}\narrivals: [{kind: open, rate_per_s: 1}]",
        "target.on_limited: does nothing without devices that could wait",
    ),
    "nobody who waits in history": (
        WHOLE + "kind: backfill\nbackfill: {history_s: 1d}\ntarget: {on_limited: obey}",
        "target.on_limited: does nothing without devices that could wait",
    ),
    "core with arrivals": (WHOLE + "arrivals: [{kind: open, rate_per_s: 1}]", "arrivals: devices of level core send"),
    "round trip of nothing": (WHOLE + "kind: command_round_trip", "kind: command_round_trip needs 'commands:'"),
    "a section of another kind": (WHOLE + "backfill: {}", "backfill: does nothing without 'kind: backfill'"),
    "a kind without its section": (WHOLE + "kind: backfill", "kind: backfill needs a section 'backfill:'"),
    "a fault of level wire": (
        WHOLE + WIRE + "faults: [{kind: frozen_sensor, at_s: 1, duration_s: 5}]",
        "faults[0].kind: level wire has no devices for frozen_sensor",
    ),
    "a fault after the end": (
        WHOLE + "faults: [{kind: frozen_sensor, at_s: 80, duration_s: 20s}]",
        "faults[0].duration_s: ends 100 s after the begin; the phases end after 90 s",
    ),
    "commands to history": (WHOLE + PING + "kind: backfill\nbackfill: {}", "commands: kind backfill sends no commands"),
    "labels that find no time": (
        WHOLE + "kind: onboarding_storm\nonboarding: {rate_per_s: 0.5}",
        "phases: at 0.5 labels/s only 45 of 100 are scanned",
    ),
    "two phases": (
        HEAD + FLEET + "phases: [{name: a, kind: hold, duration_s: 9}, {name: a, kind: hold, duration_s: 9}]",
        "phases[1].name: there is a phase 'a' already",
    ),
    "a ramp to where it is": (
        HEAD + FLEET + "phases: [{name: a, kind: hold, duration_s: 9}, {name: b, kind: ramp, duration_s: 9}]",
        "phases[1].to: 1 of the fleet is online already",
    ),
    "waves": (
        HEAD + FLEET + "phases: [{name: a, kind: storm, duration_s: 9, away_s: 4, waves: 3}]",
        "phases[0].duration_s: 3 waves of 4 s do not fit into 9 s; give at least 12",
    ),
    "a storm over nobody": (
        HEAD
        + FLEET
        + "phases: [{name: a, kind: ramp, to: 1, duration_s: 9}, {name: b, kind: ramp, to: 0, duration_s: 9}, "
        + "{name: c, kind: storm, duration_s: 9}]",
        "phases[2].share: nobody is online whom this storm would hit",
    ),
    "a barrier that never opens": (
        HEAD + FLEET + "phases: [{name: a, kind: ramp, to: 0.5, duration_s: 9, until: online >= 51}]",
        "phases[0].until: never holds: this phase ends with 0.5 of 100 devices online",
    ),
    "a barrier without a reader": (
        HEAD + FLEET + WIRE + "phases: [{name: a, kind: hold, duration_s: 9, until: open_commands == 0}]",
        "phases[0].until: level wire has no open_commands",
    ),
    "patience without a barrier": (
        HEAD + FLEET + "phases: [{name: a, kind: hold, duration_s: 9, until_within_s: 9}]",
        "phases[0].until_within_s: does nothing without 'until'",
    ),
    "no condition": (
        HEAD + FLEET + "phases: [{name: a, kind: hold, duration_s: 9, until: onlin > 3}]",
        "phases[0].until: 'onlin' is nothing that a run measures; did you mean 'online'?",
    ),
    "a threshold of no phase": (
        WHOLE + "thresholds: [http.poll.p99 < 1s in hol]",
        'thresholds[0]: threshold "http.poll.p99 < 1s in hol", column 23',
    ),
    "a threshold on the age of a command that is not sent": (
        WHOLE + "commands: [{payload: {command: ping}, rate_per_s: 1}]\nthresholds: ['commands.age[pong].p99 < 1s']",
        "the scenario sends no command 'pong': it sends ping; did you mean 'ping'?",
    ),
    "a threshold on commands that nobody sends": (
        WHOLE + "thresholds: [commands.age.p99 < 1s]",
        "thresholds[0]: the scenario sends no commands: add 'commands:', or remove the threshold",
    ),
    "a threshold on commands that nobody carries out": (
        WHOLE + "level: wire\narrivals: [{kind: open, rate_per_s: 5}]\nthresholds: [commands.delivered.p99 < 1s]",
        "thresholds[0]: level wire has no devices that carry commands out: take http.send_command, or 'level: core'",
    ),
    "a threshold on readings that nobody takes": (
        WHOLE
        + "level: wire\narrivals: [{kind: open, operation: poll, rate_per_s: 5}]\nthresholds: [readings.rate > 1/s]",
        "thresholds[0]: no arrivals with 'operation: sensor_data' hand readings over",
    ),
    "a threshold of nothing": (WHOLE + "thresholds: [audit.lost == 0, http.pol.p99 < 1s]", "thresholds[1]: threshold"),
    "a product that is not there": (
        HEAD + PHASES + "fleet: {devices: 9, product: none.yaml}",
        "cannot be read: No such file or directory; built in is 'climate-node'",
    ),
    "a command that is none": (
        WHOLE + "commands: [{payload: {command: pong}, rate_per_s: 1}]",
        "commands[0].payload: command 'pong' is not in the product's vocabulary (ping, ",
    ),
    "a payload that does not fit": (
        WHOLE + "commands: [{payload: {command: open_valve, seconds: 900}, rate_per_s: 1}]",
        "commands[0].payload.seconds: 900 is greater than the maximum of 600",
    ),
    "a key that is not there": (
        WHOLE + "target: {keys: [{api_key: k, secret_key_file: none.txt}]}",
        "target.keys[0].secret_key_file:",
    ),
    "an authority that is not there": (
        WHOLE + "target: {base_url: 'https://x', tls: {ca_file: none.pem}}",
        "target.tls.ca_file:",
    ),
    "a recording that is not there": (
        HEAD
        + PHASES
        + "fleet: {devices: 9, models: [{signals: {t: {kind: csv, file: no.csv, column: a, every_s: 1}}}]}",
        "fleet.models[0].signals:",
    ),
}


@pytest.mark.parametrize("case", SECTIONS)
def test_what_does_not_fit_is_told_where_it_is_to_be_changed(case, tmp_path):
    text, said = SECTIONS[case]
    if any(f"kind: {kind}" in text for kind in ("backfill", "onboarding_storm")):
        text = text.replace("kind: ramp", "kind: hold")  # which these kinds do not have
    (tmp_path / "key.pem").touch()
    with pytest.raises(ConfigurationError) as caught:
        parse_scenario(text.encode(), tmp_path)
    (fault,) = caught.value.faults
    assert fault.startswith("line ")
    assert said in fault


def test_a_secret_key_that_others_can_read_is_refused(tmp_path):
    (tmp_path / "key").write_text("msk_x\n")
    (tmp_path / "key").chmod(0o644)
    text = WHOLE + "target: {keys: [{api_key: mk_a, secret_key_file: key}]}"
    with pytest.raises(ConfigurationError, match="run chmod 600 on it"):
        parse_scenario(text.encode(), tmp_path)
    (tmp_path / "key").chmod(0o600)
    assert parse_scenario(text.encode(), tmp_path).target.keys[0].api_key == "mk_a"


def test_a_refusal_that_is_expected_may_be_planned():
    text = WHOLE + "commands: [{payload: {command: pong}, rate_per_s: 1, expect: rejected}]"
    assert parse_scenario(text.encode(), Path()).commands[0].expect == "rejected"


def identities(tmp_path: Path, content: bytes, devices: int = 2) -> list[str]:
    (tmp_path / "devices.csv").write_bytes(content)
    text = HEAD + PHASES + f"fleet: {{devices: {devices}, identities: {{from: devices.csv}}}}"
    return read_identifiers(parse_scenario(text.encode(), tmp_path).fleet, tmp_path)


def test_identifiers_are_made_or_come_out_of_a_file(tmp_path):
    made = parse_scenario(WHOLE.encode(), tmp_path).fleet
    assert read_identifiers(made, tmp_path)[:2] == ["sim-000001", "sim-000002"]
    assert identities(tmp_path, b"name,device_identifier\nx,SN-1\ny,SN-2\nz,SN-3\n") == ["SN-1", "SN-2"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"name\nx\n", "has no column 'device_identifier'"),
        (b"device_identifier\nSN-1\n", "has 1 rows for 2 devices"),
        (b"device_identifier\nSN-1\nSN-1\n", "row 3: 'SN-1' is there already"),
        (b'device_identifier\nSN-1\n""\n', "row 3: an identifier has 1 to 128 characters"),
        (b"device_identifier\n\xff\n", "is no CSV in UTF-8"),
    ],
)
def test_a_file_of_identifiers_that_cannot_be_used_is_told(tmp_path, content, said):
    with pytest.raises(ConfigurationError, match="fleet.identities.from") as caught:
        identities(tmp_path, content)
    assert said in caught.value.faults[0]


PING = {"commands": [{"payload": {"command": "ping"}, "rate_per_s": 1}]}
PLAIN = {"target": {"dialect": {"extensions": []}}}
MODEL = {"fleet": {"models": [{"firmware": {"versions": {"1.0": 1}}}]}}
USELESS = [
    ("labels", {"workers": 3}, "one process plays all labels"),
    ("labels", {"target": {"connections": "per_device"}}, "labels go to the service itself"),
    ("labels", {"fleet": {"models": [{"telemetry": {"every_s": 5}}]}}, "no devices that read sensors"),
    ("labels", {"phases": [{"until": "online > 1"}]}, "labels are scanned at onboarding.rate_per_s"),
    ("labels", {"phases": [{"kind": "ramp"}]}, "ramp does nothing: labels have no devices that come and go"),
    ("history", {"target": {"through": "gateway"}}, "history goes to the service itself"),
    ("history", {"target": {"pool": 33}}, "history takes 32 connections at most"),
    ("history", {"target": {"dialect": {"command_id": "_id"}}}, "history has no commands"),
    ("history", {"phases": [{"rate_factor": 2}]}, "history goes as fast as the target takes it"),
    ("history", {"audit": {"late_after_s": 9}}, "history is late by its nature"),
    ("core-poll", {"phases": [{"rate_factor": 2}]}, "there is no rate to multiply"),
    ("core-mqtt", {"target": {"on_limited": "defy"}}, "over MQTT devices talk to the gateway"),
    ("wire-http", {"target": {"dialect": {"results": "table"}}}, "level wire has no devices to report results"),
    ("core-poll", MODEL, "nobody asks for the version"),
    (
        "core-poll",
        {**PING, "fleet": {"models": [{"firmware": {"versions": {"1.0": 1}, "update_s": 9}}]}},
        "there are no updates",
    ),
    ("core-poll", {**PLAIN, "fleet": {"models": [{"telemetry": {"batch": 9}}]}}, "the service takes no arrays"),
    ("core-hold", PLAIN, "the service holds no polls"),
    ("core-poll", {**PLAIN, "commands": [{**PING["commands"][0], "ttl_s": 7}]}, "the service ends no commands"),
]


@pytest.mark.parametrize(("context", "change", "why"), USELESS)
def test_a_key_without_effect_is_refused_with_the_reason_and_the_scenario_without_it_is_taken(
    context, change, why, tmp_path
):
    looker = Looker(tmp_path)
    looker(CONTEXTS[context])
    with pytest.raises(ConfigurationError) as caught:
        looker(merged(CONTEXTS[context], change))
    assert any(why in fault for fault in caught.value.faults), caught.value.faults
