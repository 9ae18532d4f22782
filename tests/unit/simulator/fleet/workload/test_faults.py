"""States and faults reach the devices: on virtual time, over an engine without sockets."""

from __future__ import annotations

import asyncio
import json
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path

import pytest

from agent.core.poll_interval import PollIntervals
from agent.wire import extensions
from agent.wire.times import parse_time
from simulator.fleet.device.driver import Member
from simulator.fleet.device.environment import Environment
from simulator.fleet.device.http_driver import HttpDriver
from simulator.fleet.device.model import Clocks, DeviceModel, SharedSettings
from simulator.fleet.device.request_template import RequestTemplate
from simulator.fleet.engine.http.origin import read_origin
from simulator.fleet.engine.wheel import Wheel
from simulator.fleet.models.build import ModelParts, build_model
from simulator.fleet.models.fault_hooks import NO_FAULTS
from simulator.fleet.models.settings import FirmwareSettings, StateSettings
from simulator.fleet.scenario.model import Scenario
from simulator.fleet.signals.base import Individual
from simulator.fleet.signals.kinds.constant import ConstantSettings
from simulator.fleet.workload.faults import FaultContext, FaultSchedule, read_device_faults
from tests.unit.simulator.fleet.device.fleet_fakes import START_S, FakeEngine, RecordingLedger, RecordingObserver
from tests.virtual_clock import VirtualClock

BEGAN_S = 1000.0
NOTHING = (200, {}, b'{"data":[],"next_cursor":null,"has_more":false}')
EVERY_TEN = DeviceModel(interval_s=10.0, polling=PollIntervals(600.0, 600.0, 600.0), wait_s=0.0)


def a_scenario(faults):
    document = {
        "scenario": "s",
        "fleet": {"devices": 20},
        "phases": [{"kind": "hold", "name": "hold", "duration_s": 300}],
        "faults": faults,
    }
    return Scenario.model_validate_json(json.dumps(document), strict=True)


class Play:
    def __init__(self, faults=(), model=EVERY_TEN, offers=frozenset()) -> None:
        self.clock = VirtualClock(BEGAN_S)
        self.refuse = lambda body: False
        self.orders: dict[int, list[dict]] = {}
        self.results: dict[int, list[dict]] = {}
        self.engine = FakeEngine(self.clock, self._answer)
        self.ledger = RecordingLedger()
        self.around = Environment(BEGAN_S, START_S + BEGAN_S, NO_FAULTS, has_clocks=False)
        fleet = SharedSettings(
            frozenset({extensions.COMMAND_STATUS, extensions.IDEMPOTENCY_KEY, extensions.RECORDED_AT}) | offers,
            seed=1,
            run="run",
            numbered=True,
            ledger=self.ledger,
            began_s=BEGAN_S,
            environment=self.around,
        )
        wheel = Wheel(self.clock)
        self.driver = HttpDriver(
            self.engine,
            wheel,
            [RequestTemplate(read_origin("http://service"), {})] * 20,
            [Member(f"d{number}", "p", model) for number in range(20)],
            fleet,
            observer=RecordingObserver(),
            clocks=Clocks(self.clock.time, lambda: START_S + self.clock.time()),
        )
        self.schedule = FaultSchedule(
            read_device_faults(a_scenario(list(faults))),
            FaultContext(self.driver, self.around, wheel, self.clock, seed=1, range_of=range(20)),
            START_S + BEGAN_S,
            slow=None,
            part=1.0,
        )
        self.schedule.begin(lambda at_s: at_s)
        self.power = self.schedule.power
        for device in range(20):
            self.power.switch_on(device)

    def _answer(self, request):
        if request.method == "GET":
            orders = self.orders.pop(request.device, None)
            return NOTHING if orders is None else (200, {}, json.dumps({"data": orders}).encode())
        if request.target.endswith("/result"):
            result = request.json()
            if result["status"] != "in_progress":
                self.results.setdefault(request.device, []).append(result)
            return (200, {}, b"{}")
        return (400, {}, b'{"error":"validation_error"}') if self.refuse(request.body) else (201, {}, b"{}")

    def run(self, until_s: float) -> None:
        self.clock.run_until(BEGAN_S + until_s)

    def posts(self):
        return [request for request in self.engine.requests if request.method == "POST"]

    def values(self, from_s, to_s):
        """Device -> what it told between two times."""
        found = defaultdict(list)
        for request in self.posts():
            if from_s <= request.sent_s - BEGAN_S < to_s:
                found[request.device].append(request.json()["sensor_data"])
        return found

    def chosen(self):
        """The devices that the record names for the first fault."""
        return {int(name) for name in self.schedule.truths(20)[0].truth["devices"]}


