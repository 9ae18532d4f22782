"""Age of readings when they are accepted or given up, and of commands when they end.

A reading: from the moment it was taken until the answer that accepted it. Each counts, however many went together.
Whatever it waited for is in it: a connection that was refused, a back-off, a batch, the outbox, a restart of its
device. A reading that nobody accepted counts under the outcome of its last sending; one that still waits at the end of
the run is a ``timeout`` with what it has waited until then.

A command: from the instant at which the operator orders it until its end is known at the service: the result is
accepted, or its time to live is over. Each is measured once, by its name and its end state, under
``commands.age[NAME].STATE``; :func:`shown_ages` adds these up. One that had not ended is a ``timeout`` with what it has
waited until then.

Both are measured like operations, and are no exchanges by themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from simulator.fleet.metrics.merging import merge_operations
from simulator.fleet.metrics.recorder import Recorder
from simulator.fleet.outcomes import OutcomeClass
from simulator.fleet.record import CommandEnds, Operations

READING_AGE: Final = "readings.age"
COMMAND_AGE: Final = "commands.age"
AGE_OPERATIONS: Final = (READING_AGE, COMMAND_AGE)
_CELL: Final = f"{COMMAND_AGE}["


class Ages:
    """Receives the ages of readings; keeps nothing by itself. Times are on the machine's monotonic clock."""

    def accepted(self, taken_s: Iterable[float], now_s: float) -> None:
        """Readings that were taken at these times are accepted now."""

    def given_up(self, taken_s: Iterable[float], outcome: OutcomeClass, now_s: float) -> None:
        """Readings that were taken at these times will not be sent any more, and nobody accepted them."""

    def missed(self, count: int) -> None:
        """So many readings were never taken: their time went by while the generator stood still."""


class ReadingAges(Ages):
    """Records how old each reading was when it was accepted.

    Args:
        recorder: where they go.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def accepted(self, taken_s: Iterable[float], now_s: float) -> None:
        """Readings that were taken at these times are accepted now. See :class:`Ages`."""
        self.given_up(taken_s, OutcomeClass.OK, now_s)

    def given_up(self, taken_s: Iterable[float], outcome: OutcomeClass, now_s: float) -> None:
        """Readings that were taken at these times will not be sent any more, and nobody accepted them."""
        record = self._recorder.record
        for at_s in taken_s:
            # Nothing was sent by this alone: it has no part in the send lag.
            record(READING_AGE, outcome, intended_s=at_s, sent_s=None, now_s=now_s)

    def missed(self, count: int) -> None:
        """The plan asked for them all the same. See :class:`Ages`."""
        self._recorder.intended += count


def command_operation(name: str, state: str) -> str:
    """What commands of this name that ended in this state are measured under."""
    return f"{_CELL}{name}].{state}"


def command_of(operation: str) -> tuple[str, str] | None:
    """Name and end state of a :func:`command_operation`; None for any other operation."""
    if not operation.startswith(_CELL):
        return None
    name, _, state = operation.removeprefix(_CELL).rpartition("].")
    return name, state


def is_age(operation: str) -> bool:
    """Whether an operation is an age, as it is measured or as it is shown."""
    return operation.startswith(AGE_OPERATIONS)


def ages_of(operations: Operations) -> Operations:
    """What was measured of ages alone."""
    return {name: tallies for name, tallies in operations.items() if is_age(name)}


def shown_ages(operations: Operations) -> Operations:
    """Ages under the names that thresholds have for them.

    ``readings.age``, ``commands.age``, then that of each end state (``commands.age.failed``) and of each name of a
    command (``commands.age[ping]``), as far as there are any.
    """
    parts: dict[str, list[Operations]] = {READING_AGE: [], COMMAND_AGE: []}
    of_states: dict[str, list[Operations]] = {}
    of_names: dict[str, list[Operations]] = {}
    for operation, tallies in sorted(operations.items()):
        if operation == READING_AGE:
            parts[READING_AGE].append({READING_AGE: tallies})
        elif (found := command_of(operation)) is not None:
            name, state = f"{_CELL}{found[0]}]", f"{COMMAND_AGE}.{found[1]}"
            parts[COMMAND_AGE].append({COMMAND_AGE: tallies})
            of_states.setdefault(state, []).append({state: tallies})
            of_names.setdefault(name, []).append({name: tallies})
    whole = {**parts, **dict(sorted(of_states.items())), **dict(sorted(of_names.items()))}
    return {name: tallies for each in whole.values() for name, tallies in merge_operations(each).items()}


def with_shown_ages(operations: Operations) -> Operations:
    """Everything that was measured, ages as :func:`shown_ages` has them."""
    return {**{name: tallies for name, tallies in operations.items() if not is_age(name)}, **shown_ages(operations)}


def count_unended(streams: Sequence[CommandEnds], operations: Operations, command: str | None = None) -> int:
    """How many of the commands that the run sent have no known age, the refused orders left aside.

    One that had not ended, whose order was answered without its id, or whose result no server took: it would be left
    out of percentiles and counts without a word, and what held would hold of the others only.

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
