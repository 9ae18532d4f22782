"""Each kind of fault: whom it concerns, when, and what it does; then the faults at work in devices on virtual time."""

from __future__ import annotations

import itertools
import json

import pytest

from agent.core.poll_interval import PollIntervals
from agent.core.values import Moment
from agent.errors import ConfigurationError
from agent.wire import extensions
from agent.wire.times import parse_time
from simulator.fleet.device.driver import HttpDriver
from simulator.fleet.device.model import Clocks, DeviceModel, DriverContext, Member, SharedSettings
from simulator.fleet.engine.http.origin import RequestHead, read_origin
from simulator.fleet.engine.wheel import Wheel
from simulator.fleet.faults import FREE, KINDS, ActiveFaults, Body
from simulator.fleet.outcomes import Attempt
from simulator.fleet.signals import CLIMATE, DeviceRandom, signals_of_json
from tests.fleet_faults import read_fault
from tests.unit.simulator.fleet.device.fleet_fakes import START_S, FakeEngine, RecordingLedger, RecordingObserver
from tests.virtual_clock import VirtualClock

NOW = 1_767_225_600.0
FLEET = [DeviceRandom(1, f"sim-{n:06d}", n) for n in range(400)]
A = FLEET[0]


def a_fault(**keys):
    return read_fault({"at_s": 60, "duration_s": 120, **keys})


def at_work(*faults):
    return ActiveFaults(0.0, NOW, faults)


def moment(at_s):
    return Moment(at_s, NOW + at_s, "boot")


def a_body(device, at_s):
    reading = CLIMATE.read(device, NOW + at_s)
    return json.dumps({"device_id": device.name, "sensor_data": reading, "recorded_at": at_s}).encode()


def times(fault, device):
    """All times of a device without power or link."""
    found, after_s = [], 0.0
    while (each := fault.away(device, after_s)) is not None:
        found.append(each)
        after_s = each[1]
    return found


EXAMPLES = {"clock_jump": {"jump_s": -3600}, "link_profile": {"profile": "2g"}}


@pytest.mark.parametrize("kind", KINDS)
def test_a_fault_does_nothing_before_it_begins_after_its_end_and_to_others(kind):
    fault = a_fault(kind=kind, share=0.5, **EXAMPLES.get(kind, {}))
    chosen = [device for device in FLEET if fault.chooses(device)]
    assert len(chosen) == pytest.approx(200, abs=45)
    other = next(device for device in FLEET if not fault.chooses(device))
    active = at_work(fault)
    for device, at_s in ((chosen[0], 59.9), (chosen[0], 200.1), (other, 100)):
        now = moment(at_s)
        assert active.read(device, CLIMATE, now) == CLIMATE.read(device, now.wall_s)
        assert active.held_until_s(device, now) < at_s
        assert list(active.bodies(device, now, b"{}")) == [Body(b"{}")]
        assert active.moment(device, now) == now
        assert active.passage(device, 1, at_s, 100) == FREE
        assert not any(begin_s <= at_s < end_s for begin_s, end_s in times(fault, device))


@pytest.mark.parametrize("kind", KINDS)
def test_a_fault_tells_the_truth_about_itself(kind):
    fault = a_fault(kind=kind, name="mine", share=0.25, **EXAMPLES.get(kind, {}))
    span = fault.truth(FLEET)
    assert (span.name, span.kind, span.begin_s, span.end_s) == ("mine", kind, 60, 180)
    assert span.truth["devices"] == [device.name for device in FLEET if fault.chooses(device)]
    assert span.devices == len(span.truth["devices"])
    assert json.loads(json.dumps(span.truth)) == span.truth


def test_a_loop_goes_up_and_down_and_ends_with_a_device_that_is_on():
    fault = a_fault(kind="reboot_loop", up_s=15)
    for device in FLEET[:30]:
        found = times(fault, device)
        assert len(found) in range(5, 8)
        assert 60 <= found[0][0] <= 80
        assert found[-1][1] <= 180
        assert all(0 < end_s - begin_s <= 5.001 for begin_s, end_s in found)
        assert all(later[0] - earlier[1] == pytest.approx(15) for earlier, later in itertools.pairwise(found))


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ({"kind": "blackout"}, [(60, 180)]),
        ({"kind": "disconnect_storm", "waves": 3, "away_s": 2}, [(60, 62), (100, 102), (140, 142)]),
    ],
)
def test_links_are_away_when_the_scenario_says(fault, expected):
    assert times(a_fault(**fault), A) == expected


def test_links_come_back_one_after_the_other_and_restarts_are_spread_over_their_fault():
    fault = a_fault(kind="blackout", recovery_s=20, share=0.5)
    ends = [end_s for device in FLEET for _, end_s in times(fault, device)]
    assert 180 <= min(ends) < 182 < 198 < max(ends) <= fault.end_s == 200
    restart = a_fault(kind="rolling_restart")
    begins = [begin_s for device in FLEET for begin_s, _ in times(restart, device)]
    assert (min(begins), max(begins)) == pytest.approx((60, 175), abs=2)


