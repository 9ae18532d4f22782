from __future__ import annotations

import pytest

from agent.core.outbox import Bounds
from agent.core.values import CommandState, JournalEntry, Report
from agent.errors import (
    Conflict,
    NotFound,
    Offline,
    Refused,
    ServerFault,
    StillRunning,
    TransportError,
    Unauthorized,
)
from agent.runtime.health import Health
from agent.runtime.jig import Jig
from agent.runtime.patience import Patience
from agent.runtime.uplinking import IN_FLIGHT, UplinkService
from tests.factories import make_entry, make_outcome, make_reading
from tests.fakes import FakeClock, FakeStore, FakeUplink


class Bench:
    def __init__(
        self,
        store: FakeStore | None = None,
        clock: FakeClock | None = None,
        batch_size: int = 500,
        *,
        repeats_batches: bool = True,
        takes_arrays: bool = True,
    ) -> None:
        self.takes_arrays = takes_arrays
        self.repeats_batches = repeats_batches
        self.clock = clock or FakeClock()
        self.store = store or FakeStore(self.clock)
        self.uplink = FakeUplink()
        self.health = Health(self.clock)
        self.times: list[float] = []
        self.batch_size = batch_size
        self.start()

    def start(self) -> None:
        """A new process on the same store."""
        self.service = UplinkService(
            uplink=self.uplink,
            journal=self.store,
            outbox=self.store,
            clock=self.clock,
            patience=Patience(lambda: 0.5),
            health=self.health,
            on_server_time=self.times.append,
            batch_size=self.batch_size,
            repeats_batches=self.repeats_batches,
            takes_arrays=lambda: self.takes_arrays,
        )
        self.jig = Jig(self.service, self.clock)

    def put(self, *numbers: float) -> None:
        for number in numbers:
            self.store.put(make_reading({"n": number}, at=self.clock.now()))
        self.jig.post(UplinkService.READING)

    def finish(self, command_id: str, **outcome) -> None:
        self.store.admit([make_entry(command_id)])
        self.store.finish(command_id, make_outcome(**outcome), self.clock.now())
        self.jig.post(UplinkService.RESULT)

    def finished(self, command_id: str) -> JournalEntry:
        """As a lane does: the entry itself is the message."""
        self.store.admit([make_entry(command_id)])
        return self.store.finish(command_id, make_outcome(), self.clock.now())

    def run(self, seconds: float) -> None:
        for _ in range(round(seconds * 2)):
            self.jig.process_all()
            self.clock.advance(0.5)


def test_a_reading_leaves_the_outbox_only_after_it_is_stored_on_the_other_side():
    bench = Bench()
    bench.put(1.0)
    bench.uplink.send_errors.append(TransportError("down"))
    bench.jig.process_all()
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


def test_an_array_whose_answer_was_lost_goes_again_in_the_same_order_though_a_part_of_it_is_no_longer_live():
    bench = Bench()
    bench.put(1.0)
    bench.clock.advance(40)
    bench.put(2.0, 3.0)
    bench.uplink.lose_answers.append(TransportError("lost"))
    bench.jig.process_all()
    bench.clock.advance(1)
    bench.jig.process_all()
    bench.clock.advance(30)
    bench.put(4.0)
    bench.run(30)
    assert [stored.reading.values["n"] for stored in bench.uplink.sent[0]] == [1, 2, 3]
    assert bench.uplink.sent[1] == bench.uplink.sent[0] or [s.key for s in bench.uplink.sent[1]] == [1, 2, 3]


class TestOneByOne:
    def bench(self, *, away_s: float, waiting: int) -> Bench:
        bench = Bench(takes_arrays=False)
        bench.uplink.send_errors.extend([TransportError("down")] * 1000)
        for number in range(waiting):
            bench.put(float(number))
            bench.run(away_s / waiting)
        bench.uplink.send_errors.clear()
        return bench

    def test_a_backlog_takes_as_long_as_it_took_to_grow(self):
        bench = self.bench(away_s=600, waiting=10)
        bench.run(240)
        begun = len(bench.uplink.stored)
        assert 0 < begun < 10
        bench.run(900)
        assert len(bench.uplink.stored) == 10

    def test_what_was_read_just_now_does_not_wait_for_it(self):
        bench = self.bench(away_s=600, waiting=10)
        bench.put(99.0)
        bench.jig.post(UplinkService.CONNECTED)
        bench.run(10)
        values = [stored.reading.values["n"] for batch in bench.uplink.sent for stored in batch]
        # What may have got through already goes first; of the backlog at most one more goes with it.
        assert 99.0 in values[:3]


