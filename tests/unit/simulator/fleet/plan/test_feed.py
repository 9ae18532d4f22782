"""What a worker plays: each event once, the phases behind a barrier when it opens, the devices' own power always."""

from __future__ import annotations

import json
import sys
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.fleet.plan.events import Event, EventKind
from simulator.fleet.plan.feed import EventFeed
from simulator.fleet.plan.plan import Plan
from simulator.fleet.plan.power import contact_of, own_losses, power_of
from simulator.fleet.plan.timeline import Timeline
from simulator.fleet.scenario.model import Scenario

HOLD = {"kind": "hold", "name": "hold", "duration_s": 10}
WAIT = {**HOLD, "name": "wait", "until": "online >= 99%", "until_within_s": 100}
STORM = {"kind": "storm", "name": "storm", "duration_s": 20, "away_s": 4}
SWITCHES = {EventKind.SWITCH_ON, EventKind.SWITCH_OFF, EventKind.RECONNECT, EventKind.DISCONNECT}


def scenario(phases: list[dict[str, Any]], devices: int = 20, **sections: Any) -> Scenario:
    fleet = {"devices": devices, **sections.pop("fleet", {})}
    named = [{**phase, "name": f"p{number}"} for number, phase in enumerate(phases)]
    return Scenario.model_validate_json(
        json.dumps({"scenario": "s", "phases": named, **sections, "fleet": fleet}), strict=True
    )


def fed(made: Scenario, waits: dict[int, float], step_s: float = 0.25, ahead_s: float = 2.0) -> list[Event]:
    """Every event as a worker takes it, every ``step_s``; the barrier of a phase opens so much after its time."""
    feed = EventFeed(Plan(made), range(made.fleet.devices))
    events: list[Event] = []
    now_s, begin_s = 0.0, 0.0
    for index, phase in enumerate(made.phases):
        feed.enter(index, begin_s)
        end_s = begin_s + phase.duration_s + waits.get(index, 0.0)
        while now_s < end_s:
            events += feed.take(now_s + ahead_s, now_s).rows()
            now_s += step_s
        begin_s = end_s
    events += feed.take(begin_s, begin_s).rows()
    return events


def of_kind(events: list[Event], kind: EventKind) -> list[float]:
    return [event.time_s for event in events if event.kind is kind]


def test_a_phase_that_waited_moves_what_comes_after_it():
    made = scenario([WAIT, STORM], commands=[{"payload": {}, "rate_per_s": 1}])
    on_time, late = fed(made, {}), fed(made, {0: 3.5})
    assert set(of_kind(on_time, EventKind.SWITCH_OFF)) == {10.0}
    assert set(of_kind(late, EventKind.SWITCH_OFF)) == {13.5}
    assert sorted(of_kind(late, EventKind.COMMAND)) == [n + 0.5 + (3.5 if n >= 10 else 0) for n in range(30)]