def test_a_frozen_sensor_freezes_the_chosen_devices_and_the_record_names_them():
    play = Play([{"kind": "frozen_sensor", "at_s": 50, "duration_s": 100, "share": 0.5}])
    play.run(200)
    frozen = {
        device for device, told in play.values(60, 140).items() if len({v["temperature_celsius"] for v in told}) == 1
    }
    assert frozen == play.chosen()
    assert 4 < len(frozen) < 16
    (span,) = play.schedule.truths(20)
    assert (span.begin_s, span.end_s, span.devices) == (50, 150, len(frozen))


def test_dead_batteries_silence_devices_until_the_end_and_a_plan_that_switches_them_meanwhile_counts():
    play = Play([{"kind": "dead_battery", "at_s": 50, "duration_s": 100, "share": 0.5}])
    play.run(100)
    first, second, *_ = sorted(play.chosen())
    play.power.switch_off(first)
    play.power.switch_off(second)
    play.power.switch_on(second)
    play.run(300)
    assert set(play.values(61, 150)) == set(range(20)) - play.chosen()
    assert set(play.values(165, 300)) == set(range(20)) - {first}


def test_without_faults_any_more_nobody_is_dead():
    play = Play([{"kind": "dead_battery", "at_s": 0, "duration_s": 1000}])
    play.run(50)
    assert play.driver.gauges.online == 0
    dead = asyncio.run(play.schedule.end())
    assert dead == set(range(20))
    for device in dead:
        play.power.switch_on(device)
    assert play.driver.gauges.online == 20


def test_a_reboot_loop_starts_devices_again_and_again():
    play = Play([{"kind": "reboot_loop", "at_s": 30, "duration_s": 120, "share": 0.5, "up_s": 15, "down_s": 5}])
    play.run(200)
    cuts = [play.engine.cuts.count(device) for device in range(20)]
    assert {device for device in range(20) if cuts[device]} == play.chosen()
    assert all(5 <= cuts[device] <= 7 for device in play.chosen())
    assert play.driver.gauges.online == 20


def test_nan_is_refused_and_the_others_arrive():
    play = Play(
        [{"kind": "nan_sensor", "at_s": 0, "duration_s": 300, "share": 1, "often": 0.3}],
        offers=frozenset({extensions.BATCH_SENSOR_DATA}),
    )
    play.refuse = lambda body: b"NaN" in body
    play.run(300)
    refused = [call for call in play.ledger.calls if call[0] == "readings_refused"]
    accepted = [call for call in play.ledger.calls if call[0] == "readings_accepted"]
    total = len(refused) + len(accepted)
    assert total == pytest.approx(600, abs=30)
    assert len(refused) / total == pytest.approx(0.3, abs=0.08)


def test_copies_go_out_with_the_same_key_or_a_fresh_one():
    for key, same in (("same", True), ("fresh", False)):
        play = Play(
            [{"kind": "duplicates", "at_s": 0, "duration_s": 300, "often": 1, "delay_s": 2, "idempotency_key": key}]
        )
        play.run(100)
        posts = defaultdict(list)
        for request in play.posts():
            posts[(request.device, request.body)].append(request)
        pairs = [both for both in posts.values() if len(both) == 2]
        assert len(pairs) > 150
        assert all(second.sent_s - first.sent_s == pytest.approx(2, abs=0.1) for first, second in pairs)
        keys = {first.headers["idempotency-key"] == second.headers["idempotency-key"] for first, second in pairs}
        assert keys == {same}


def test_late_batches_come_at_their_moment():
    play = Play([{"kind": "late_batches", "at_s": 20, "duration_s": 200, "hold_s": 60, "together": True}])
    play.run(400)
    during = {round(request.sent_s - BEGAN_S) for request in play.posts() if 31 < request.sent_s - BEGAN_S < 205}
    assert during <= {80, 81, 140, 141, 200, 201}
    assert len(play.posts()) == pytest.approx(800, abs=25)


