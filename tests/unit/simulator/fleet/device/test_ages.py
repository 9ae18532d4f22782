"""How old readings are when they are accepted, against a log that the other side keeps: at each level and transport.

The target is refused for four seconds and stands still for four. The log has, for each reading that was accepted, the
time of the answer and the time that the reading itself carries. All of it happens on virtual time.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace
from email.utils import formatdate
from typing import Any

import pytest

from agent.core.backoff import Backoff
from agent.core.poll_interval import PollIntervals
from agent.wire import extensions, topics
from agent.wire.mqtt_messages import Receipt, encode
from agent.wire.times import parse_time
from simulator.fleet.device.driver import Member
from simulator.fleet.device.http_driver import HttpDriver
from simulator.fleet.device.http_load import HttpLoad
from simulator.fleet.device.load_base import LoadDevice
from simulator.fleet.device.load_base import RequestKind as Wanted
from simulator.fleet.device.model import Clocks, DeviceModel, SharedSettings
from simulator.fleet.device.mqtt_driver import MqttDriver
from simulator.fleet.device.mqtt_load import MqttLoad
from simulator.fleet.device.request_template import RequestTemplate
from simulator.fleet.engine.http.origin import read_origin
from simulator.fleet.engine.wheel import Wheel
from simulator.fleet.metrics.ages import READING_AGE, ReadingAges
from simulator.fleet.metrics.histogram import Histogram
from simulator.fleet.metrics.recorder import Recorder
from simulator.fleet.outcomes import OutcomeClass
from simulator.fleet.record import Tally
from tests.unit.simulator.fleet.device.fleet_fakes import START_S, FakeEngine, Request
from tests.unit.simulator.fleet.device.mqtt_rig import ID, Engine
from tests.virtual_clock import VirtualClock

BEGAN_S = 1000.0
REFUSED_FROM_S, REFUSED_TO_S = 1040.0, 1044.0
FROZEN_FROM_S, FROZEN_TO_S = 1070.0, 1074.0
END_S = 1100.0
PERCENTS = (50.0, 90.0, 95.0, 99.0, 99.9)
BATCHES = extensions.ALL
SINGLE = extensions.ALL - {extensions.BATCH_SENSOR_DATA}
MODEL = DeviceModel(
    interval_s=0.5, polling=PollIntervals(60.0, 60.0, 60.0), wait_s=0.0, backoff=Backoff(base_s=0.5, cap_s=2.0)
)


def refuses(now_s: float) -> bool:
    return REFUSED_FROM_S <= now_s < REFUSED_TO_S


def is_frozen(now_s: float) -> bool:
    return FROZEN_FROM_S <= now_s < FROZEN_TO_S


class Measured:
    """What a run has in common at every level: virtual time, a recorder, and the other side's own log."""

    def __init__(self, offers: frozenset[str]) -> None:
        self.clock = VirtualClock(BEGAN_S)
        self.clocks = Clocks(self.clock.time, lambda: START_S + self.clock.time())
        self.recorder = Recorder()
        self.fleet = SharedSettings(
            offers, seed=1, run="run", numbered=True, began_s=BEGAN_S, ages=ReadingAges(self.recorder)
        )
        self.log: list[float] = []

    def note(self, readings: list[dict[str, Any]]) -> None:
        """Readings are accepted in this instant."""
        now_s = START_S + self.clock.time()
        self.log += [now_s - parse_time(reading["recorded_at"]) for reading in readings]

    def tallies(self) -> dict[OutcomeClass, Tally]:
        return dict(self.recorder.cut(0).delta().operations[READING_AGE])


class Http(Measured):
    """A target over HTTP."""

    def __init__(self, offers: frozenset[str] = SINGLE) -> None:
        super().__init__(offers)
        self.engine = FakeEngine(self.clock, self._answer, takes_s=0.0)
        self.engine.delay_s = self._delay_s
        self.heads = [RequestTemplate(read_origin("http://service/api"), {"x-api-key": "k"})] * 10
        self.wheel = Wheel(self.clock)

    def _delay_s(self, request: Request) -> float:
        """Some answers take longer than others, as they do; while the target stands still all wait for its end."""
        if refuses(request.sent_s):
            return 0.0
        frozen_s = FROZEN_TO_S - request.sent_s if is_frozen(request.sent_s) else 0.0
        return frozen_s + 0.02 + 0.03 * (len(self.engine.requests) % 100) / 100

    def _answer(self, request: Request) -> Any:
        if refuses(request.sent_s):
            return OutcomeClass.TRANSPORT
        date = {"date": formatdate(START_S + self.clock.time(), usegmt=True)}
        if request.method == "GET":
            return 200, date, b'{"data":[],"next_cursor":null,"has_more":false}'
        body = request.json()
        self.note(body if isinstance(body, list) else [body])
        accepted = {"accepted": len(body), "errors": []} if isinstance(body, list) else {}
        return 201, date, json.dumps(accepted).encode()


def assert_right(measured: Measured, tallies: dict[OutcomeClass, Tally]) -> None:
    """Percentiles of the accepted readings are those of the log, and so is their number."""
    ages, truth = Histogram.decode(tallies[OutcomeClass.OK].response), sorted(measured.log)
    assert tallies[OutcomeClass.OK].count == len(truth)
    for percent in PERCENTS:
        true_s = truth[math.ceil(len(truth) * percent / 100) - 1]
        # Times on the wire are whole milliseconds.
        assert ages.percentile(percent) == pytest.approx(true_s, rel=0.02, abs=0.001), percent