def test_while_a_barrier_waits_batteries_go_on_and_what_comes_behind_it_has_no_time():
    battery = {"life_s": 20.0, "dead_s": 5.0, "charge_s": 5.0, "spread": 0.2}
    made = scenario(
        [WAIT, STORM], commands=[{"payload": {}, "rate_per_s": 1}], fleet={"models": [{"battery": battery}]}
    )
    feed = EventFeed(Plan(made), range(20))
    events = [event for now_s in range(110) for event in feed.take(now_s + 2.0, float(now_s)).rows()]
    for kind in (EventKind.SWITCH_OFF, EventKind.SWITCH_ON):
        assert {int(time_s // 20) for time_s in of_kind(events, kind) if time_s >= 20} == {1, 2, 3, 4, 5}
    assert max(of_kind(events, EventKind.COMMAND)) < 10
    assert (feed.moved(9), feed.moved(11)) == (9, None)
    assert feed.enter(1, 110.0)
    assert feed.moved(11) == 111
    after = list(feed.take(112.0, 110.0).rows())
    assert of_kind(after, EventKind.COMMAND) == [110.5, 111.5]


def test_batteries_go_on_while_the_last_barrier_waits():
    models = [{"battery": {"life_s": 20.0, "dead_s": 5.0, "charge_s": 5.0}}]
    feed = EventFeed(Plan(scenario([WAIT], fleet={"models": models})), range(20))
    feed.take(50.0, 50.0)
    assert of_kind(list(feed.take(110.0, 110.0).rows()), EventKind.SWITCH_ON)


phases = st.lists(
    st.fixed_dictionaries(
        {"duration_s": st.floats(1, 12), "until": st.sampled_from([None, "online >= 1%"])},
    ).flatmap(
        lambda basis: st.one_of(
            st.fixed_dictionaries({"kind": st.just("hold")}),
            st.fixed_dictionaries({"kind": st.just("ramp"), "to": st.floats(0, 1)}),
            st.fixed_dictionaries(
                {
                    "kind": st.just("storm"),
                    "share": st.floats(0.1, 1),
                    "away_s": st.floats(0.1, 1.0).map(lambda part: part * basis["duration_s"]),
                    "loss": st.sampled_from(["power", "connection"]),
                }
            ),
        ).map(lambda own: {"name": "p", **{k: v for k, v in basis.items() if v is not None}, **own})
    ),
    min_size=1,
    max_size=4,
)
waits = st.lists(st.floats(0, 9), min_size=4, max_size=4)
models = st.fixed_dictionaries(
    {
        "reboots": st.none() | st.fixed_dictionaries({"every_s": st.floats(4, 15), "away_s": st.just(2.0)}),
        "battery": st.none()
        | st.fixed_dictionaries({"life_s": st.floats(4, 15), "dead_s": st.just(3.0), "charge_s": st.just(2.0)}),
    }
)


@settings(max_examples=25, deadline=None)
@given(phases, waits, models, st.sampled_from([0.2, 0.9, 2.5]))
def test_what_is_fed_is_what_the_whole_run_looks_like_once_its_waits_are_known(made_phases, late_s, model, step_s):
    """Its witness adds up every cause of the whole run, with the phases where they were in the end."""
    made = scenario(made_phases, devices=12, fleet={"models": [{k: v for k, v in model.items() if v is not None}]})
    waited = {index: late_s[index] for index, phase in enumerate(made.phases) if phase.until is not None}
    timeline = Timeline.of(made)
    for index in range(1, len(made.phases)):
        if index - 1 in waited:
            timeline = timeline.entered(index, timeline.spans[index].begin_s + waited[index - 1])
    end_s = timeline.end_s + waited.get(len(made.phases) - 1, 0.0)
    devices = range(12)
    plan = Plan(made)
    power = power_of(made, timeline, devices, own_losses(made, plan.longest_s, devices))
    contact = contact_of(made, timeline, devices)
    state = {(kind, device): kind == "contact" for kind in ("power", "contact") for device in devices}
    taken = sorted(
        (e for e in fed(made, waited, step_s) if e.kind in SWITCHES), key=lambda e: (round(e.time_s, 6), e.kind)
    )
    assert len(taken) == len({(round(e.time_s, 9), e.device, e.kind) for e in taken}), "each event once"
    position = 0
    for at_s in np.linspace(0.001, end_s - 0.001, 60):
        while position < len(taken) and taken[position].time_s <= at_s:
            event = taken[position]
            kind = "power" if event.kind in {EventKind.SWITCH_ON, EventKind.SWITCH_OFF} else "contact"
            state[kind, event.device] = event.kind in {EventKind.SWITCH_ON, EventKind.RECONNECT}
            position += 1
        near = {e.device for e in taken if abs(e.time_s - at_s) < 1e-4}
        for device in devices:
            if device not in near:
                index, time_s = np.array([device]), np.array([at_s])
                assert state["power", device] == power.on_at(index, time_s)[0]
                assert state["contact", device] == contact.on_at(index, time_s)[0]


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