def test_timers_in_step_fall_together():
    play = Play([{"kind": "in_step_timers", "at_s": 50, "duration_s": 100}])
    play.run(300)
    during = {round(r.sent_s - BEGAN_S, 1) % 10 for r in play.posts() if 70 < r.sent_s - BEGAN_S < 145}
    after = {round(r.sent_s - BEGAN_S, 1) % 10 for r in play.posts() if r.sent_s - BEGAN_S > 170}
    assert len(during) == 1
    assert len(after) > 10


def test_a_clock_that_jumps_dates_readings_by_itself():
    play = Play([{"kind": "clock_jump", "at_s": 50, "duration_s": 100, "jump_s": -3600, "share": 0.5}])
    play.run(140)
    off = set()
    for request in play.posts():
        if request.sent_s - BEGAN_S > 65:
            error_s = parse_time(request.json()["recorded_at"]) - START_S - request.sent_s
            assert abs(error_s) < 1 or error_s == pytest.approx(-3600, abs=1)
            off |= {request.device} if error_s < -1 else set()
    assert off == play.chosen()


def test_an_update_changes_the_version_that_a_device_tells_or_fails_and_bad_firmware_tells_its_own():
    settings = FirmwareSettings(versions={"1.0": 1}, update_s=20, failure_share=0.5)
    model = build_model(ModelParts("m", {}, firmware=settings), folder=Path())
    fault = {"kind": "bad_firmware", "at_s": 200, "duration_s": 50, "version": "9.9-bad"}
    often = PollIntervals(10.0, 10.0, 10.0)
    play = Play([fault], replace(EVERY_TEN, nature=model, polling=often), frozenset({extensions.COMMAND_RESULTS}))
    update = {"command": "update_firmware", "version": "2.0"}
    for device in range(20):
        play.orders[device] = [{"id": f"u{device}", "command_payload": update, "status": "queued"}]
    play.run(60)
    outcomes = {device: results[-1] for device, results in play.results.items()}
    statuses = Counter(outcome["status"] for outcome in outcomes.values())
    assert set(statuses) == {"succeeded", "failed"}
    assert {o["error"].split(":")[0] for o in outcomes.values() if o["status"] == "failed"} == {"update_failed"}
    assert {str(o["result"]) for o in outcomes.values() if o["status"] == "succeeded"} == {
        "{'version': '2.0', 'previous': '1.0'}"
    }
    for at_s in (100, 210, 300):
        play.run(at_s)
        for device in range(20):
            ping = {"command": "ping"}
            play.orders[device] = [{"id": f"p{device}-{at_s}", "command_payload": ping, "status": "queued"}]
        play.run(at_s + 30)
        told = {device: results[-1]["result"]["firmware"] for device, results in play.results.items()}
        own = {device: "2.0" if outcome["status"] == "succeeded" else "1.0" for device, outcome in outcomes.items()}
        assert told == (dict.fromkeys(own, "9.9-bad") if at_s == 210 else own)


def test_a_state_has_its_own_pace_and_readings():
    signals = {"load": ConstantSettings(kind="constant", value=0)}
    busy = {"load": ConstantSettings(kind="constant", value=1)}
    states = {
        "idle": StateSettings(stay_s=100, next={"busy": 1}),
        "busy": StateSettings(stay_s=100, telemetry_every_s=2, next={"idle": 1}, signals=busy),
    }
    model = build_model(ModelParts("m", signals, every_s=10, states=states), folder=Path(), origin_s=START_S + BEGAN_S)
    play = Play(model=replace(EVERY_TEN, signals=model.signals, nature=model))
    play.run(600)
    told: Counter[str] = Counter()
    individuals = [Individual.at(1, number) for number in range(20)]
    for request in play.posts():
        condition = model.condition_at(individuals[request.device], START_S + request.sent_s)
        if START_S + request.sent_s - condition.since_s > 1:  # not what was read just before the state began
            told[condition.state] += 1
            assert request.json()["sensor_data"]["load"] == (condition.state == "busy")
    assert told["busy"] > 3 * told["idle"] > 300