@pytest.mark.parametrize("offers", [SINGLE, BATCHES], ids=["one by one", "in batches"])
def test_devices_over_http_tell_what_their_readings_waited_through_an_outage_and_a_restart(offers):
    world = Http(offers)
    members = [Member(f"d{number}", "p", MODEL) for number in range(10)]
    driver = HttpDriver(world.engine, world.wheel, world.heads, members, world.fleet, clocks=world.clocks)
    for number in range(10):
        driver.switch_on(number)
    world.clock.run_until(REFUSED_FROM_S + 2)
    for number in (0, 1):  # with readings on their disks
        driver.switch_off(number)
    world.clock.run_until(REFUSED_FROM_S + 20)
    for number in (0, 1):
        driver.switch_on(number)
    world.clock.run_until(END_S)
    driver.sample(on=False)
    world.clock.run_until(END_S + 30)
    tallies = world.tallies()
    assert_right(world, tallies)
    assert set(tallies) == {OutcomeClass.OK}
    # The outage is in the tail, though each request after it was answered in some milliseconds.
    assert len(world.log) > 1800
    assert Histogram.decode(tallies[OutcomeClass.OK].response).percentile(99) > 3.0


def test_pure_load_over_http_tells_the_age_of_what_was_accepted_and_counts_the_rest_by_its_outcome():
    world = Http()
    subjects = [LoadDevice(f"d{number}") for number in range(10)]
    load = HttpLoad(world.engine, world.wheel, world.heads, subjects, world.fleet, clocks=world.clocks)
    for number in range(round((END_S - BEGAN_S) * 20)):
        due_s = BEGAN_S + number / 20
        world.clock.call_at(due_s, lambda due_s=due_s, n=number: load.send(Wanted.SENSOR_DATA, n % 10, due_s))
    world.clock.run_until(END_S + 30)
    tallies = world.tallies()
    assert_right(world, tallies)
    assert {outcome: tally.count for outcome, tally in tallies.items()} == {
        OutcomeClass.OK: 2000 - 80,
        OutcomeClass.TRANSPORT: 80,
    }


class Broker(Measured):
    """A broker and a gateway for one device, which answer ten times a second unless they are away or stand still."""

    def __init__(self) -> None:
        super().__init__(frozenset({extensions.BATCH_SENSOR_DATA}))
        self.engine = Engine(self.clock)
        self.wheel = Wheel(self.clock)
        self.is_up = False

    def run(self, until_s: float) -> None:
        while self.clock.time() < until_s:
            self.clock.run_until(self.clock.time() + 0.1)
            now_s = self.clock.time()
            if refuses(now_s):
                if self.is_up:
                    self.engine.lose()
                    self.is_up = False
            elif not is_frozen(now_s):
                if not self.is_up and self.engine.listener is not None:
                    self.engine.stand()
                    self.is_up = True
                while self.is_up and self.engine.waiting:
                    self._take(*self.engine.puback())

    def _take(self, topic: str, payload: bytes) -> None:
        if topic != topics.sensor_data(ID):
            return
        found = json.loads(payload)
        readings = found if isinstance(found, list) else [found]
        self.note(readings)
        self.engine.deliver(topics.receipts(ID), encode(Receipt(stored=tuple(each["key"] for each in readings))))


def test_a_device_over_mqtt_tells_what_its_readings_waited_for_the_gateways_receipt():
    world = Broker()
    model = replace(MODEL, interval_s=0.25)
    driver = MqttDriver(world.engine, world.wheel, [Member(ID, "p", model)], world.fleet, clocks=world.clocks)
    driver.switch_on(0)
    world.run(END_S)
    driver.sample(on=False)
    world.run(END_S + 20)
    tallies = world.tallies()
    assert_right(world, tallies)
    assert len(world.log) > 350
    assert Histogram.decode(tallies[OutcomeClass.OK].response).percentile(99) > 3.0


def test_pure_load_over_mqtt_tells_the_age_of_what_the_gateway_has():
    world = Broker()
    load = MqttLoad(world.engine, world.wheel, [LoadDevice(ID)], world.fleet, clocks=world.clocks)
    load.switch_on(0)
    for number in range(round((END_S - BEGAN_S) * 4) - 8):
        due_s = BEGAN_S + 2 + number / 4
        world.clock.call_at(due_s, lambda due_s=due_s: load.send(Wanted.SENSOR_DATA, 0, due_s))
    world.run(END_S + 40)
    load.end()
    tallies = world.tallies()
    assert_right(world, tallies)
    assert sum(tally.count for tally in tallies.values()) == 392
    assert Histogram.decode(tallies[OutcomeClass.OK].response).max_s > 3.0


def test_a_reading_that_is_never_accepted_has_waited_until_the_end_and_a_refused_one_is_told_apart():
    world = Http()
    answers = {"status": 400}
    world.engine = FakeEngine(world.clock, lambda request: (answers["status"], {}, b'{"error":"validation_error"}'))
    members = [Member("d0", "p", replace(MODEL, interval_s=10.0))]
    driver = HttpDriver(world.engine, world.wheel, world.heads, members, world.fleet, clocks=world.clocks)
    driver.switch_on(0)
    world.clock.run_until(BEGAN_S + 20)
    answers["status"] = 503
    world.clock.run_until(BEGAN_S + 60)
    driver.switch_off(0)
    driver.give_up(world.clock.time())
    tallies = world.tallies()
    assert {outcome: tally.count for outcome, tally in tallies.items()} == {
        OutcomeClass.REFUSED: 2,
        OutcomeClass.TIMEOUT: 4,
    }
    waited = Histogram.decode(tallies[OutcomeClass.TIMEOUT].response)
    assert 30.0 < waited.max_s < 40.0
    assert waited.max_s - waited.min_s == pytest.approx(30.0, abs=0.1)
