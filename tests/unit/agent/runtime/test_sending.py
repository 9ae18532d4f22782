"""Readings and results go out: nothing is lost, nothing is sent for ever, and nothing holds up the others."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.core.values import CommandState, Report
from agent.errors import (
    AgentError,
    Conflict,
    Forbidden,
    NoPlaceForResults,
    NotFound,
    Offline,
    RateLimited,
    Refused,
    ServerFault,
    StillRunning,
    TransportError,
    Unauthorized,
    UnexpectedAnswer,
)
from agent.runtime.sending import IN_FLIGHT, ReadingStream, ResultStream
from tests.support.factories import make_entry, make_outcome, make_reading
from tests.support.fakes import Driven, FakeUplink, StoreInMemory, make_context


class Bench:
    """One stream on a store in memory."""

    def __init__(self) -> None:
        self.store = StoreInMemory()
        self.clock, self.outbox, self.journal = self.store.clock, self.store.outbox, self.store.journal
        self.uplink = Selective()
        self.context = make_context(self.store)
        self.start()

    def start(self) -> None:
        """A new process on the same store."""
        self.driven = Driven(self.stream())

    def run(self, seconds: float) -> None:
        for _ in range(round(seconds * 2)):
            self.driven.process_all()
            self.clock.advance(0.5)


class Selective(FakeUplink):
    """Takes results unless their ids are in ``fails``; notes every try."""

    def __init__(self) -> None:
        super().__init__()
        self.fails: dict[str, AgentError] = {}
        self.all_fail: AgentError | None = None
        self.tried: list[str] = []

    def report(self, report: Report) -> None:
        self.tried.append(report.command_id)
        error = self.all_fail or self.fails.get(report.command_id)
        if error is not None:
            raise error
        super().report(report)


# --- readings ---------------------------------------------------------------------------------------------------------


class ReadingsBench(Bench):
    def __init__(self, apart_s: float = 1.0) -> None:
        self.apart_s = apart_s
        super().__init__()

    def stream(self) -> ReadingStream:
        return ReadingStream(self.context, self.uplink, apart_s=self.apart_s)

    def put(self, *numbers: float) -> None:
        for number in numbers:
            self.outbox.put(make_reading({"n": number}, at=self.clock.now()))
        self.driven.post(False)


def test_a_reading_leaves_the_outbox_only_after_it_is_stored_on_the_other_side():
    bench = ReadingsBench()
    bench.put(1.0)
    bench.uplink.send_errors.append(TransportError("down"))
    bench.driven.process_all()
    assert bench.outbox.stats().rows == 1
    bench.run(60)
    assert bench.outbox.stats().rows == 0
    assert len(bench.uplink.stored) == 1


def test_new_readings_wait_for_others_and_urgent_ones_do_not():
    bench = ReadingsBench(apart_s=30.0)
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
    bench = ReadingsBench()
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
    bench = ReadingsBench()
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
    bench = ReadingsBench()
    bench.store.journal.put_setting(IN_FLIGHT, "{nonsense")
    bench.start()
    bench.put(1.0)
    bench.run(10)
    assert bench.outbox.stats().rows == 0


def test_wrong_keys_make_one_line_an_hour_and_few_tries(caplog):
    bench = ReadingsBench()
    bench.uplink.send_errors.extend([Unauthorized(401, "invalid_credentials")] * 1000)
    bench.put(1.0)
    bench.run(3600)
    assert len(caplog.records) == 1
    assert 1000 - len(bench.uplink.send_errors) < 20
    assert bench.outbox.stats().rows == 1
    assert bench.context.health.parts()["readings"].state == "unauthorized"


def test_a_full_disk_loses_nothing_and_does_not_spin(caplog):
    bench = ReadingsBench()
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
        bench = ReadingsBench()
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


# --- results ----------------------------------------------------------------------------------------------------------


class ResultsBench(Bench):
    def stream(self) -> ResultStream:
        return ResultStream(self.context, self.uplink)

    def finish(self, command_id: str, **outcome) -> None:
        self.journal.admit([make_entry(command_id)])
        self.journal.finish(command_id, make_outcome(**outcome), self.clock.now())
        self.driven.post("a result")

    def states(self) -> dict[str, CommandState]:
        return {name: entry.state for name, entry in self.store.entries().items()}


@pytest.mark.parametrize("error", [NotFound(404, "command_not_found"), Conflict(409, "command_canceled")])
def test_a_result_that_nobody_asks_for_any_more_is_put_away(error):
    bench = ResultsBench()
    bench.uplink.report_errors.append(error)
    bench.finish("c1")
    bench.run(60)
    assert bench.store.entries()["c1"].state is CommandState.REPORTED
    assert bench.uplink.reports == []


def test_very_many_refusals_take_some_lines_a_minute_and_one_with_their_count(caplog):
    bench = ResultsBench()
    bench.uplink.report_errors.extend([NotFound(404, "command_not_found")] * 501)
    for number in range(500):
        bench.finish(f"c{number}")
    bench.run(90)
    bench.finish("c500")
    bench.run(1)
    lines = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert {entry.state for entry in bench.store.entries().values()} == {CommandState.REPORTED}
    assert len(lines) < 30
    assert "(and 499 times more since the last line)" in lines[-1]


def test_a_result_whose_first_attempt_still_runs_over_there_is_not_put_away():
    bench = ResultsBench()
    bench.uplink.report_errors += [StillRunning(409, "idempotency_key_in_use", retry_after_s=1.0)] * 2
    bench.finish("c1")
    bench.run(60)
    assert [report.command_id for report in bench.uplink.reports] == ["c1"]
    assert bench.store.entries()["c1"].state is CommandState.REPORTED


def test_a_result_that_is_refused_is_told_without_its_content():
    bench = ResultsBench()
    bench.uplink.report_errors.append(Refused(413, "too_large"))
    bench.finish("c1", result={"big": "x"})
    bench.run(60)
    [report] = bench.uplink.reports
    assert report.result is None
    assert report.status == "succeeded"
    assert "result_refused" in (report.error or "")


def test_progress_is_sent_when_it_can_be_and_forgotten_when_the_end_is_known():
    bench = ResultsBench()
    bench.journal.admit([make_entry("c1")])
    bench.journal.start("c1", bench.clock.now())
    bench.driven.post(Report("c1", "in_progress", {"percent": 10}))
    bench.driven.post(Report("c1", "in_progress", {"percent": 20}))
    bench.driven.process_all()
    assert [report.result for report in bench.uplink.reports] == [{"percent": 10}, {"percent": 20}]
    bench.uplink.report_errors.append(TransportError("down"))
    bench.finish("c2")
    bench.driven.process_all()
    bench.driven.post(Report("c2", "in_progress"))
    bench.run(10)
    assert [report.status for report in bench.uplink.reports[2:]] == ["succeeded"]


# --- results that the service does not take ---------------------------------------------------------------------------

NO_PLACE = [NotFound(404), Forbidden(403), Refused(405), Refused(410), ServerFault(501), UnexpectedAnswer("HTML", 404)]
FOR_EVER = [*NO_PLACE, ServerFault(500), UnexpectedAnswer("HTML", 200), UnexpectedAnswer("a redirect", 302)]
NOT_COUNTED = [TransportError("timed out"), RateLimited(429, retry_after_s=1e9), Unauthorized(401)]
DAY_S = 86_400


@pytest.mark.parametrize("error", FOR_EVER, ids=str)
def test_a_result_that_is_never_taken_is_undeliverable_with_its_result_and_the_reason(error):
    bench = ResultsBench()
    uplink = bench.uplink
    uplink.all_fail = error
    bench.finish("c1", result={"n": 1})
    bench.run(590)
    assert bench.states() == {"c1": CommandState.FINISHED}
    bench.run(6000)
    entry = bench.store.entries()["c1"]
    assert entry.state is CommandState.UNDELIVERABLE
    assert entry.outcome is not None
    assert entry.outcome.result == {"n": 1}
    assert entry.undeliverable == str(error)
    assert len(uplink.tried) < 60


@pytest.mark.parametrize("error", NOT_COUNTED, ids=str)
def test_what_says_nothing_about_a_result_gives_none_up(error):
    bench = ResultsBench()
    uplink = bench.uplink
    uplink.all_fail = error
    bench.finish("c1")
    bench.run(2 * DAY_S)
    assert bench.states() == {"c1": CommandState.FINISHED}
    uplink.all_fail = None
    bench.run(4000)
    assert bench.states() == {"c1": CommandState.REPORTED}


@pytest.mark.parametrize("error", [*FOR_EVER, Refused(400)], ids=str)
def test_one_result_that_is_not_taken_does_not_hold_up_the_others(error):
    bench = ResultsBench()
    uplink = bench.uplink
    uplink.fails["poison"] = error
    bench.finish("poison")
    for number in range(20):
        bench.finish(f"c{number}")
        bench.run(10)
        assert bench.states()[f"c{number}"] is CommandState.REPORTED
    bench.run(3850)
    assert bench.states()["poison"] is CommandState.UNDELIVERABLE


def test_many_results_without_a_place_share_one_back_off():
    bench = ResultsBench()
    uplink = bench.uplink
    uplink.all_fail = Refused(405)
    for number in range(100):
        bench.finish(f"c{number}")
    bench.run(3000)
    assert set(bench.states().values()) == {CommandState.UNDELIVERABLE}
    assert len(uplink.tried) < 30
    # From then on one try is enough.
    before = len(uplink.tried)
    bench.finish("late")
    bench.run(1200)
    assert bench.states()["late"] is CommandState.UNDELIVERABLE
    assert uplink.tried[before:].count("late") == 1
    assert bench.context.health.parts()["results"].state == "no_place"


def test_where_there_is_no_place_for_sure_results_are_undeliverable_at_once():
    bench = ResultsBench()
    uplink = bench.uplink
    uplink.all_fail = NoPlaceForResults("service.dialect.results is none")
    bench.finish("c1", result={"n": 1})
    bench.driven.post(Report("c2", "in_progress"))
    bench.finish("c2")
    bench.driven.process_all()
    assert set(bench.states().values()) == {CommandState.UNDELIVERABLE}
    bench.finish("c3")
    bench.driven.process_all()
    assert set(bench.states().values()) == {CommandState.UNDELIVERABLE}
    assert bench.context.health.parts()["results"].state == "no_place"
    # A place is configured: new results go there.
    uplink.all_fail = None
    bench.start()
    bench.finish("c4")
    bench.run(3700)
    assert [report.command_id for report in uplink.reports] == ["c4"]


def test_a_result_whose_content_is_refused_twice_is_undeliverable_at_once():
    bench = ResultsBench()
    uplink = bench.uplink
    uplink.all_fail = Refused(400, "validation_error")
    bench.finish("c1", result={"n": 1})
    bench.driven.process_all()
    assert bench.states() == {"c1": CommandState.UNDELIVERABLE}
    assert uplink.tried == ["c1", "c1"]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["finish", "kill", "wait", "heal", "break"]),
            st.sampled_from([*FOR_EVER, *NOT_COUNTED, Refused(400)]),
        ),
        max_size=30,
    )
)
@settings(max_examples=60, deadline=None)
def test_whatever_happens_every_result_is_reported_or_kept(steps):
    bench = ResultsBench()
    uplink = bench.uplink
    for number, (step, error) in enumerate(steps):
        if step == "finish":
            bench.finish(f"c{number}", result={"n": number})
            bench.driven.process_all()
        elif step == "kill":
            bench.start()
        elif step == "wait":
            for _ in range(60):
                bench.driven.process_all()
                bench.clock.advance(30)
        else:
            uplink.all_fail = None if step == "heal" else error
        for entry in bench.store.entries().values():
            assert entry.outcome is not None
            assert entry.state is CommandState.REPORTED or entry.outcome.result is not None
    uplink.all_fail = None
    for _ in range(2000):
        bench.driven.process_all()
        bench.clock.advance(60)
    assert set(bench.states().values()) <= {CommandState.REPORTED, CommandState.UNDELIVERABLE}
    assert {report.command_id for report in uplink.reports} == {
        name for name, state in bench.states().items() if state == CommandState.REPORTED
    }
