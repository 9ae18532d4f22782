from __future__ import annotations

import pytest

from agent.errors import Offline, TransportError, Unauthorized
from agent.runtime.sending import IN_FLIGHT, ReadingStream
from tests.support.factories import make_reading
from tests.support.fakes import Driven, FakeUplink, StoreInMemory, make_context


class Bench:
    def __init__(self, apart_s: float = 1.0) -> None:
        self.apart_s = apart_s
        self.store = StoreInMemory()
        self.clock, self.outbox = self.store.clock, self.store.outbox
        self.uplink = FakeUplink()
        self.context = make_context(self.store)
        self.start()

    def start(self) -> None:
        """A new process on the same store."""
        self.driven = Driven(ReadingStream(self.context, self.uplink, apart_s=self.apart_s))

    def put(self, *numbers: float) -> None:
        for number in numbers:
            self.outbox.put(make_reading({"n": number}, at=self.clock.now()))
        self.driven.post(False)

    def run(self, seconds: float) -> None:
        for _ in range(round(seconds * 2)):
            self.driven.process_all()
            self.clock.advance(0.5)


def test_a_reading_leaves_the_outbox_only_after_it_is_stored_on_the_other_side():
    bench = Bench()
    bench.put(1.0)
    bench.uplink.send_errors.append(TransportError("down"))
    bench.driven.process_all()
    assert bench.outbox.stats().rows == 1
    bench.run(60)
    assert bench.outbox.stats().rows == 0
    assert len(bench.uplink.stored) == 1


def test_new_readings_wait_for_others_and_urgent_ones_do_not():
    bench = Bench(apart_s=30.0)
    bench.put(1.0)
    bench.driven.process_all()
    bench.put(2.0)
    bench.run(5)
    assert len(bench.uplink.sent) == 1
    bench.outbox.put(make_reading({"n": 3.0}, at=bench.clock.now()))
    bench.driven.post(True)
    bench.driven.process_all()
    assert [len(batch) for batch in bench.uplink.sent] == [1, 2]
    bench.put(4.0)
    bench.run(31)
    assert [len(batch) for batch in bench.uplink.sent] == [1, 2, 1]


def test_a_poison_reading_is_not_sent_again_and_the_others_go(caplog):
    bench = Bench()
    bench.uplink.refuse = {2: "validation_error: n"}
    bench.put(1.0, 2.0, 3.0)
    bench.run(10)
    (refused,) = bench.store.status().refused
    assert (refused.key, refused.reason) == (2, "validation_error: n")
    assert bench.outbox.stats().rows == 0
    assert "is not sent again" in caplog.text


@pytest.mark.parametrize("crashes", [False, True])
@pytest.mark.parametrize("numbers", [(1.0,), (1.0, 2.0)], ids=["alone", "batch"])
def test_what_may_have_arrived_is_sent_again_as_it_was_though_others_have_joined_it(numbers, crashes):
    bench = Bench()
    bench.uplink.lose_answers.append(TransportError("reset"))
    bench.put(*numbers)
    bench.driven.process_all()
    if crashes:
        bench.start()
    bench.put(8.0, 9.0)
    bench.run(60)
    sent = [tuple(stored.reading.values["n"] for stored in batch) for batch in bench.uplink.sent]
    assert sent == [numbers, numbers, (8.0, 9.0)]
    assert len(bench.uplink.stored) == len(numbers) + 2


def test_a_broken_note_of_what_was_sent_does_not_stop_the_uplink():
    bench = Bench()
    bench.store.journal.put_setting(IN_FLIGHT, "{nonsense")
    bench.start()
    bench.put(1.0)
    bench.run(10)
    assert bench.outbox.stats().rows == 0


def test_wrong_keys_make_one_line_an_hour_and_few_tries(caplog):
    bench = Bench()
    bench.uplink.send_errors.extend([Unauthorized(401, "invalid_credentials")] * 1000)
    bench.put(1.0)
    bench.run(3600)
    assert len(caplog.records) == 1
    assert 1000 - len(bench.uplink.send_errors) < 20
    assert bench.outbox.stats().rows == 1
    assert bench.context.health.parts()["readings"].state == "unauthorized"


def test_a_full_disk_loses_nothing_and_does_not_spin(caplog):
    bench = Bench()
    bench.put(1.0)
    bench.store.broken = "the disk is full"
    bench.run(300)
    assert len(bench.uplink.sent) < 100
    bench.store.broken = None
    bench.run(30)
    assert bench.outbox.stats().rows == 0
    assert len(bench.uplink.stored) == 1
    assert caplog.text.count("the disk is full") <= 2


class TestOverABroker:
    def test_a_connection_that_came_up_ends_the_back_off(self, caplog):
        bench = Bench()
        bench.uplink.send_errors.extend([Offline("unreachable", "nobody listens")] * 80)
        bench.put(1.0)
        bench.run(300)
        assert bench.context.health.parts()["readings"].state == "unreachable"
        assert caplog.text == ""
        bench.uplink.send_errors.clear()
        bench.put(2.0)
        bench.driven.process_all()
        assert bench.outbox.stats().rows == 2
        bench.driven.post(ReadingStream.CONNECTED)
        bench.driven.process_all()
        assert bench.outbox.stats().rows == 0
