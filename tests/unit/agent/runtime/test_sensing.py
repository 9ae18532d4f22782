from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field

from agent.core.timekeeping import ReportRule, ReportStrategy
from agent.runtime.actor import POLL, Intervals
from agent.runtime.sensing import SensingService
from tests.support.fakes import Driven, StoreInMemory, make_context


@dataclass(frozen=True)
class Result:
    values: Mapping[str, float] = field(default_factory=dict)
    error: str | None = None
    refused: tuple[str, ...] = ()


class FakeRead:
    """A read that ends when the test says so."""

    timeout_s = 5.0

    def __init__(self) -> None:
        self.result: Future[Result] = Future()

    def outcome(self) -> Result:
        return self.result.result() if self.result.done() else Result(error="no answer")

    def overdue(self) -> Result:
        return Result(error="skipped")


class FakeReader:
    """Reads end at once; those of a sensor in ``hanging`` wait in ``pending``."""

    def __init__(self, **results: Result) -> None:
        self.results = results
        self.reads: list[str] = []
        self.hanging: set[str] = set()
        self.pending: list[FakeRead] = []

    def begin(self, name: str) -> FakeRead:
        read = FakeRead()
        self.reads.append(name)
        if name in self.hanging:
            self.pending.append(read)
        else:
            read.result.set_result(self.results[name])
        return read

    def names(self) -> list[str]:
        return list(self.results)

    def read(self, names: list[str] | None = None) -> dict[str, Result]:
        chosen = self.names() if names is None else names
        self.reads += chosen
        return {name: self.results[name] for name in chosen}


class Bench:
    def __init__(self, rule: ReportRule | None = None, interval_s: float = 60.0, **results: Result) -> None:
        self.store = StoreInMemory()
        self.clock = self.store.clock
        self.reader = FakeReader(**(results or {"board": Result({"t": 20.0})}))
        context = make_context(self.store)
        self.health = context.health
        names = self.reader.names()
        self.intervals = Intervals(
            self.store.journal,
            {**dict.fromkeys(names, interval_s), POLL: 60.0},
            on_change=lambda name: self.driven.post(name),
        )
        rules = dict.fromkeys(names, rule or ReportRule())
        self.driven = Driven(SensingService(context, self.reader, self.intervals, rules, {}))

    def rows(self) -> list[dict[str, float]]:
        return [each.reading.values for each in self.store.outbox.next_batch(1000)]

    def run(self, seconds: float) -> None:
        for _ in range(round(seconds)):
            self.clock.advance(1)
            self.driven.process_all()


def test_a_failing_sensor_hides_no_other_and_is_told_once(caplog):
    bench = Bench(good=Result({"t": 1.0}), bad=Result(error="no such bus"))
    bench.run(290)
    assert caplog.text.count("no such bus") == 1
    assert bench.health.parts()["sensor:bad"].state == "failing"
    assert bench.health.parts()["sensor:good"].state == "ok"
    assert bench.store.outbox.stats().accepted >= 4


def test_sensors_of_one_interval_are_one_reading_and_a_slow_one_is_not_waited_for_long():
    bench = Bench(a=Result({"t": 1.0}), b=Result({"u": 2.0}), slow=Result({"v": 3.0}), interval_s=10)
    bench.run(31)
    rows = bench.rows()
    assert rows == [{"t": 1.0, "u": 2.0, "v": 3.0}] * len(rows)
    assert 3 <= len(rows) <= 4
    bench.reader.hanging = {"slow"}
    while not bench.reader.pending:
        bench.run(1)
    bench.run(2)
    assert bench.rows()[-1] == {"t": 1.0, "u": 2.0}
    bench.reader.pending.pop().result.set_result(Result({"v": 4.0}))
    bench.run(2)
    assert bench.rows()[-1] == {"v": 4.0}


def test_a_read_that_outlives_its_timeout_is_failing_delays_no_other_and_its_late_answer_is_not_taken(caplog):
    bench = Bench(slow=Result({"t": 1.0}), good=Result({"u": 1.0}), interval_s=10)
    bench.reader.hanging = {"slow"}
    while "sensor:slow" not in bench.health.parts():
        bench.run(1)
    assert bench.health.parts()["sensor:slow"].detail == "no answer"
    bench.run(20)
    assert bench.health.parts()["sensor:slow"].detail == "skipped"
    assert caplog.text.count("sensor=slow state=failing") == 1
    assert bench.reader.reads.count("good") >= 3
    (late,) = bench.reader.pending
    bench.reader.hanging.clear()
    late.result.set_result(Result({"t": 99.0}))
    bench.run(11)
    assert bench.health.parts()["sensor:slow"].state == "ok"
    assert {row["t"] for row in bench.rows() if "t" in row} == {1.0}


def test_a_reading_that_could_not_be_stored_does_not_count_as_sent(caplog):
    bench = Bench(ReportRule(ReportStrategy.CHANGE))
    bench.store.broken = "the disk is full"
    bench.run(100)
    assert "the disk is full" in caplog.text
    bench.store.broken = None
    bench.run(100)
    assert bench.store.outbox.stats().accepted == 1
