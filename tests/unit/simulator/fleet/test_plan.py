"""What workers play: each event once, however the fleet is dealt out, and phases behind a barrier when it opens."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.fleet.plan import (
    Event,
    EventFeed,
    EventKind,
    connections_of,
    count_workers,
    deal,
    digest_of,
    key_of,
)
from simulator.fleet.scenario.model import READER, Scenario
from simulator.fleet.scenario.reading import parse_scenario

HOLD = {"kind": "hold", "duration_s": 10}
RAMP = {"kind": "ramp", "duration_s": 10}
WAIT = {**HOLD, "until": "online >= 99%", "until_within_s": 100}
DOWN = {**RAMP, "to": 0.0}


def scenario(phases: list[dict[str, Any]], devices: int = 20, **sections: Any) -> Scenario:
    fleet = {"devices": devices, **sections.pop("fleet", {})}
    named = [{**phase, "name": f"p{number}"} for number, phase in enumerate(phases)]
    return READER.validate_json(json.dumps({"scenario": "s", "phases": named, **sections, "fleet": fleet}), strict=True)


def fed(
    made: Scenario, waits: dict[int, float] | None = None, step_s: float = 0.25, devices: range | None = None
) -> list[Event]:
    """Every event as a worker takes it, every ``step_s``; the barrier of a phase opens so much after its time."""
    feed = EventFeed(made, devices or range(made.fleet.devices))
    events: list[Event] = []
    now_s, begin_s = 0.0, 0.0
    for index, phase in enumerate(made.phases):
        feed.enter(index, begin_s)
        end_s = begin_s + phase.duration_s + (waits or {}).get(index, 0.0)
        while now_s < end_s:
            events += feed.take(now_s + 2.0)
            now_s += step_s
        begin_s = end_s
    return events + feed.take(begin_s)


def of_kind(events: list[Event], kind: EventKind) -> list[float]:
    return [event.time_s for event in events if event.kind == kind]


phases = st.lists(
    st.fixed_dictionaries(
        {"duration_s": st.floats(1, 12), "until": st.sampled_from([None, "online >= 1%"])},
    ).flatmap(
        lambda basis: st.one_of(
            st.just({"kind": "hold"}),
            st.fixed_dictionaries({"kind": st.just("ramp"), "to": st.floats(0, 1)}),
        ).map(lambda own: {**{k: v for k, v in basis.items() if v is not None}, **own})
    ),
    min_size=1,
    max_size=4,
)
waits = st.lists(st.floats(0, 9), min_size=4, max_size=4)
streams = st.lists(
    st.fixed_dictionaries({"rate_per_s": st.floats(0.1, 20), "spacing": st.sampled_from(["even", "poisson"])}),
    max_size=2,
)


@settings(max_examples=40, deadline=None)
@given(phases, waits, streams, st.integers(1, 11))
def test_events_come_once_and_in_turns_however_the_fleet_and_the_time_are_cut(made_phases, late_s, sent, cut):
    commands = [{"payload": {"n": number}, **stream} for number, stream in enumerate(sent)]
    made = scenario(made_phases, 12, commands=commands)
    waited = {index: late_s[index] for index, phase in enumerate(made.phases) if phase.until is not None}
    whole = fed(made, waited)
    parts = fed(made, waited, devices=range(cut)) + fed(made, waited, step_s=0.9, devices=range(cut, 12))
    assert Counter(parts) == Counter(whole)
    assert max(Counter(whole).values(), default=1) == 1
    is_on = dict.fromkeys(range(12), False)
    for event in sorted(whole):
        if event.kind in {EventKind.SWITCH_ON, EventKind.SWITCH_OFF}:
            assert is_on[event.device] is (event.kind == EventKind.SWITCH_OFF), "each time to another state"
            is_on[event.device] = not is_on[event.device]


def test_a_phase_that_waited_moves_what_comes_after_it():
    made = scenario([WAIT, DOWN], commands=[{"payload": {}, "rate_per_s": 1, "spacing": "even"}])
    on_time, late = fed(made), fed(made, {0: 3.5})
    assert of_kind(late, EventKind.SWITCH_OFF) == [at_s + 3.5 for at_s in of_kind(on_time, EventKind.SWITCH_OFF)]
    planned = of_kind(on_time, EventKind.COMMAND)
    assert planned[:10] == [n + 0.5 for n in range(10)]
    assert of_kind(late, EventKind.COMMAND) == pytest.approx(planned[:10] + [at_s + 3.5 for at_s in planned[10:]])


def test_while_a_barrier_waits_what_comes_behind_it_has_no_time():
    made = scenario([{**WAIT, "duration_s": 20}, HOLD], commands=[{"payload": {}, "rate_per_s": 1}])
    feed = EventFeed(made, range(20))
    events = [event for now_s in range(110) for event in feed.take(now_s + 2.0)]
    assert max(of_kind(events, EventKind.COMMAND)) < 20
    assert (feed.moved(19), feed.moved(21)) == (19, None)
    assert feed.enter(1, 110.0)
    assert feed.moved(21) == 111
    assert of_kind(feed.take(112.0), EventKind.COMMAND) == [110.5, 111.5]


def test_ramps_take_exactly_their_share():
    ramp = fed(scenario([{**RAMP, "to": 0.5}, HOLD], 100))
    times = of_kind(ramp, EventKind.SWITCH_ON)
    assert len(times) == 50
    assert [sum(time_s < limit for time_s in times) for limit in (2.5, 5, 7.5)] == pytest.approx(
        [12.5, 25, 37.5], abs=1
    )


def test_commands_keep_their_rate_go_round_and_go_to_their_part_of_the_fleet():
    even = fed(scenario([{**HOLD, "duration_s": 20}], 100, commands=[{"payload": {}, "rate_per_s": 10}]))
    orders = [event for event in even if event.kind == EventKind.COMMAND]
    assert [event.serial for event in orders] == list(range(200))
    assert [event.time_s for event in orders] == pytest.approx([0.05 + 0.1 * n for n in range(200)])
    assert set(Counter(event.device for event in orders).values()) == {2}
    poisson = {"payload": {}, "rate_per_s": 40, "spacing": "poisson", "devices": 0.2}
    found = fed(scenario([{**HOLD, "duration_s": 300}], 100, commands=[poisson]), step_s=2.0)
    counts = Counter(int(time_s) for time_s in of_kind(found, EventKind.COMMAND))
    mean = sum(counts.values()) / 300
    assert mean == pytest.approx(40, rel=0.05)
    assert sum((counts[second] - mean) ** 2 for second in range(300)) / 300 == pytest.approx(40, rel=0.3)
    assert len({event.device for event in found if event.kind == EventKind.COMMAND}) == 20


def test_arrivals_grow_with_a_ramp_and_with_the_factor_of_a_phase():
    arrivals = [{"rate_per_s": 100}]
    events = fed(scenario([RAMP, HOLD, {**HOLD, "rate_factor": 3}], 100, kind="requests", arrivals=arrivals))
    counts = Counter(int(time_s // 10) for time_s in of_kind(events, EventKind.ARRIVAL))
    assert counts == {0: pytest.approx(500, abs=1), 1: pytest.approx(1000, abs=1), 2: pytest.approx(3000, abs=1)}
    on_s = {event.device: event.time_s for event in events if event.kind == EventKind.SWITCH_ON}
    early = [event for event in events if event.kind == EventKind.ARRIVAL and 1 < event.time_s < 10]
    assert all(on_s[event.device] <= event.time_s for event in early), "nobody sends who is not there yet"


def test_the_digest_is_of_what_is_played_and_of_nothing_else():
    command = {"payload": {"command": "ping"}, "rate_per_s": 1}
    base = digest_of(scenario([HOLD], commands=[command]))
    said = {"description": "x", "workers": 4, "thresholds": ["x < 1"], "target": {"base_url": "http://127.0.0.2:1"}}
    assert digest_of(scenario([HOLD], commands=[command], **said)) == base
    assert digest_of(scenario([HOLD], commands=[command], seed=2)) != base
    assert digest_of(scenario([HOLD], commands=[{**command, "payload": {"command": "pong"}}])) != base


# --- who plays what --------------------------------------------------------------------------------------------------


@given(st.integers(1, 12), st.integers(0, 5_000), st.integers(1, 40), st.integers(1, 1_000))
def test_devices_keys_and_connections_are_dealt_out_evenly_and_none_is_left_over(workers, more, keys, connections):
    devices = workers + more
    ranges = deal(devices, workers)
    assert [device for each in ranges for device in each] == list(range(devices))
    assert all(abs(len(each) - devices / workers) < 1 for each in ranges)
    users = Counter(key_of(device, devices, keys) for device in range(devices))
    assert len(users) == min(devices, keys)
    shares = [connections_of(worker, workers, connections) for worker in range(workers)]
    assert sum(shares) == max(connections, workers)
    assert all(max(each) - min(each) <= 1 for each in (users.values(), shares))


@pytest.mark.parametrize(
    ("devices", "more", "cores", "workers"),
    [
        (20, "", 8, 1),
        (2_500, "", 8, 1),
        (2_501, "", 8, 2),
        (100_000, "", 8, 8),
        (3, "workers: 8", 1, 3),
        (100_000, "workers: 5", 1, 5),
        (100_000, "target: {connections: 3}", 8, 3),
        (10, "kind: backfill\nbackfill: {history_s: 30d}", 8, 2),  # 432,000 readings, one a minute
        (1, "kind: backfill\nbackfill: {history_s: 365d}", 8, 1),
        (100, "kind: backfill\nbackfill: {history_s: 365d}", 8, 8),
        (10, "kind: backfill\nworkers: 3\nbackfill: {history_s: 1d}", 8, 3),
        (6_000, "kind: onboarding\nonboarding: {rate_per_s: 200}", 8, 1),
    ],
)
def test_a_run_takes_as_many_processes_as_its_devices_are_worth(devices, more, cores, workers):
    phases = "" if "backfill" in more else "phases: [{name: a, kind: hold, duration_s: 60}]\n"
    text = f"scenario: s\nfleet: {{devices: {devices}}}\n{phases}{more}\n"
    assert count_workers(parse_scenario(text.encode(), Path()), cores) == workers
