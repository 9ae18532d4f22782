"""What ``plan`` prints agrees with what the plan does, counted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from simulator.fleet.forecast import forecast, planned_faults
from simulator.fleet.scenario.model import Scenario
from simulator.fleet.scenario.reading import parse_scenario

SCENARIO = """\
scenario: s
target: {transport: http_poll, connections: 256}
fleet:
  devices: 600
  models:
    - {name: a, share: 0.5, telemetry: {every_s: 20s}, poll: {every_s: 30s}}
    - {name: b, share: 0.5, telemetry: {every_s: 40s}, poll: {every_s: 60s}}
commands: [{payload: {command: ping}, rate_per_s: 4}]
phases:
  - {name: up, kind: ramp, duration_s: 60s, to: 0.5}
  - {name: hold, kind: hold, duration_s: 2m, rate_factor: 2, until: online >= 50%}
  - {name: last, kind: hold, duration_s: 1m}
"""


ONBOARDING = "kind: onboarding\nonboarding: {rate_per_s: 10, races: 0.1}"


def made(text: str = SCENARIO) -> tuple[Scenario, dict[str, Any]]:
    scenario = parse_scenario(text.encode(), Path())
    return scenario, forecast(scenario, cores=2)


def test_the_rates_follow_the_phases():
    _, told = made()
    assert [phase["rates"]["http.send_command"] for phase in told["phases"]] == [4 * 0.25, 4 * 0.5 * 2, 4 * 0.5]
    assert told["phases"][1]["rates"]["http.sensor_data"] == 150 / 20 + 150 / 40


def test_the_whole_is_told_devices_time_sockets_quota():
    _, told = made()
    assert told["models"] == {"a": 300, "b": 300}
    assert (told["duration_s"], told["longest_s"]) == (240.0, 240.0 + 60.0 + 30.0)
    assert told["workers"] == 1  # one for every 2,500 devices, as the run starts them
    assert told["sockets"] == 256
    busiest = sum(told["phases"][1]["rates"].values())
    assert told["quota_per_minute"] == round(busiest * 60)
    assert told["keys_needed"] == -(-told["quota_per_minute"] // 1000)


def test_kinds_of_their_own_have_requests_of_their_own():
    head = "scenario: s\nfleet: {devices: 100}\n"
    phases = "phases: [{name: a, kind: hold, duration_s: 1m}]\n"
    onboarding = made(head + phases + ONBOARDING)[1]
    assert onboarding["peak_rates"] == {"http.register": 11.0, "http.scan_qr": 10.0}
    backfill = made(head + "kind: backfill\nbackfill: {history_s: 1d}")[1]
    assert backfill["requests"] == 100 * 1440 // 100
    arrivals = "[{rate_per_s: 50}]"
    requests = f"kind: requests\ntarget: {{connections: 256}}\narrivals: {arrivals}"
    wire = made(head + phases + requests)[1]
    assert wire["peak_rates"] == {"http.sensor_data": 50.0}
    assert wire["sockets"] == 256


def test_a_fault_is_told_with_what_it_is_and_as_many_devices_as_it_will_meet():
    faults = (
        "faults:\n  - {kind: link_profile, profile: satellite, at_s: 1m, duration_s: 30s, share: 0.3}\n"
        "  - {kind: blackout, at_s: 2m, duration_s: 30s, share: 0.3}\n"
    )
    scenario, told = made(SCENARIO + faults)
    assert [fault["name"] for fault in told["faults"]] == ["link_profile", "blackout"]
    names = [str(index) for index in range(600)]
    met = [fault.placed(n, 0).truth(scenario.seed, names).devices for n, fault in enumerate(scenario.faults)]
    assert [fault["devices"] for fault in told["faults"]] == met
    assert [span.devices for span in planned_faults(scenario)] == met
    assert all(140 < count < 220 for count in met)
    assert met[0] != met[1], "each chooses by itself"
