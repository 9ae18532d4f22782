"""Every event is a function of seed, device and time: the same however devices and time are cut."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.fleet.device.virtual_device import VirtualDevice
from simulator.fleet.models.build import ModelParts, build_model
from simulator.fleet.plan.digest import digest_of, partial_digest, whole
from simulator.fleet.plan.events import Event, EventKind
from simulator.fleet.plan.plan import Plan
from simulator.fleet.plan.shares import deal
from simulator.fleet.plan.timeline import Timeline
from simulator.fleet.scenario.model import Scenario
from simulator.fleet.signals.base import Individual

RAMP = {"kind": "ramp", "name": "up", "duration_s": 10}
HOLD = {"kind": "hold", "name": "hold", "duration_s": 60}


def scenario(**sections: Any) -> Scenario:
    fleet = {"devices": 100, **sections.pop("fleet", {})}
    document = {"scenario": "s", "phases": [RAMP, HOLD], **sections, "fleet": fleet}
    return Scenario.model_validate_json(json.dumps(document), strict=True)


def all_events(plan: Plan, *, cuts: int = 1) -> list[Event]:
    step_s = (plan.end_s - plan.begin_s) / cuts
    return [
        event
        for cut in range(cuts)
        for event in plan.events(
            range(plan.scenario.fleet.devices), plan.begin_s + cut * step_s, plan.begin_s + (cut + 1) * step_s
        )
    ]


def of_kind(events: list[Event], kind: EventKind) -> list[Event]:
    return [event for event in events if event.kind is kind]


spacings = st.sampled_from(["even", "poisson"])
shares = st.floats(0.05, 1.0)
seconds = st.floats(0.5, 40)


@st.composite
def phases(draw: st.DrawFn) -> list[dict[str, Any]]:
    made = []
    for number in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(["ramp", "hold", "storm"]))
        phase: dict[str, Any] = {"kind": kind, "name": f"p{number}", "duration_s": draw(seconds)}
        phase["rate_factor"] = draw(st.floats(0.1, 3))
        if kind == "ramp":
            phase["to"] = draw(st.floats(0, 1))
        if kind == "storm":
            waves = draw(st.integers(1, 3))
            away_s = phase["duration_s"] / waves * draw(st.floats(0.1, 1))
            phase |= {"waves": waves, "share": draw(shares), "away_s": away_s}
            phase["loss"] = draw(st.sampled_from(["power", "connection"]))
        made.append(phase)
    return made


@st.composite
def scenarios(draw: st.DrawFn) -> Scenario:
    models = draw(st.integers(1, 3))
    wire = draw(st.booleans())
    streams = [
        {"rate_per_s": draw(st.floats(0.1, 60)), "spacing": draw(spacings)} for _ in range(draw(st.integers(0, 2)))
    ]
    return scenario(
        seed=draw(st.integers(0, (1 << 63) - 1)),
        level="wire" if wire else "core",
        target={"transport": draw(st.sampled_from(["http_poll", "http_long_poll", "mqtt"]))},
        fleet={
            "devices": draw(st.integers(1, 60)),
            "models": [
                {
                    "name": f"m{number}",
                    "share": 1 / models,
                    "telemetry": {"every_s": draw(seconds), "phase": draw(st.sampled_from(["hashed", "in_step"]))},
                    "poll": {"every_s": draw(seconds)},
                    "reboots": draw(st.none() | st.fixed_dictionaries({"every_s": seconds, "away_s": st.just(0.25)})),
                }
                for number in range(models)
            ],
        },
        commands=[] if wire else [{"payload": {"n": n}, "devices": draw(shares), **s} for n, s in enumerate(streams)],
        arrivals=[{"kind": "open", **stream} for stream in streams] if wire else [],
        phases=draw(phases()),
    )


@settings(max_examples=25, deadline=None)
@given(scenarios(), st.integers(2, 9))
def test_the_digest_is_the_same_however_the_devices_are_dealt_out(made, workers):
    plan = Plan(made)
    once = digest_of(plan)
    assert digest_of(Plan(made), workers) == once
    ranges = deal(made.fleet.devices, workers)
    assert whole(plan, [partial_digest(plan, devices) for devices in reversed(ranges)]) == once


@settings(max_examples=25, deadline=None)
@given(scenarios(), st.integers(2, 7))
def test_time_can_be_cut_anywhere_and_comes_in_order(made, cuts):
    plan = Plan(made)
    events = all_events(plan)
    assert all_events(Plan(made), cuts=cuts) == events
    assert [event.time_s for event in events] == sorted(event.time_s for event in events)


@settings(max_examples=25, deadline=None)
@given(scenarios())
def test_a_device_is_switched_on_and_off_in_turns_and_works_only_while_it_is_on(made):
    on: set[int] = set()
    cut: set[int] = set()
    for event in all_events(Plan(made)):
        match event.kind:
            case EventKind.SWITCH_ON:
                assert event.device not in on
                on.add(event.device)
            case EventKind.SWITCH_OFF:
                on.remove(event.device)
            case EventKind.DISCONNECT:
                assert event.device not in cut
                cut.add(event.device)
            case EventKind.RECONNECT:
                cut.remove(event.device)
            case EventKind.READING:
                assert event.device in on
            case EventKind.POLL:
                assert event.device in on - cut


def test_another_seed_is_another_plan_and_so_is_another_payload():
    command = {"payload": {"command": "ping"}, "rate_per_s": 1}
    base = digest_of(Plan(scenario(commands=[command])))
    assert digest_of(Plan(scenario(commands=[command]))) == base
    assert digest_of(Plan(scenario(commands=[command], seed=2))) != base
    assert digest_of(Plan(scenario(commands=[{**command, "payload": {"command": "pong"}}]))) != base


def test_what_is_said_about_the_run_or_its_place_does_not_change_the_digest():
    base = digest_of(Plan(scenario()))
    other = scenario(description="other", workers=4, thresholds=["x < 1"], target={"base_url": "http://127.0.0.2:1"})
    assert digest_of(Plan(other)) == base


def test_a_ramp_brings_exactly_its_share_online_in_a_straight_line():
    plan = Plan(scenario(phases=[{**RAMP, "to": 0.5}, {**HOLD, "duration_s": 5}]))
    times = [event.time_s for event in of_kind(all_events(plan), EventKind.SWITCH_ON)]
    assert len(times) == 50
    assert [sum(time_s < limit for time_s in times) for limit in (2.5, 5, 7.5)] == pytest.approx(
        [12.5, 25, 37.5], abs=0.5
    )


def test_without_a_ramp_all_are_there_at_once():
    events = all_events(Plan(scenario(phases=[HOLD])))
    assert {event.time_s for event in of_kind(events, EventKind.SWITCH_ON)} == {0.0}
    assert len(of_kind(events, EventKind.SWITCH_ON)) == 100


def test_a_storm_takes_exactly_its_share_down_and_back_in_the_same_instant():
    storm = {"kind": "storm", "name": "storm", "duration_s": 20, "share": 0.3, "away_s": 4, "waves": 2}
    events = all_events(Plan(scenario(phases=[HOLD, storm])))
    downs = Counter(event.time_s for event in of_kind(events, EventKind.SWITCH_OFF))
    ups = Counter(event.time_s for event in of_kind(events, EventKind.SWITCH_ON))
    assert downs == {60.0: 30, 70.0: 30}
    assert ups == {0.0: 100, 64.0: 30, 74.0: 30}


def test_a_reboot_comes_once_in_each_mean_time():
    fleet = {"models": [{"reboots": {"every_s": 20, "away_s": 1}}]}
    downs = of_kind(all_events(Plan(scenario(fleet=fleet, phases=[HOLD]))), EventKind.SWITCH_OFF)
    assert 250 < len(downs) <= 300
    assert len({event.time_s for event in downs}) == len(downs)


def test_empty_batteries_and_unpowered_states_take_the_power_as_the_models_condition_says():
    states = {
        "up": {"stay_s": 40, "next": {"down": 1}},
        "down": {"stay_s": 10, "stay": "fixed", "powered": False, "next": {"up": 1}},
    }
    battery = {"life_s": 100, "dead_s": 15, "charge_s": 5, "spread": 0}
    made = scenario(fleet={"models": [{"states": states, "battery": battery}]}, phases=[HOLD])
    events = all_events(Plan(made))
    model = build_model(
        ModelParts("m", {}, states=made.fleet.models[0].states, battery=made.fleet.models[0].battery), folder=Path()
    )
    switches = [event for event in events if event.kind in {EventKind.SWITCH_ON, EventKind.SWITCH_OFF}]
    assert len(switches) > 200
    for device in range(100):
        own = [event for event in switches if event.device == device and event.time_s > 0]
        for event in own:
            condition = model.condition_at(Individual.at(1, device), event.time_s + 1e-3)
            assert condition.powered == (event.kind is EventKind.SWITCH_ON)


def test_readings_are_spread_over_the_period_unless_they_go_in_step():
    def moments(phase: str) -> set[float]:
        fleet = {"models": [{"telemetry": {"every_s": 10, "phase": phase}}]}
        plan = Plan(scenario(fleet=fleet, phases=[HOLD]))
        events = of_kind(all_events(plan), EventKind.READING)
        by_device = defaultdict(list)
        for event in events:
            by_device[event.device].append(event.time_s)
        assert {len(times) for times in by_device.values()} == {6}
        assert all(
            plan.reading_schedule(device).next_after(times[0]) == times[1] for device, times in by_device.items()
        )
        return {event.time_s for event in events}

    assert len(moments("in_step")) == 6
    assert len(moments("hashed")) == 600


def test_even_commands_keep_their_rate_go_round_and_count_themselves():
    command = {"payload": {}, "rate_per_s": 10}
    phase = {**HOLD, "duration_s": 20}
    events = of_kind(all_events(Plan(scenario(commands=[command], phases=[phase]))), EventKind.COMMAND)
    assert [event.serial for event in events] == list(range(200))
    assert [event.time_s for event in events] == pytest.approx([0.05 + 0.1 * n for n in range(200)])
    assert set(Counter(event.device for event in events).values()) == {2}


def test_commands_for_a_part_of_the_fleet_go_to_that_part():
    command = {"payload": {}, "rate_per_s": 50, "devices": 0.2}
    for spacing in ("even", "poisson"):
        plan = Plan(scenario(commands=[{**command, "spacing": spacing}], phases=[HOLD]))
        assert len({event.device for event in of_kind(all_events(plan), EventKind.COMMAND)}) == 20


def test_poisson_arrivals_have_the_rate_and_the_variance_of_poisson():
    command = {"payload": {}, "rate_per_s": 40, "spacing": "poisson"}
    phase = {**HOLD, "duration_s": 500}
    plan = Plan(scenario(commands=[command], phases=[phase]))
    kinds = frozenset({EventKind.COMMAND})
    times = [event.time_s for event in plan.events(range(100), 0, 500, kinds)]
    counts = [sum(1 for _ in group) for group in _by_second(times, 500)]
    mean = sum(counts) / len(counts)
    variance = sum((count - mean) ** 2 for count in counts) / len(counts)
    assert mean == pytest.approx(40, rel=0.03)
    assert variance == pytest.approx(40, rel=0.25)


def _by_second(times: list[float], seconds: int) -> list[list[float]]:
    groups: list[list[float]] = [[] for _ in range(seconds)]
    for time_s in times:
        groups[int(time_s)].append(time_s)
    return groups


def test_arrivals_grow_with_a_ramp_and_go_only_to_devices_that_are_online():
    arrivals = {"kind": "open", "rate_per_s": 100}
    events = all_events(Plan(scenario(level="wire", arrivals=[arrivals], phases=[RAMP, {**HOLD, "duration_s": 5}])))
    on: set[int] = set()
    counts: Counter[bool] = Counter()
    for event in events:
        if event.kind is EventKind.SWITCH_ON:
            on.add(event.device)
        if event.kind is EventKind.ARRIVAL and event.time_s > 1:
            assert event.device in on
        counts[event.kind is EventKind.ARRIVAL and event.time_s < 10] += 1
    assert counts[True] == pytest.approx(500, abs=1)
    assert len(of_kind(events, EventKind.ARRIVAL)) == pytest.approx(1000, abs=1)


def test_the_rate_factor_of_a_phase_multiplies_the_rates():
    command = {"payload": {}, "rate_per_s": 10}
    phases = [{**HOLD, "name": "a", "duration_s": 10}, {**HOLD, "name": "b", "duration_s": 10, "rate_factor": 3}]
    events = of_kind(all_events(Plan(scenario(commands=[command], phases=phases))), EventKind.COMMAND)
    assert Counter(int(event.time_s // 10) for event in events) == {0: 100, 1: 300}


def test_a_phase_is_not_cut_short():
    timeline = Timeline.of(scenario(phases=[RAMP, HOLD]))
    with pytest.raises(ValueError, match="cannot begin at 4 s"):
        timeline.entered(1, 4.0)


def test_onboarding_scans_each_label_once():
    made = scenario(kind="onboarding_storm", onboarding={"rate_per_s": 5}, phases=[HOLD])
    events = all_events(Plan(made))
    assert [event.device for event in of_kind(events, EventKind.ONBOARD)] == list(range(100))


def test_history_is_planned_before_the_run():
    made = scenario(kind="backfill", backfill={"history_s": "1h"}, phases=[HOLD], fleet={"devices": 3})
    events = of_kind(all_events(Plan(made)), EventKind.READING)
    assert len([event for event in events if event.time_s < 0]) == 180
    assert min(event.time_s for event in events) >= -3600


def test_a_range_outside_the_fleet_is_refused():
    with pytest.raises(ValueError, match="no range of 100 devices"):
        Plan(scenario()).table(range(90, 101), 0, 1)


def test_the_digest_of_long_phases_looks_at_their_ends():
    long = {**HOLD, "duration_s": 100_000}
    made = scenario(phases=[long], fleet={"devices": 5})
    assert digest_of(Plan(made), 3) == digest_of(Plan(made))


def test_a_device_of_the_core_reads_when_the_plan_says():
    """The device's own schedule, on a machine whose clock stands somewhere, with the id of some service."""
    fleet = {"models": [{"telemetry": {"every_s": 7.5}}]}
    plan = Plan(scenario(fleet=fleet, phases=[HOLD]))
    began_s = 12_345.678
    for device in (0, 17, 99):
        body = SimpleNamespace(
            fleet=SimpleNamespace(seed=1, began_s=began_s),
            model=SimpleNamespace(interval_s=7.5, in_step=False),
            disk=SimpleNamespace(journal=SimpleNamespace(settings={})),
            index=device,
        )
        schedule = VirtualDevice._scheduled(SimpleNamespace(_runtime=body))
        planned = plan.reading_schedule(device).next_after(20.0)
        assert schedule.next_after(began_s + 20.0) - began_s == pytest.approx(planned, abs=1e-6)
