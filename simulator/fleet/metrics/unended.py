"""Commands whose end nobody knows, and the thresholds that cannot be judged for them. Pure.

One that had not ended, whose order was answered without its id, or whose result no server took, has no age. It would be
left out of percentiles and shares without a word, and those who held would hold of the others only.
"""

from __future__ import annotations

from collections.abc import Sequence

from simulator.fleet.metrics.ages import COMMAND_AGE, command_of
from simulator.fleet.metrics.stages import EndState
from simulator.fleet.metrics.subjects import Subject, Unit
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


def why_unjudged(subject: Subject, unit: Unit, streams: Sequence[CommandEnds], operations: Operations) -> str:
    """Why a threshold that holds for what is known of commands holds for nobody; empty where it can be judged.

    Times of all end states together, and shares, need every end. Times of one end state are of those that had it.
    """
    if COMMAND_AGE not in subject.names or subject.states == {EndState.OPEN}:
        return ""
    if unit is not Unit.SHARE and (unit is not Unit.TIME or subject.states):
        return ""
    missing = count_unended(streams, operations, subject.command)
    if not missing:
        return ""
    whole = sum(each.sent - each.refused for each in streams if subject.command in {None, each.name})
    return f"of {whole:,} commands {missing:,} have no known end, so nobody knows how old they became"
