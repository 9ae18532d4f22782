"""What workers play: each event once, however the fleet is dealt out, and phases behind a barrier when it opens."""

from __future__ import annotations

import json
import sys
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.fleet.device.virtual_device import VirtualDevice
from simulator.fleet.plan.events import Event, EventKind
from simulator.fleet.plan.feed import EventFeed
from simulator.fleet.plan.plan import Plan
from simulator.fleet.plan.timeline import Timeline
from simulator.fleet.scenario.model import Scenario

HOLD = {"kind": "hold", "duration_s": 10}
RAMP = {"kind": "ramp", "duration_s": 10}
WAIT = {**HOLD, "until": "online >= 99%", "until_within_s": 100}
STORM = {"kind": "storm", "duration_s": 20, "away_s": 4}
ON_OFF = {EventKind.SWITCH_ON: EventKind.SWITCH_OFF, EventKind.RECONNECT: EventKind.DISCONNECT}


def scenario(phases: list[dict[str, Any]], devices: int = 20, **sections: Any) -> Scenario:
    fleet = {"devices": devices, **sections.pop("fleet", {})}
    named = [{**phase, "name": f"p{number}"} for number, phase in enumerate(phases)]
    return Scenario.model_validate_json(
        json.dumps({"scenario": "s", "phases": named, **sections, "fleet": fleet}), strict=True
    )


def taken(feed: EventFeed, to_s: float, now_s: float) -> list[Event]:
    table = feed.take(to_s, now_s)
    return [table.row(number) for number in range(len(table))]


def fed(
    made: Scenario, waits: dict[int, float] | None = None, step_s: float = 0.25, devices: range | None = None
) -> list[Event]:
    """Every event as a worker takes it, every ``step_s``; the barrier of a phase opens so much after its time."""
    feed = EventFeed(Plan(made), devices or range(made.fleet.devices))
    events: list[Event] = []
    now_s, begin_s = 0.0, 0.0
    for index, phase in enumerate(made.phases):
        feed.enter(index, begin_s)
        end_s = begin_s + phase.duration_s + (waits or {}).get(index, 0.0)
        while now_s < end_s:
            events += taken(feed, now_s + 2.0, now_s)
            now_s += step_s
        begin_s = end_s
    return events + taken(feed, begin_s, begin_s)


def of_kind(events: list[Event], kind: EventKind) -> list[float]:
    return [event.time_s for event in events if event.kind is kind]


phases = st.lists(
    st.fixed_dictionaries(
        {"duration_s": st.floats(1, 12), "until": st.sampled_from([None, "online >= 1%"])},
    ).flatmap(
        lambda basis: st.one_of(
            st.just({"kind": "hold"}),
            st.fixed_dictionaries({"kind": st.just("ramp"), "to": st.floats(0, 1)}),
            st.fixed_dictionaries(
                {
                    "kind": st.just("storm"),
                    "share": st.floats(0.1, 1),
                    "away_s": st.floats(0.1, 1.0).map(lambda part: part * basis["duration_s"]),
                    "loss": st.sampled_from(["power", "connection"]),
                }
            ),
        ).map(lambda own: {**{k: v for k, v in basis.items() if v is not None}, **own})
    ),
    min_size=1,
    max_size=4,
)
waits = st.lists(st.floats(0, 9), min_size=4, max_size=4)
reboots = st.none() | st.fixed_dictionaries({"every_s": st.floats(4, 15), "away_s": st.just(2.0)})
streams = st.lists(
    st.fixed_dictionaries({"rate_per_s": st.floats(0.1, 20), "spacing": st.sampled_from(["even", "poisson"])}),
    max_size=2,
)


