"""Devices with a nature of their own, and faults at work in them, on virtual time."""

from __future__ import annotations

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
from simulator.fleet.faults.registry import build_faults
from simulator.fleet.models.clock import Clock
from simulator.fleet.models.fault_hooks import ActiveFaults
from simulator.fleet.outcomes import Attempt
from simulator.fleet.signals.base import Shaped, SignalSet
from simulator.fleet.signals.kinds import RandomWalk
from tests.fleet_faults import read_fault
from tests.unit.simulator.fleet.device.fleet_fakes import START_S, FakeEngine, RecordingLedger, RecordingObserver
from tests.virtual_clock import VirtualClock

WALK = SignalSet({"level": Shaped(RandomWalk("level", start=50.0, step=1.0), digits=6)})
NOTHING = (200, {}, b'{"data":[],"next_cursor":null,"has_more":false}')


def well(request):
    if request.method == "GET":
        return NOTHING
    body = request.json()
    return (200, {}, b'{"accepted":%d,"errors":[]}' % len(body)) if isinstance(body, list) else (201, {}, b"{}")


class Bench:
    """Four devices that read once in ten seconds, from the run's begin on."""

    def __init__(self, *faults, answer=well, clock=None, devices=4) -> None:
        self.clock = VirtualClock(1000.0)
        self.engine = FakeEngine(self.clock, answer)
        self.observer = RecordingObserver()
        self.ledger = RecordingLedger()
        built = build_faults([read_fault(fault) for fault in faults], origin_s=START_S + 1000.0)
        model = DeviceModel(signals=WALK, interval_s=10.0, polling=PollIntervals(60, 60, 60), wait_s=0.0, clock=clock)
        offers = extensions.ALL - {extensions.LONG_POLL}
        around = Environment(1000.0, START_S + 1000.0, ActiveFaults(built), has_clocks=clock is not None)
        fleet = SharedSettings(offers, 1, "run", numbered=True, ledger=self.ledger, began_s=1000.0, environment=around)
        self.driver = HttpDriver(
            self.engine,
            Wheel(self.clock),
            [RequestTemplate(read_origin("http://service"), {})] * devices,
            [Member(f"d{number}", "p", model) for number in range(devices)],
            fleet,
            observer=self.observer,
            clocks=Clocks(self.clock.time, lambda: START_S + self.clock.time()),
        )
        for number in range(devices):
            self.driver.switch_on(number)

    def run(self, seconds: float) -> None:
        self.clock.run_until(self.clock.time() + seconds)

    @property
    def posts(self) -> list:
        return [request for request in self.engine.requests if request.method == "POST"]

    def readings(self, device: int = 0) -> list[dict]:
        """Of one device, as they arrived."""
        bodies = [request.json() for request in self.posts if request.device == device]
        return [each for body in bodies for each in (body if isinstance(body, list) else [body])]


def test_a_frozen_sensor_reads_the_same_until_it_thaws():
    bench = Bench({"kind": "frozen_sensor", "at_s": 100, "duration_s": 100})
    bench.run(300)
    levels = [reading["sensor_data"]["level"] for reading in bench.readings()]
    assert len(set(levels[:9])) == 9
    assert len(set(levels[11:19])) == 1
    assert len(set(levels[21:])) == len(levels[21:]) > 5


def test_late_batches_are_held_and_then_handed_over_at_once():
    bench = Bench({"kind": "late_batches", "at_s": 0, "duration_s": 1000, "hold_s": 100, "together": True})
    bench.run(350)
    assert {round(post.sent_s) for post in bench.posts} == {1100, 1200, 1300}
    assert [len(post.json()) for post in bench.posts if post.device == 0] == [10, 10, 10]
    assert all(told.sent_s - told.intended_s < 0.1 for told in bench.observer.exchanges)


@pytest.mark.parametrize(("key", "keys"), [("same", 1), ("fresh", 3)])
def test_copies_go_out_later_and_nobody_waits_for_them(key, keys):
    fault = {"kind": "duplicates", "at_s": 0, "duration_s": 1000, "often": 1.0, "copies": 2, "delay_s": 3}
    bench = Bench({**fault, "idempotency_key": key}, devices=1)
    bench.run(18)
    first = [post for post in bench.posts if post.body == bench.posts[0].body]
    assert [round(post.sent_s - first[0].sent_s, 3) for post in first] == [0, 3, 6]
    assert len({post.headers["idempotency-key"] for post in first}) == keys
    told = [told.attempt for told in bench.observer.exchanges if told.operation == "http.sensor_data"]
    assert told[:3] == [Attempt.FIRST, Attempt.AMBIGUOUS, Attempt.AMBIGUOUS]
    assert bench.driver.gauges.waiting_readings == 0


def test_what_is_spoiled_is_refused_and_set_aside_and_the_others_arrive():
    def picky(request):
        try:
            return well(request)
        except ValueError:
            return 400, {}, b'{"error":"invalid_json"}'

    bench = Bench({"kind": "broken_json", "at_s": 50, "duration_s": 30, "often": 1.0}, answer=picky, devices=1)
    bench.run(200)
    refused = [call[2] for call in bench.ledger.calls if call[0] == "readings_refused"]
    accepted = [key for call in bench.ledger.calls if call[0] == "readings_accepted" for key in call[2]]
    assert len(refused) == 3
    assert sorted(accepted + [key for (key,) in refused]) == list(range(1, 21))


def test_a_wrong_clock_dates_what_was_read_until_the_service_tells_the_time():
    bench = Bench(clock=Clock(3600.0, 0.0), devices=1)
    bench.engine.takes_s = 0.001
    bench.run(30)
    true_s = [START_S + post.sent_s for post in bench.posts]
    dated = [parse_time(reading["recorded_at"]) for reading in bench.readings()]
    assert all(abs(told - true) > 60 for told, true in zip(dated, true_s, strict=True))