def test_results_go_before_readings():
    bench = Bench()
    order: list[str] = []
    bench.uplink.report = lambda report: order.append("result")
    send = bench.uplink.send
    bench.uplink.send = lambda readings: order.append("readings") or send(readings)
    bench.put(1.0)
    bench.finish("c1")
    bench.jig.process_all()
    assert order == ["result", "readings"]
    assert bench.store.entries["c1"].state is CommandState.REPORTED


def test_a_result_is_reported_once():
    bench = Bench()
    bench.finish("c1", result={"pong": True})
    bench.run(600)
    assert [(report.command_id, report.status, report.result) for report in bench.uplink.reports] == [
        ("c1", "succeeded", {"pong": True})
    ]


def test_a_result_that_could_not_be_reported_is_reported_after_the_next_start():
    bench = Bench()
    bench.uplink.report_errors.extend([ServerFault(500)] * 3)
    bench.finish("c1")
    bench.jig.process_all()
    assert bench.store.entries["c1"].state is CommandState.FINISHED
    bench.uplink.report_errors.clear()
    bench.start()
    bench.run(1)
    assert [report.command_id for report in bench.uplink.reports] == ["c1"]


@pytest.mark.parametrize("error", [NotFound(404, "command_not_found"), Conflict(409, "command_canceled")])
def test_a_result_that_nobody_asks_for_any_more_is_put_away(error):
    bench = Bench()
    bench.uplink.report_errors.append(error)
    bench.finish("c1")
    bench.run(60)
    assert bench.store.entries["c1"].state is CommandState.REPORTED
    assert bench.uplink.reports == []


def test_a_result_whose_first_attempt_still_runs_over_there_is_not_put_away():
    bench = Bench()
    bench.uplink.report_errors += [StillRunning(409, "idempotency_key_in_use", retry_after_s=1.0)] * 2
    bench.finish("c1")
    bench.run(60)
    assert [report.command_id for report in bench.uplink.reports] == ["c1"]
    assert bench.store.entries["c1"].state is CommandState.REPORTED


def test_a_result_that_is_refused_is_told_without_its_content():
    bench = Bench()
    bench.uplink.report_errors.append(Refused(413, "too_large"))
    bench.finish("c1", result={"big": "x"})
    bench.run(60)
    [report] = bench.uplink.reports
    assert report.result is None
    assert report.status == "succeeded"
    assert "result_refused" in (report.error or "")


def test_a_poison_reading_is_set_aside_and_the_others_go(caplog):
    bench = Bench()
    bench.uplink.refuse = {2: "validation_error: n"}
    bench.put(1.0, 2.0, 3.0)
    bench.run(10)
    assert bench.store.set_aside == {2: "validation_error: n"}
    assert bench.store.stats().rows == 0
    assert "set aside" in caplog.text


def test_a_large_backlog_goes_in_batches_without_waiting_between_them():
    bench = Bench(batch_size=100)
    bench.put(*map(float, range(1000)))
    bench.clock.advance(1)
    bench.jig.process_all()
    assert len(bench.uplink.sent) == 10
    assert bench.store.stats().rows == 0


def test_a_batch_whose_answer_was_lost_is_sent_again_as_it_was():
    bench = Bench()
    bench.uplink.lose_answers.append(TransportError("reset"))
    bench.put(1.0, 2.0)
    bench.clock.advance(2)
    bench.jig.process_all()
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
    bench.jig.process_all()
    assert bench.store.settings[IN_FLIGHT] == "[1, 2]"
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


def test_after_a_crash_what_was_sent_alone_in_a_crowd_goes_alone_again():
    bench = Bench()
    bench.put(1.0, 2.0)
    bench.start()
    bench.put(*range(3, 1200))
    bench.uplink.lose_answers.append(TransportError("lost"))
    bench.jig.process_all()
    bench.start()
    bench.jig.process_all()
    assert [[each.key for each in batch] for batch in bench.uplink.sent[:2]] == [[1], [1]]


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
    assert bench.health.parts()["uplink"].state == "unauthorized"


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


def test_progress_is_sent_when_it_can_be_and_forgotten_when_the_end_is_known():
    bench = Bench()
    bench.jig.post(Report("c1", "in_progress", {"percent": 10}))
    bench.jig.post(Report("c1", "in_progress", {"percent": 20}))
    bench.jig.process_all()
    assert [report.result for report in bench.uplink.reports] == [{"percent": 10}, {"percent": 20}]
    bench.uplink.report_errors.append(TransportError("down"))
    bench.finish("c2")
    bench.jig.process_all()
    bench.jig.post(Report("c2", "in_progress"))
    bench.run(10)
    assert [report.status for report in bench.uplink.reports[2:]] == ["succeeded"]