@settings(max_examples=40, deadline=None)
@given(phases, waits, reboots, streams, st.integers(1, 11))
def test_events_come_once_and_in_turns_however_the_fleet_and_the_time_are_cut(made_phases, late_s, reboot, sent, cut):
    models = [{"reboots": reboot}] if reboot else [{}]
    commands = [{"payload": {"n": number}, **stream} for number, stream in enumerate(sent)]
    made = scenario(made_phases, 12, fleet={"models": models}, commands=commands)
    waited = {index: late_s[index] for index, phase in enumerate(made.phases) if phase.until is not None}
    whole = fed(made, waited)
    parts = fed(made, waited, devices=range(cut)) + fed(made, waited, step_s=0.9, devices=range(cut, 12))
    assert Counter(parts) == Counter(whole)
    assert max(Counter(whole).values(), default=1) == 1
    states: dict[tuple[int, EventKind], bool] = {}
    for event in sorted(whole, key=lambda event: (event.time_s, event.kind)):
        for on, off in ON_OFF.items():
            if event.kind in {on, off}:
                before = states.get((event.device, on), on is EventKind.RECONNECT)
                assert before is not (event.kind is on), "a device is switched to another state each time"
                states[event.device, on] = event.kind is on


def test_a_phase_that_waited_moves_what_comes_after_it():
    made = scenario([WAIT, STORM], commands=[{"payload": {}, "rate_per_s": 1}])
    on_time, late = fed(made), fed(made, {0: 3.5})
    assert set(of_kind(on_time, EventKind.SWITCH_OFF)) == {10.0}
    assert set(of_kind(late, EventKind.SWITCH_OFF)) == {13.5}
    assert sorted(of_kind(late, EventKind.COMMAND)) == [n + 0.5 + (3.5 if n >= 10 else 0) for n in range(30)]


