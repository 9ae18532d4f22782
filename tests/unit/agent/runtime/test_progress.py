from __future__ import annotations

from agent.core.values import Report
from agent.runtime.jobs import Progress
from tests.fakes import FakeClock


class Bench:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.reports: list[Report] = []
        self.progress = Progress("c1", self.reports.append, self.clock, every_s=2.0)

    def results(self) -> list:
        return [report.result for report in self.reports]


def test_the_first_word_goes_at_once_and_the_newest_of_those_that_come_too_soon_later():
    bench = Bench()
    for percent in range(100):
        bench.progress.report({"percent": percent})
    assert bench.results() == [{"percent": 0}]
    bench.clock.advance(1.9)
    bench.progress.flush()
    assert len(bench.reports) == 1
    bench.clock.advance(0.1)
    bench.progress.flush()
    bench.progress.flush()
    assert bench.results() == [{"percent": 0}, {"percent": 99}]
    assert bench.reports[0] == Report("c1", "in_progress", {"percent": 0})


def test_nothing_follows_the_outcome():
    bench = Bench()
    bench.progress.report({"percent": 1})
    bench.progress.report({"percent": 2})
    bench.progress.close()
    bench.clock.advance(10)
    bench.progress.flush()
    bench.progress.report({"percent": 3})
    bench.progress.report_long()
    assert bench.results() == [{"percent": 1}]


def test_that_it_takes_long_is_no_news_once_it_has_told_something():
    bench = Bench()
    bench.progress.report({"percent": 1})
    bench.clock.advance(10)
    bench.progress.report_long()
    assert bench.results() == [{"percent": 1}]


def test_that_it_takes_long_is_told_when_nothing_else_is():
    bench = Bench()
    bench.progress.report_long()
    assert bench.results() == [None]