def test_at_the_stop_results_get_one_last_chance():
    bench = Bench()
    bench.jig.process_all()
    bench.finish("c1")
    bench.service.finish()
    assert [report.command_id for report in bench.uplink.reports] == ["c1"]


def test_the_stop_hands_over_the_readings_that_wait():
    bench = Bench(batch_size=2)
    bench.put(1.0, 2.0, 3.0)
    bench.service.finish()
    assert bench.store.stats().rows == 0
    assert len(bench.uplink.stored) == 3


def test_the_stop_does_not_wait_for_a_backlog():
    bench = Bench(batch_size=1)
    bench.put(*map(float, range(10)))
    send = bench.uplink.send
    bench.uplink.send = lambda readings: (bench.clock.advance(0.4), send(readings))[1]
    bench.service.finish()
    assert 0 < bench.store.stats().rows < 10


class TestOverABroker:
    def test_a_connection_that_came_up_ends_the_back_off(self, caplog):
        bench = Bench()
        bench.uplink.send_errors.extend([Offline("unreachable", "nobody listens")] * 80)
        bench.put(1.0)
        bench.run(300)
        assert bench.health.parts()["uplink"].state == "unreachable"
        assert caplog.text == ""
        bench.uplink.send_errors.clear()
        bench.put(2.0)
        bench.jig.process_all()
        assert bench.store.stats().rows == 2
        bench.jig.post(UplinkService.CONNECTED)
        bench.jig.process_all()
        assert bench.store.stats().rows == 0

    def test_where_each_reading_has_its_key_nothing_is_remembered_of_a_batch(self):
        bench = Bench(repeats_batches=False)
        bench.put(1.0, 2.0)
        bench.uplink.lose_answers.append(TransportError("no receipt"))
        bench.jig.process_all()
        assert bench.store.setting(IN_FLIGHT) is None
        bench.put(3.0)
        bench.start()
        bench.run(5)
        assert [len(batch) for batch in bench.uplink.sent] == [2, 3]


# --- a finished entry as the message ----------------------------------------------------------------------------------


def test_a_finished_entry_is_reported_once_and_then_noted_in_the_journal():
    bench = Bench()
    bench.jig.post(bench.finished("c1"))
    bench.run(400)
    assert [report.command_id for report in bench.uplink.reports] == ["c1"]
    assert bench.store.entries["c1"].state is CommandState.REPORTED


def test_a_look_into_the_journal_that_overtakes_the_message_reports_once():
    bench = Bench()
    entry = bench.finished("c1")
    bench.jig.post(UplinkService.RESULT)
    bench.run(2)
    bench.jig.post(entry)
    bench.run(400)
    assert [report.command_id for report in bench.uplink.reports] == ["c1"]


def test_a_finished_entry_waits_out_a_failure_and_goes_then():
    bench = Bench()
    bench.uplink.report_errors.append(TransportError("down"))
    bench.jig.post(bench.finished("c1"))
    bench.run(60)
    assert [report.command_id for report in bench.uplink.reports] == ["c1"]
    assert bench.store.entries["c1"].state is CommandState.REPORTED


def test_more_finished_entries_than_are_kept_in_memory_come_from_the_journal():
    bench = Bench()
    bench.uplink.report_errors.append(TransportError("down"))
    for number in range(100):
        bench.jig.post(bench.finished(f"c{number}"))
    bench.run(400)
    assert sorted(report.command_id for report in bench.uplink.reports) == sorted(f"c{n}" for n in range(100))


def test_a_batch_whose_answer_was_lost_goes_again_as_it_was_though_newer_readings_would_go_first():
    bench = Bench()
    bench.put(1.0, 2.0)
    bench.uplink.lose_answers.append(TransportError("reset"))
    bench.jig.process_all()
    bench.clock.advance(400.0)
    bench.put(3.0)
    bench.run(60)
    sent = [tuple(stored.reading.values["n"] for stored in batch) for batch in bench.uplink.sent]
    assert sent == [(1.0, 2.0), (1.0, 2.0), (3.0,)]


def test_a_batch_whose_answer_was_lost_goes_again_as_it_was_after_a_restart_at_a_bound():
    clock = FakeClock()
    bench = Bench(FakeStore(clock, Bounds(max_rows=6)), clock)
    bench.put(1.0, 2.0)
    bench.uplink.lose_answers.append(TransportError("reset"))
    bench.jig.process_all()
    bench.store.restart()
    bench.start()
    bench.put(*map(float, range(3, 12)))
    bench.run(600)
    batches = [tuple(stored.reading.values.get("n") for stored in batch) for batch in bench.uplink.sent]
    assert batches[:2] == [(1.0, 2.0), (1.0, 2.0)]
    assert bench.store.stats().rows == 0