def test_while_a_barrier_waits_reboots_go_on_and_what_comes_behind_it_has_no_time():
    models = [{"reboots": {"every_s": 20.0, "away_s": 2.0}}]
    made = scenario([WAIT, STORM], commands=[{"payload": {}, "rate_per_s": 1}], fleet={"models": models})
    feed = EventFeed(Plan(made), range(20))
    events = [event for now_s in range(110) for event in taken(feed, now_s + 2.0, float(now_s))]
    assert {int(time_s // 20) for time_s in of_kind(events, EventKind.SWITCH_OFF) if time_s >= 20} == {1, 2, 3, 4, 5}
    assert max(of_kind(events, EventKind.COMMAND)) < 10
    assert (feed.moved(9), feed.moved(11)) == (9, None)
    assert feed.enter(1, 110.0)
    assert feed.moved(11) == 111
    assert of_kind(taken(feed, 112.0, 110.0), EventKind.COMMAND) == [110.5, 111.5]


def test_ramps_storms_and_reboots_take_exactly_their_share():
    ramp = fed(scenario([{**RAMP, "to": 0.5}, HOLD], 100))
    times = of_kind(ramp, EventKind.SWITCH_ON)
    assert len(times) == 50
    assert [sum(time_s < limit for time_s in times) for limit in (2.5, 5, 7.5)] == pytest.approx(
        [12.5, 25, 37.5], abs=1
    )
    storm = fed(scenario([HOLD, {**STORM, "share": 0.3, "waves": 2}], 100))
    assert Counter(of_kind(storm, EventKind.SWITCH_OFF)) == {10.0: 30, 20.0: 30}
    assert Counter(of_kind(storm, EventKind.SWITCH_ON)) == {0.0: 100, 14.0: 30, 24.0: 30}
    own = fed(
        scenario([{**HOLD, "duration_s": 60}], 100, fleet={"models": [{"reboots": {"every_s": 20, "away_s": 1}}]})
    )
    assert 250 < len(of_kind(own, EventKind.SWITCH_OFF)) <= 300


def test_commands_keep_their_rate_go_round_and_go_to_their_part_of_the_fleet():
    even = fed(scenario([{**HOLD, "duration_s": 20}], 100, commands=[{"payload": {}, "rate_per_s": 10}]))
    orders = [event for event in even if event.kind is EventKind.COMMAND]
    assert [event.serial for event in orders] == list(range(200))
    assert [event.time_s for event in orders] == pytest.approx([0.05 + 0.1 * n for n in range(200)])
    assert set(Counter(event.device for event in orders).values()) == {2}
    poisson = {"payload": {}, "rate_per_s": 40, "spacing": "poisson", "devices": 0.2}
    found = fed(scenario([{**HOLD, "duration_s": 300}], 100, commands=[poisson]), step_s=2.0)
    counts = Counter(int(time_s) for time_s in of_kind(found, EventKind.COMMAND))
    mean = sum(counts.values()) / 300
    assert mean == pytest.approx(40, rel=0.05)
    assert sum((counts[second] - mean) ** 2 for second in range(300)) / 300 == pytest.approx(40, rel=0.3)
    assert len({event.device for event in found if event.kind is EventKind.COMMAND}) == 20


def test_arrivals_grow_with_a_ramp_and_with_the_factor_of_a_phase():
    arrivals = [{"kind": "open", "rate_per_s": 100}]
    events = fed(scenario([RAMP, HOLD, {**HOLD, "rate_factor": 3}], 100, level="wire", arrivals=arrivals))
    counts = Counter(int(time_s // 10) for time_s in of_kind(events, EventKind.ARRIVAL))
    assert counts == {0: pytest.approx(500, abs=1), 1: pytest.approx(1000, abs=1), 2: pytest.approx(3000, abs=1)}
    on_s = {event.device: event.time_s for event in events if event.kind is EventKind.SWITCH_ON}
    early = [event for event in events if event.kind is EventKind.ARRIVAL and 1 < event.time_s < 10]
    assert all(on_s[event.device] <= event.time_s for event in early), "nobody sends who is not there yet"


def test_a_phase_is_not_cut_short():
    with pytest.raises(ValueError, match="cannot begin at 4 s"):
        Timeline.of(scenario([RAMP, HOLD])).entered(1, 4.0)


def test_the_digest_is_of_what_is_played_and_of_nothing_else():
    command = {"payload": {"command": "ping"}, "rate_per_s": 1}
    base = Plan(scenario([HOLD], commands=[command])).digest
    said = {"description": "x", "workers": 4, "thresholds": ["x < 1"], "target": {"base_url": "http://127.0.0.2:1"}}
    assert Plan(scenario([HOLD], commands=[command], **said)).digest == base
    assert Plan(scenario([HOLD], commands=[command], seed=2)).digest != base
    assert Plan(scenario([HOLD], commands=[{**command, "payload": {"command": "pong"}}])).digest != base


def test_a_device_of_the_core_reads_when_the_plan_says():
    """The device's own schedule, on a machine whose clock stands somewhere, with the id of some service."""
    plan = Plan(scenario([HOLD], 100, fleet={"models": [{"telemetry": {"every_s": 7.5}}]}))
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


def calls(what: Any) -> Counter[str]:
    """How often each function was called while this was done, Python's own ones too."""
    counted: Counter[str] = Counter()

    def count(frame: Any, event: str, argument: Any) -> None:
        if event == "call":
            counted[frame.f_code.co_qualname] += 1
        elif event == "c_call":
            counted[argument.__qualname__] += 1

    sys.setprofile(count)
    try:
        what()
    finally:
        sys.setprofile(None)
    return counted


@pytest.mark.parametrize("made_phases", [[WAIT, {**STORM, "share": 1}], [WAIT, {"kind": "ramp", "duration_s": 0.5}]])
def test_opening_a_barrier_takes_as_many_steps_with_ten_thousand_devices_as_with_a_hundred(made_phases):
    reboots = {"reboots": {"every_s": 30, "away_s": 2}}

    def opened(devices: int) -> Counter[str]:
        feed = EventFeed(Plan(scenario(made_phases, devices, fleet={"models": [reboots]})), range(devices))
        feed.take(15.0, 15.0)
        return calls(lambda: (feed.enter(1, 15.0), feed.take(17.0, 15.0)))

    assert opened(100) == opened(10_000)
