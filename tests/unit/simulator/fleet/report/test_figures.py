"""Figures are derived once: by hand they come out the same."""

from __future__ import annotations

import math

import pytest

from simulator.fleet.metrics.histogram import Histogram
from simulator.fleet.outcomes import OutcomeClass
from simulator.fleet.record import Tally
from simulator.fleet.report.figures import Figures, by_operation

OK, LIMITED, TIMEOUT, REFUSED = OutcomeClass.OK, OutcomeClass.LIMITED, OutcomeClass.TIMEOUT, OutcomeClass.REFUSED


def tally(count: int, value_s: float, *, again: int = 0, ambiguous: int = 0) -> Tally:
    times = Histogram()
    times.record_many([value_s] * count)
    return Tally(count, count - again, times.encode(), times.encode(), ambiguous)


POLL = {OK: tally(90, 0.1), TIMEOUT: tally(10, 5.0), LIMITED: tally(7, 0.001), REFUSED: tally(3, 0.001)}
SENT = {OK: tally(40, 0.2, again=4, ambiguous=1)}
HELD = {OK: tally(5, 20.0)}


def test_an_operation_by_hand():
    found = Figures.of("http.poll", (POLL, {OK: tally(10, 0.3)}), 20.0)
    assert (found.good, found.limited, found.errors, found.total) == (100, 7, 13, 120)
    assert found.per_s(found.good) == 5.0
    assert found.response.count == 110  # good answers, and those that never came
    assert found.response.percentile(95) == pytest.approx(5.0, rel=0.001)
    assert math.isnan(Figures.of("http.poll", (POLL,)).per_s(1)), "a rate over no time is no number"


def test_together_all_count_and_what_is_held_on_purpose_is_in_no_time():
    each = by_operation({"http.poll": POLL, "http.long_poll": HELD, "http.sensor_data": SENT}, 10.0)
    whole = Figures.together(each.values(), 10.0)
    assert (whole.good, whole.total) == (135, 155)
    assert (whole.resends, whole.ambiguous) == (4, 1)
    assert whole.response.max_s == pytest.approx(5.0, rel=0.001)
    assert each["http.long_poll"].response.max_s == pytest.approx(20.0, rel=0.001)