def test_late_batches_are_held_until_their_moment_and_not_beyond_the_end():
    apart = a_fault(kind="late_batches", hold_s=50)
    held = {apart.held_until_s(device, 61) for device in FLEET[:50]}
    assert len(held) == 50
    assert 61 < min(held) < max(held) <= 111
    together = a_fault(kind="late_batches", hold_s=50, together=True)
    assert {together.held_until_s(device, 70) for device in FLEET} == {110}
    assert together.held_until_s(A, 165) == 180


def test_faults_come_one_after_the_other_and_copies_are_copies_of_the_result():
    copies = {"kind": "duplicates", "often": 1, "copies": 2, "delay_s": 3, "idempotency_key": "fresh"}
    active = at_work(a_fault(kind="frozen_sensor"), a_fault(**copies), a_fault(kind="broken_json", often=1))
    assert active.read(A, CLIMATE, moment(100)) == CLIMATE.read(A, NOW + 60)
    first, *others = active.bodies(A, moment(100), a_body(A, 100))
    assert first.content != a_body(A, 100)
    assert others == [Body(first.content, 3, same_key=False), Body(first.content, 6, same_key=False)]


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"kind": "frozen"}, "does not match any of the expected tags"),
        ({"kind": "frozen_sensor", "duration_s": 0}, "duration_s"),
        ({"kind": "frozen_sensor", "reading": "x"}, "reading: Extra inputs"),
        ({"kind": "clock_jump", "jump_s": 0}, "stays where it is"),
        ({"kind": "duplicates", "copies": 0}, "copies"),
    ],
)
def test_what_is_no_fault_is_refused(document, said):
    with pytest.raises(ConfigurationError) as caught:
        a_fault(**document)
    assert said in str(caught.value)


# --- at work in devices -----------------------------------------------------------------------------------------------

WALK = signals_of_json({"level": {"kind": "random_walk", "start": 50, "step": 1, "digits": 6}})
NOTHING = (200, {}, b'{"data":[],"next_cursor":null,"has_more":false}')


def well(request):
    if request.method == "GET":
        return NOTHING
    body = request.json()
    return (200, {}, b'{"accepted":%d,"errors":[]}' % len(body)) if isinstance(body, list) else (201, {}, b"{}")


class Bench:
    """Four devices that read once in ten seconds, from the run's begin on."""

    def __init__(self, *faults, answer=well, devices=4) -> None:
        self.clock = VirtualClock(1000.0)
        self.engine = FakeEngine(self.clock, answer)
        self.observer = RecordingObserver()
        self.ledger = RecordingLedger()
        model = DeviceModel(signals=WALK, interval_s=10.0, polling=PollIntervals(60, 60, 60), wait_s=0.0)
        offers = extensions.ALL - {extensions.LONG_POLL}
        active = ActiveFaults(1000.0, START_S + 1000.0, [read_fault(fault) for fault in faults])
        fleet = SharedSettings(offers, 1, "run", numbered=True, ledger=self.ledger, began_s=1000.0, faults=active)
        clocks = Clocks(self.clock.time, lambda: START_S + self.clock.time())
        self.driver = HttpDriver(
            self.engine,
            DriverContext(Wheel(self.clock), fleet, observer=self.observer, clocks=clocks),
            [Member(f"d{number}", "p", model) for number in range(devices)],
            [RequestHead(read_origin("http://service"), {})] * devices,
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
    assert bench.driver.fleet.gauges.waiting_readings == 0


def test_what_is_spoiled_is_refused_and_set_aside_and_the_others_arrive():
    def picky(request):
        try:
            return well(request)
        except ValueError:
            return 400, {}, b'{"error":"invalid_json"}'

    bench = Bench({"kind": "broken_json", "at_s": 50, "duration_s": 30, "often": 1.0}, answer=picky, devices=1)
    bench.run(200)
    refused = [call[2] for call in bench.ledger.calls if call[0] == "refused"]
    accepted = [key for call in bench.ledger.calls if call[0] == "accepted" for key in call[2]]
    assert len(refused) == 3
    assert sorted(accepted + [key for (key,) in refused]) == list(range(1, 21))


def test_a_wrong_clock_dates_what_was_read_until_the_service_tells_the_time():
    bench = Bench({"kind": "clock_jump", "at_s": 0, "jump_s": 3600}, devices=1)
    bench.engine.takes_s = 0.001
    bench.run(30)
    true_s = [START_S + post.sent_s for post in bench.posts]
    dated = [parse_time(reading["recorded_at"]) for reading in bench.readings()]
    assert dated[0] - true_s[0] == pytest.approx(3600, abs=11)
