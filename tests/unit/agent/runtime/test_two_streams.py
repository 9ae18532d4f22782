"""Readings and results over one uplink: what happens to one kind does not concern the other."""

from __future__ import annotations

import threading

import pytest

from agent.core.values import CommandState, Report, SendOutcome
from agent.errors import (
    AgentError,
    Forbidden,
    NotFound,
    RateLimited,
    Refused,
    ServerFault,
    TransportError,
    Unauthorized,
    UnexpectedAnswer,
)
from agent.runtime.health import Health
from agent.runtime.reading_uplink import ReadingUplink
from agent.runtime.result_reporter import ResultReporter
from agent.runtime.retry_policy import RetryPolicy
from agent.runtime.service import ServiceThread
from tests.factories import make_entry, make_outcome, make_reading
from tests.fakes import FakeClock, FakeStore, FakeUplink
from tests.threadless import ThreadlessService

SOON_S = 60.0
FAULTS = [
    NotFound(404),
    Forbidden(403),
    Refused(405),
    ServerFault(500),
    UnexpectedAnswer("HTML", 200),
    TransportError("timed out"),
    Unauthorized(401),
    RateLimited(429, retry_after_s=3600.0),
]


class Uplink(FakeUplink):
    """Fails for ever where a test says so."""

    send_error: AgentError | None = None
    report_error: AgentError | None = None

    def send(self, readings) -> SendOutcome:
        if self.send_error is not None:
            raise self.send_error
        return super().send(readings)

    def report(self, report: Report) -> float | None:
        if self.report_error is not None:
            raise self.report_error
        return super().report(report)


class Bench:
    def __init__(self, uplink: FakeUplink | None = None) -> None:
        self.clock = FakeClock()
        self.store = FakeStore(self.clock)
        self.uplink = uplink or Uplink()
        self.health = Health(self.clock)
        self.readings = ReadingUplink(
            uplink=self.uplink,
            journal=self.store,
            outbox=self.store,
            clock=self.clock,
            retry_policy=RetryPolicy(lambda: 0.5),
            health=self.health,
            apart_s=0.0,
        )
        self.results = ResultReporter(
            uplink=self.uplink,
            journal=self.store,
            clock=self.clock,
            make_retry_policy=lambda: RetryPolicy(lambda: 0.5),
            health=self.health,
        )

    def finish(self, command_id: str) -> None:
        self.store.admit([make_entry(command_id)])
        self.store.finish(command_id, make_outcome(), self.clock.now())

    def drive(self, rounds: int = 100) -> None:
        """One reading and one result each second."""
        driven_services = ThreadlessService(self.readings, self.clock), ThreadlessService(self.results, self.clock)
        for number in range(rounds):
            self.store.put(make_reading({"n": float(number)}, at=self.clock.now()))
            self.finish(f"c{number}")
            driven_services[0].post(ReadingUplink.READING)
            driven_services[1].post(ResultReporter.RESULT)
            for _ in range(2):
                for driven in driven_services:
                    driven.process_all()
                self.clock.advance(0.5)
        self.clock.advance(1.0)
        for driven in driven_services:
            driven.process_all()


@pytest.mark.parametrize("error", FAULTS, ids=str)
def test_a_hundred_readings_take_as_long_as_without_results_that_fail(error):
    bench = Bench()
    bench.uplink.report_error = error
    bench.drive()
    assert len(bench.uplink.stored) == 100
    assert bench.store.stats().rows == 0
    assert bench.health.parts()["readings"].state == "ok"
    assert bench.health.parts()["results"].state != "ok"


@pytest.mark.parametrize("error", FAULTS, ids=str)
def test_results_go_out_while_readings_fail(error):
    bench = Bench()
    bench.uplink.send_error = error
    bench.drive()
    assert len(bench.uplink.reports) == 100
    assert {entry.state for entry in bench.store.entries.values()} == {CommandState.REPORTED}
    assert bench.store.stats().rows == 100
    assert bench.health.parts()["results"].state == "ok"
    assert bench.health.parts()["readings"].state != "ok"


def test_a_report_that_hangs_holds_no_reading_up():
    release, has_come, is_stored = threading.Event(), threading.Event(), threading.Event()

    class Hanging(FakeUplink):
        def report(self, report: Report) -> float | None:
            has_come.set()
            release.wait(SOON_S)
            return super().report(report)

        def send(self, readings) -> SendOutcome:
            outcome = super().send(readings)
            is_stored.set()
            return outcome

    bench = Bench(Hanging())
    bench.finish("c1")
    services = [ServiceThread(actor, bench.clock, pytest.fail) for actor in (bench.readings, bench.results)]
    for service in services:
        service.start()
    try:
        assert has_come.wait(SOON_S)
        bench.store.put(make_reading({"n": 1.0}, at=bench.clock.now()))
        services[0].post(ReadingUplink.READING)
        assert is_stored.wait(SOON_S)
        assert bench.uplink.reports == []
    finally:
        release.set()
        for service in services:
            service.stop()
        assert all(service.join(SOON_S) for service in services)
    assert [report.command_id for report in bench.uplink.reports] == ["c1"]
