"""A command's way by stage: measured in whatever order its marks come, and once."""

from __future__ import annotations

import pytest

from agent.core.values import OutcomeStatus
from simulator.fleet.audit.ledger import Ledger
from simulator.fleet.metrics.ages import CommandTracker, EndState, Stage, stages_of
from simulator.fleet.metrics.histogram import Histogram
from simulator.fleet.metrics.recorder import Recorder
from simulator.fleet.outcomes import OutcomeClass
from simulator.fleet.workload.base import TrackedLedger

NAMES = ("ping", "open_valve")
AT = {
    Stage.PLANNED: 10.0,
    Stage.SENT: 10.5,
    Stage.DELIVERED: 11.5,
    Stage.STARTED: 11.75,
    Stage.FINISHED: 13.75,
    Stage.REPORTED: 14.0,
}
TRUTH = {"sent": 0.5, "delivered": 1.0, "started": 0.25, "finished": 2.0, "reported": 0.25}


@pytest.mark.parametrize("order", [list(Stage), [2, 3, 4, 5, 1, 0], [2, 0, 3, 1, 4, 5]], ids=str)
def test_every_stage_is_measured_in_whatever_order_its_marks_come(order):
    recorder = Recorder()
    ways = CommandTracker(recorder, NAMES)
    for stage in map(Stage, order):
        ways.mark("c1", stage, AT[stage])
        ways.mark("c1", stage, 99.0)
    operations = recorder.cut(0).measured().operations
    assert {name: times.max_s for name, times in stages_of(operations).items()} == TRUTH
    assert all(tallies[OutcomeClass.OK].count == 1 for tallies in operations.values())


def test_a_command_that_was_reported_is_forgotten_and_one_that_never_is_counts_as_a_timeout():
    recorder = Recorder()
    ways = CommandTracker(recorder, NAMES)
    for stage in Stage:
        ways.mark("c1", stage, AT[stage])
    ways.ordered("c2", 0, 12.0, None)
    ways.mark("foreign", Stage.DELIVERED, 12.0)
    assert len(ways) == 2
    ways.close(72.0)
    assert len(ways) == 0
    operations = recorder.cut(0).measured().operations
    tally = operations["commands.age[ping].open"][OutcomeClass.TIMEOUT]
    assert (tally.count, Histogram.decode(tally.response).max_s) == (1, 60.0)


def taken(ways, ledger, name, at_s=1.0, *, stream=0, expires_s=None):
    """The service took an order; the answer comes to the operator."""
    ledger.command("ordered", 0, name, at_s)
    ways.ordered(name, stream, at_s, expires_s)


def test_a_command_that_expires_at_the_service_ends_at_its_time_and_no_sooner():
    ways = CommandTracker(Recorder(), NAMES)
    ledger = TrackedLedger(Ledger(), ways)
    taken(ways, ledger, "never fetched", expires_s=10.0)
    taken(ways, ledger, "runs", expires_s=10.0)
    ledger.command("received", 0, "runs", 9.0)
    assert ways.expire(9.9) == 0
    assert (ways.expire(10.0), len(ways)) == (1, 1)
    ways.close(20.0)
    assert ways.ends == {0: {EndState.EXPIRED: 1, EndState.OPEN: 1}}


@pytest.mark.parametrize(
    ("status", "error", "end"),
    [
        (OutcomeStatus.SUCCEEDED, None, EndState.SUCCEEDED),
        (OutcomeStatus.REJECTED, "expired: it expired 3 s before this device could run it", EndState.EXPIRED),
    ],
)
def test_a_command_that_came_to_its_device_late_ends_as_the_device_says(status, error, end):
    ways = CommandTracker(Recorder(), NAMES)
    ledger = TrackedLedger(Ledger(), ways)
    taken(ways, ledger, "c1", expires_s=10.0)
    ways.expire(11.0)
    ledger.command("received", 0, "c1", 12.0)
    assert len(ways) == 1
    ledger.command("finished", 0, "c1", 13.0, detail=status, error=error)
    ledger.command("reported", 0, "c1", 14.0)
    assert len(ways) == 0
    assert ways.ends == {0: {end: 1}}
