"""Commands without a known end, and the thresholds that cannot be judged because of them. Pure.

One that had not ended, whose order was answered without its id, or whose result no server took, has no age. It would be
left out of percentiles and counts without a word, and what held would hold of the others only.
"""

from __future__ import annotations

from collections.abc import Sequence

from simulator.fleet.metrics.ages import COMMAND_AGE, command_of
from simulator.fleet.metrics.stages import EndState
from simulator.fleet.metrics.subjects import Unit
from simulator.fleet.metrics.thresholds import Threshold
from simulator.fleet.outcomes import OutcomeClass
from simulator.fleet.record import CommandEnds, Operations


def count_unended(streams: Sequence[CommandEnds], operations: Operations, command: str | None = None) -> int:
    """How many of the commands that the run sent have no known age, the refused orders left aside.

    Args:
        streams: what became of the orders.
        operations: what was measured.
        command: only those of this name; None for all.
    """
    sent = sum(each.sent - each.refused for each in streams if command in {None, each.name})
    ended = sum(
        tallies[OutcomeClass.OK].count
        for operation, tallies in operations.items()
        if (found := command_of(operation)) is not None and command in {None, found[0]} and OutcomeClass.OK in tallies
    )
    return max(0, sent - ended)


def why_unjudged(threshold: Threshold, streams: Sequence[CommandEnds], operations: Operations) -> str:
    """Why a threshold that holds for what is known of commands may not hold for all; empty where it does.

    A lower bound of a count or a rate holds whatever else there was. How many were open when the run was over is known
    of those that the service gave an id.
    """
    subject = threshold.subject
    is_lower_bound = threshold.unit in {Unit.COUNT, Unit.RATE} and threshold.operator in {">", ">="}
    if COMMAND_AGE not in subject.names or is_lower_bound:
        return ""
    missing = count_unended(streams, operations, subject.command)
    if subject.states == {EndState.OPEN}:
        missing -= sum(
            tally.count
            for operation, tallies in operations.items()
            for outcome, tally in tallies.items()
            if subject.chooses(operation, outcome)
        )
    if missing <= 0:
        return ""
    whole = sum(each.sent - each.refused for each in streams if subject.command in {None, each.name})
    return f"of {whole:,} commands {missing:,} have no known end, so nobody knows how old they became"
