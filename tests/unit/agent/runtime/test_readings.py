from __future__ import annotations

import json

from agent.errors import Offline, TransportError, Unauthorized
from agent.runtime.health import Health
from agent.runtime.readings import IN_FLIGHT, ReadingStream
from agent.runtime.sending import SendParts
from tests.factories import make_reading
from tests.fakes import FakeClock, FakeStore, FakeUplink
from tests.threadless import ThreadlessService


class Bench:
    def __init__(
        self,
        store: FakeStore | None = None,
        clock: FakeClock | None = None,
        batch_size: int = 500,
        *,
        repeats_batches: bool = True,
        takes_arrays: bool = True,
        apart_s: float = 1.0,
    ) -> None:
        self.apart_s = apart_s
        self.takes_arrays = takes_arrays
        self.repeats_batches = repeats_batches
        self.clock = clock or FakeClock()
        self.store = store or FakeStore()
        self.uplink = FakeUplink()
        self.health = Health(self.clock)
        self.batch_size = batch_size
        self.start()

    def start(self) -> None:
        """A new process on the same store."""
        parts = SendParts(self.uplink, self.store, self.clock, self.health, lambda: 0.5)
        self.service = ReadingStream(
            parts,
            self.store,
            batch_size=self.batch_size,
            apart_s=self.apart_s,
            repeats_batches=self.repeats_batches,
            takes_arrays=lambda: self.takes_arrays,
        )
        self.driven = ThreadlessService(self.service, self.clock)

    def put(self, *numbers: float) -> None:
        for number in numbers:
            self.store.put(make_reading({"n": number}, at=self.clock.now()))
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
    assert bench.store.stats().rows == 1
    bench.run(60)
    assert bench.store.stats().rows == 0
    assert len(bench.uplink.stored) == 1


def test_a_reading_whose_answer_was_lost_goes_alone_again_though_others_have_joined_it():
    bench = Bench()
    bench.uplink.lose_answers.append(TransportError("lost"))
    bench.put(1.0)
    bench.run(1)
    bench.put(2.0, 3.0)
    bench.run(30)
    assert [[stored.reading.values["n"] for stored in batch] for batch in bench.uplink.sent] == [[1], [1], [2, 3]]


def test_new_readings_wait_for_others_and_urgent_ones_do_not():
    bench = Bench(apart_s=30.0)
    bench.put(1.0)
    bench.driven.process_all()
    bench.put(2.0)
    bench.run(5)
    assert len(bench.uplink.sent) == 1
    bench.store.put(make_reading({"n": 3.0}, at=bench.clock.now()))
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
    assert bench.store.refused == {2: "validation_error: n"}
    assert bench.store.stats().rows == 0
    assert "is not sent again" in caplog.text


def test_a_batch_whose_answer_was_lost_is_sent_again_as_it_was():
    bench = Bench()
    bench.uplink.lose_answers.append(TransportError("reset"))
    bench.put(1.0, 2.0)
    bench.clock.advance(2)
    bench.driven.process_all()
    bench.put(3.0)
    bench.run(60)
    first, again, rest = bench.uplink.sent
    assert first == again or [each.key for each in first] == [each.key for each in again]
    assert [each.key for each in rest] == [3]
    assert len(bench.uplink.stored) == 3


def test_after_a_crash_the_batch_of_unknown_fate_is_sent_again_as_it_was():
    bench = Bench()
    bench.uplink.lose_answers.append(TransportError("reset"))
    bench.put(1.0, 2.0)
    bench.clock.advance(2)
    bench.driven.process_all()
    assert json.loads(bench.store.settings[IN_FLIGHT])[1:] == [[1, 2], 0, [2], 0]
    bench.put(3.0)
    bench.start()
    bench.run(60)
    assert [[each.key for each in batch] for batch in bench.uplink.sent] == [[1, 2], [1, 2], [3]]


def test_after_a_crash_what_may_have_been_sent_alone_goes_alone_again():
    bench = Bench()
    bench.put(1.0)
    bench.put(2.0)
    bench.start()
    bench.put(3.0, 4.0)
    bench.run(10)
    assert [[each.key for each in batch] for batch in bench.uplink.sent] == [[1], [2], [3, 4]]


def test_a_broken_note_of_what_was_sent_does_not_stop_the_uplink():
    bench = Bench()
    bench.store.settings[IN_FLIGHT] = "{nonsense"
    bench.start()
    bench.put(1.0)
    bench.run(10)
    assert bench.store.stats().rows == 0


def test_wrong_keys_make_one_line_an_hour_and_few_tries(caplog):
    bench = Bench()
    bench.uplink.send_errors.extend([Unauthorized(401, "invalid_credentials")] * 1000)
    bench.put(1.0)
    bench.run(3600)
    assert len(caplog.records) == 1
    assert 1000 - len(bench.uplink.send_errors) < 20
    assert bench.store.stats().rows == 1
    assert bench.health.parts()["readings"].state == "unauthorized"


def test_a_full_disk_loses_nothing_and_does_not_spin(caplog):
    bench = Bench()
    bench.put(1.0)
    bench.store.fault = "the disk is full"
    bench.run(300)
    assert len(bench.uplink.sent) < 100
    bench.store.fault = None
    bench.run(30)
    assert bench.store.stats().rows == 0
    assert len(bench.uplink.stored) == 1
    assert caplog.text.count("the disk is full") <= 2


class TestOverABroker:
    def test_a_connection_that_came_up_ends_the_back_off(self, caplog):
        bench = Bench()
        bench.uplink.send_errors.extend([Offline("unreachable", "nobody listens")] * 80)
        bench.put(1.0)
        bench.run(300)
        assert bench.health.parts()["readings"].state == "unreachable"
        assert caplog.text == ""
        bench.uplink.send_errors.clear()
        bench.put(2.0)
        bench.driven.process_all()
        assert bench.store.stats().rows == 2
        bench.driven.post(ReadingStream.CONNECTED)
        bench.driven.process_all()
        assert bench.store.stats().rows == 0
