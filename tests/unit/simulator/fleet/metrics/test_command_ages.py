"""The age of commands: each once, by name and end state, and no judgement over those whose end nobody knows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.core.values import OutcomeStatus
from simulator.fleet.audit.fleet_ledger import FleetLedger
from simulator.fleet.metrics.ages import ages_of, shown_ages, with_shown_ages
from simulator.fleet.metrics.histogram import Histogram
from simulator.fleet.metrics.merging import Merger
from simulator.fleet.metrics.recorder import Recorder
from simulator.fleet.metrics.stages import CommandTracker, without_stages
from simulator.fleet.metrics.threshold_judging import judge_thresholds
from simulator.fleet.metrics.thresholds import ThresholdError, parse
from simulator.fleet.outcomes import OutcomeClass
from simulator.fleet.record import CommandEnds, Reasons, Second, ThresholdResult
from simulator.fleet.verdict import RunFindings, judge_run
from simulator.fleet.workload.measurement import StagedLedger
from tests.fleet_runs import Shape, a_run

OK, TIMEOUT = OutcomeClass.OK, OutcomeClass.TIMEOUT
PING, VALVE, BROKEN = 0, 1, 2
NAMES = ("ping", "open_valve", "ping")
EXPIRED = "expired: it expired 3 s before this device could run it"


class Played:
    """Commands that are ordered at 0, one after the other, and what is measured of them."""

    def __init__(self) -> None:
        self.recorder = Recorder()
        self.ways = CommandTracker(self.recorder, NAMES)
        self.ledger = StagedLedger(FleetLedger(), self.ways)
        self._count = 0

    def order(self, stream: int, *, at_s: float = 0.0, expires_s: float | None = None) -> str:
        self._count += 1
        command_id = f"c{self._count}"
        self.ledger.command_ordered(0, command_id, at_s)
        self.ways.ordered(command_id, stream, at_s, expires_s)
        return command_id

    def report(self, command_id: str, status: OutcomeStatus, at_s: float, error: str | None = None) -> None:
        self.ledger.command_received(0, command_id, at_s - 0.2)
        self.ledger.command_finished(0, command_id, status, at_s - 0.1, error)
        self.ledger.command_reported(0, command_id, at_s)

    def seconds(self, closed_s: float) -> tuple[Second, ...]:
        self.ways.close(closed_s)
        merger = Merger((0,))
        merger.add(self.recorder.cut(0).delta())
        return tuple(merger.finish())


def some() -> Played:
    """Two pings that succeed after 1 and 2 s, one that fails after 3 s, a valve rejected after 4 s, one expired."""
    played = Played()
    for stream, status, at_s in (
        (PING, OutcomeStatus.SUCCEEDED, 1.0),
        (BROKEN, OutcomeStatus.FAILED, 3.0),
        (PING, OutcomeStatus.SUCCEEDED, 2.0),
        (VALVE, OutcomeStatus.REJECTED, 4.0),
    ):
        played.report(played.order(stream), status, at_s)
    played.order(VALVE, expires_s=10.0)
    assert played.ways.expire(10.0) == 1
    return played


def times(tally) -> tuple[int, float, float]:
    found = Histogram.decode(tally.response)
    return found.count, found.min_s, found.max_s


def test_every_command_has_one_age_and_stands_by_end_state_and_by_name():
    [second] = some().seconds(60.0)
    shown = shown_ages(second.operations)
    assert {name: times(classes[OK]) for name, classes in shown.items()} == {
        "commands.age": (5, 1.0, 10.0),
        "commands.age.expired": (1, 10.0, 10.0),
        "commands.age.failed": (1, 3.0, 3.0),
        "commands.age.rejected": (1, 4.0, 4.0),
        "commands.age.succeeded": (2, 1.0, 2.0),
        "commands.age[open_valve]": (2, 4.0, 10.0),
        "commands.age[ping]": (3, 1.0, 3.0),
    }
    assert without_stages(second.operations) == {}
    assert set(shown) < set(with_shown_ages(second.operations))
    assert "commands.delivered" in with_shown_ages(second.operations)


def test_a_command_that_had_not_ended_counts_with_what_it_waited_also_when_only_its_report_is_missing():
    played = Played()
    played.order(PING, at_s=5.0)
    ran = played.order(PING, at_s=1.0)
    played.ledger.command_received(0, ran, 2.0)
    played.ledger.command_finished(0, ran, OutcomeStatus.SUCCEEDED, 3.0)
    [second] = played.seconds(61.0)
    assert set(ages_of(second.operations)) == {"commands.age[ping].open"}
    assert times(shown_ages(second.operations)["commands.age"][TIMEOUT]) == (2, 56.0, 60.0)


def test_the_age_is_measured_whoever_hears_first_of_a_command_and_a_stranger_s_has_none():
    played = Played()
    played.report("c1", OutcomeStatus.SUCCEEDED, 4.0)
    played.report("foreign", OutcomeStatus.SUCCEEDED, 4.0)
    played.order(PING, at_s=1.0)
    [second] = played.seconds(60.0)
    assert {name: times(classes[OK]) for name, classes in ages_of(second.operations).items()} == {
        "commands.age[ping].succeeded": (1, 3.0, 3.0)
    }


def test_a_command_that_comes_to_its_device_after_it_expired_has_ended_once():
    played = Played()
    late = played.order(PING, expires_s=10.0)
    played.ways.expire(11.0)
    played.report(late, OutcomeStatus.REJECTED, 14.0, EXPIRED)
    [second] = played.seconds(60.0)
    assert times(shown_ages(second.operations)["commands.age"][OK]) == (1, 10.0, 10.0)
    assert set(ages_of(second.operations)) == {"commands.age[ping].expired"}


def ended(*given: tuple[str, int, int]) -> tuple[CommandEnds, ...]:
    return tuple(CommandEnds(name, "any", sent, refused, 0, {}) for name, sent, refused in given)


def judged(expression: str, played: Played, commands: tuple[CommandEnds, ...], partial: str = "") -> ThresholdResult:
    seconds = played.seconds(60.0)
    operations = {**seconds[0].operations}
    record, _ = a_run(Shape(duration_s=20))
    record = replace(record, phases=(), drained_from_s=None, operations=operations, commands=commands, partial=partial)
    (result,) = judge_thresholds([parse(expression)], record, seconds)
    return result


WHOLE = ended(("ping", 2, 0), ("open_valve", 3, 1), ("ping", 1, 0), ("", 0, 0))


@pytest.mark.parametrize(
    ("expression", "observed"),
    [
        ("commands.age.max < 11s", 10.0),
        ("commands.age.p50 < 4s", 3.0),
        ("commands.p50 < 4s", 3.0),
        ("commands.age[ping].max < 4s", 3.0),
        ("commands.age[ping].failed.min == 3s", 3.0),
        ("commands.age[open_valve].expired.rate <= 50%", 50.0),
        ("commands.age.rejected.rate < 21%", 20.0),
        ("commands.rate >= 100%", 100.0),
        ("commands.age.all.count == 5", 5.0),
        ("commands.age.open.count == 0", 0.0),
    ],
)
def test_thresholds_choose_commands_by_end_state_and_name(expression, observed):
    result = judged(expression, some(), WHOLE)
    assert (result.held, result.judged, result.observed) == (True, True, pytest.approx(observed, rel=0.001))


@pytest.mark.parametrize(
    ("expression", "is_judged"),
    [
        ("commands.age.p50 < 4s", False),
        ("commands.age.p99 < 11s over 1s", False),
        ("commands.age.failed.rate < 50%", False),
        ("commands.age[open_valve].max < 11s", False),
        ("commands.age[ping].max < 4s", True),
        ("commands.age.succeeded.max < 4s", False),
        ("commands.age.failed.count <= 1", False),
        ("commands.age.open.count == 0", False),
        ("commands.age.count >= 5", True),
        ("commands.rate > 1/s over 1s", True),
    ],
)
def test_what_holds_of_the_commands_whose_end_is_known_is_not_judged_while_there_are_others(expression, is_judged):
    """The answer to one order did not name its command."""
    commands = ended(("ping", 3, 0), ("open_valve", 4, 1))
    result = judged(expression, some(), commands)
    assert (result.held, result.judged) == (is_judged, is_judged)
    if not is_judged:
        assert "no known end" in result.reason
        verdict = judge_run(RunFindings(thresholds=[result]))
        assert (verdict.word, verdict.exit_code) == ("inconclusive", 3)
        assert verdict.sentences == (f"{expression} cannot be judged: {result.reason}",)
        both = judge_run(RunFindings(thresholds=[result], reasons=Reasons(failures=("something failed",))))
        assert (both.word, len(both.sentences)) == ("failed", 2)


@pytest.mark.parametrize(("sent", "is_judged"), [(1, True), (2, False)])
def test_how_many_were_open_in_the_end_is_judged_where_each_command_is_known(sent, is_judged):
    played = Played()
    played.order(PING)
    result = judged("commands.age.open.count <= 1", played, ended(("ping", sent, 0)))
    assert (result.held, result.judged, result.observed) == (is_judged, is_judged, 1.0)


def test_a_command_that_waited_longer_than_the_limit_fails_it_without_an_end():
    played = Played()
    played.order(PING)
    result = judged("commands.age.p99 < 10s", played, ended(("ping", 1, 0)))
    assert (result.held, result.judged, result.observed) == (False, True, pytest.approx(60.0, rel=0.001))


@pytest.mark.parametrize(
    ("text", "column", "words"),
    [
        ("commands.age.canceled.p99 < 1s", 14, "expected one of succeeded, failed, rejected, expired, open, all"),
        ("commands.age.timeout.p99 < 1s", 14, "expected one of succeeded"),
        ("commands.age[pinq].p99 < 1s", 10, "no command 'pinq': it sends open.it now, ping; did you mean 'ping'?"),
        ("commands.age[ping.p99 < 1s", 10, "found 'age[ping'"),
        ("commands.age[ping] < 1s", 19, "the name ends here"),
        ("commands.age.all.rate < 5%", 1, "all of all is always 100 %"),
        ("commands.delivred.p99 < 1s", 10, "did you mean 'delivered'?"),
        ("commands.round_trip.service.p99 < 1s", 21, "found 'service'"),
    ],
)
def test_a_name_or_state_that_there_is_none_of_is_refused_with_what_there_is(text, column, words):
    with pytest.raises(ThresholdError) as caught:
        parse(text, commands={"ping", "open.it now"})
    assert caught.value.column == column
    assert words in str(caught.value)


def test_names_in_brackets_may_hold_dots_and_spaces():
    subject = parse("commands.age[open.it now].failed.p99.9 < 1s in hold", commands={"open.it now"}).subject
    assert (subject.command, subject.states, subject.percent) == ("open.it now", {"failed"}, 99.9)
