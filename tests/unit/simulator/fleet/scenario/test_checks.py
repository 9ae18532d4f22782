"""What the parts of a scenario need of each other, and of the files that they name."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.errors import ConfigurationError
from simulator.fleet.scenario.identities import read_identifiers
from simulator.fleet.scenario.reading import parse_scenario

HEAD = "scenario: s\n"
FLEET = "fleet: {devices: 100}\n"
PHASES = "phases: [{name: up, kind: ramp, duration_s: 30}, {name: hold, kind: hold, duration_s: 60}]\n"
WHOLE = HEAD + FLEET + PHASES
PING = "commands: [{payload: {command: ping}, rate_per_s: 1}]\n"
REQUESTS = "kind: requests\narrivals: [{operation: poll, rate_per_s: 1}]\n"


def phases(*listed: str) -> str:
    return f"{HEAD}{FLEET}phases: [{', '.join(f'{{{each}}}' for each in listed)}]\n"


def models(*listed: str) -> str:
    return f"{HEAD}{PHASES}fleet: {{devices: 9, models: [{', '.join(f'{{{each}}}' for each in listed)}]}}\n"


CASES = {
    "two models of a name": (models("name: a, share: 0.5", "name: a, share: 0.5"), "there is a model 'a' already"),
    "shares": (models("name: a, share: 0.5", "name: b, share: 0.4"), "the models make 0.9 together; they must make 1"),
    "polls": (models("poll: {every_s: 9}"), "poll.every_s: does nothing with 'transport: http_long_poll'"),
    "held polls": (
        models("poll: {wait_s: 9}") + "target: {transport: http_poll}",
        "poll.wait_s: does nothing with 'transport: http_poll'",
    ),
    "too many devices": (
        WHOLE.replace("100", "900000"),
        "fleet.devices: registering 900,000 devices takes about 38 minutes",
    ),
    "keys twice": (
        WHOLE + "target: {keys: [{api_key: k, secret_key_file: key}, {api_key: k, secret_key_file: key}]}",
        "target.keys: holds a key pair twice",
    ),
    "workers without connections": (WHOLE + "workers: 8\ntarget: {connections: 3}", "workers: each has a connection"),
    "tls without https": (WHOLE + "target: {tls: {}}", "target.tls: needs a base_url that begins with https://"),
    "an authority without tls": (
        WHOLE + "target: {transport: mqtt, broker: {ca_file: key}}",
        "target.broker.ca_file: needs 'tls: true'",
    ),
    "labels that are never scanned": (
        HEAD + "kind: onboarding\nonboarding: {rate_per_s: 0.5}\nfleet: {devices: 100}\n"
        "phases: [{name: a, kind: hold, duration_s: 90}]",
        "phases: at 0.5 labels/s only 45 of 100 are scanned",
    ),
    "two phases of a name": (
        phases("name: a, kind: hold, duration_s: 9", "name: a, kind: hold, duration_s: 9"),
        "phases[1].name: there is a phase 'a' already",
    ),
    "a ramp to where it is": (
        phases("name: a, kind: hold, duration_s: 9", "name: b, kind: ramp, duration_s: 9"),
        "phases[1].to: 1 of the fleet is online already",
    ),
    "a storm that is too long": (
        phases("name: a, kind: storm, duration_s: 9, waves: 2, away_s: 5"),
        "phases[0].duration_s: 2 waves of 5 s do not fit into 9 s; give at least 10",
    ),
    "a barrier that never opens": (
        phases("name: a, kind: ramp, to: 0.5, duration_s: 9, until: online >= 51"),
        "phases[0].until: never holds: this phase ends with 0.5 of 100 devices online",
    ),
    "a barrier for commands that nobody sends": (
        phases("name: a, kind: hold, duration_s: 9, until: open_commands == 0"),
        "phases[0].until: the scenario sends no commands",
    ),
    "patience without a barrier": (
        phases("name: a, kind: hold, duration_s: 9, until_within_s: 9"),
        "phases[0].until_within_s: does nothing without 'until'",
    ),
    "no condition": (
        phases("name: a, kind: hold, duration_s: 9, until: onlin > 3"),
        "phases[0].until: 'onlin' is nothing that a run measures; did you mean 'online'?",
    ),
    "a fault after the end": (
        WHOLE + "faults: [{kind: blackout, at_s: 80, duration_s: 20}]",
        "faults[0].duration_s: ends 100 s after the begin; the phases end after 90 s",
    ),
    "a fault of a reading that is not there": (
        WHOLE + "faults: [{kind: frozen_sensor, at_s: 1, duration_s: 5, readings: [x]}]",
        "faults[0].readings[0]: no model has a reading 'x'; there are battery_percent,",
    ),
    "a threshold of no phase": (WHOLE + "thresholds: [http.poll.p99 < 1s in hol]", "thresholds[0]: "),
    "a threshold on commands that nobody sends": (
        WHOLE + "thresholds: [commands.age.p99 < 1s]",
        "thresholds[0]: the scenario sends no commands: add 'commands:', or remove the threshold",
    ),
    "a threshold on readings that nobody takes": (
        WHOLE + REQUESTS + "thresholds: [readings.rate > 1/s]",
        "thresholds[0]: nothing takes readings here",
    ),
    "a product that is not there": (
        HEAD + PHASES + "fleet: {devices: 9, product: none.yaml}",
        "cannot be read: No such file or directory; built in is 'climate-node'",
    ),
    "a command that is none": (
        WHOLE + PING.replace("ping", "pong"),
        "commands[0].payload: command 'pong' is not in the product's vocabulary (ping, ",
    ),
    "a payload that does not fit": (
        WHOLE + PING.replace("ping", "open_valve, seconds: 900"),
        "commands[0].payload: invalid_payload: seconds: ",
    ),
    "a sensor that no device has": (
        WHOLE + PING.replace("ping", "read_sensors, names: [boiler]"),
        "commands[0].payload: virtual devices have one sensor, 'climate', and no 'boiler'",
    ),
    "an update without firmware": (
        WHOLE + PING.replace("ping", "update_firmware, version: a"),
        "commands[0].payload: devices of the model 'climate' have no firmware",
    ),
    "a key that is not there": (
        WHOLE + "target: {keys: [{api_key: k, secret_key_file: none}]}",
        "target.keys[0].secret_key_file:",
    ),
    "an authority that is not there": (
        WHOLE + "target: {base_url: 'https://x', tls: {ca_file: none.pem}}",
        "target.tls.ca_file:",
    ),
    "a recording that is not there": (
        models("signals: {t: {kind: csv, file: no.csv, column: a, every_s: 1}}"),
        "fleet.models[0].signals:",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_does_not_fit_is_told_where_it_is_to_be_changed(case, tmp_path):
    text, said = CASES[case]
    (tmp_path / "key").write_text("msk_x\n")
    (tmp_path / "key").chmod(0o600)
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
    return read_identifiers(parse_scenario(text.encode(), tmp_path), tmp_path)


def test_identifiers_are_made_or_come_out_of_a_file(tmp_path):
    made = parse_scenario(WHOLE.encode(), tmp_path)
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
