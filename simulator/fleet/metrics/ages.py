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

The way of a command by stage is measured like any operation, too: ``commands.delivered`` and so on. Each stage is the
time since the one before it: ``sent`` from the planned instant to the service's answer, ``delivered`` until the device
has it, ``started``, ``finished``, ``reported`` until the service has the result. Percentiles of stages do not add up:
how long the whole way took is the command's age.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Final

from simulator.fleet.metrics.histogram import Histogram, merged
from simulator.fleet.metrics.recorder import Recorder, merge_operations
from simulator.fleet.outcomes import OutcomeClass
from simulator.fleet.record import CommandEnds, Operations

READING_AGE: Final = "readings.age"
COMMAND_AGE: Final = "commands.age"
AGE_OPERATIONS: Final = (READING_AGE, COMMAND_AGE)
_ONE_COMMAND: Final = f"{COMMAND_AGE}["


def command_of(operation: str) -> tuple[str, str] | None:
    """Name and end state of the commands whose ages these are; None for any other operation."""
    if not operation.startswith(_ONE_COMMAND):
        return None
    name, _, state = operation.removeprefix(_ONE_COMMAND).rpartition("].")
    return name, state


def is_age(operation: str) -> bool:
    """Whether an operation is an age, as it is measured or as it is shown."""
    return operation.startswith(AGE_OPERATIONS)


def shown_ages(operations: Operations) -> Operations:
    """``readings.age``, ``commands.age`` of all commands together, and of each name and end state, if there are any."""
    ages = {name: tallies for name, tallies in sorted(operations.items()) if is_age(name)}
    of_commands = [{COMMAND_AGE: tallies} for name, tallies in ages.items() if command_of(name)]
    readings = {READING_AGE: ages.pop(READING_AGE)} if READING_AGE in ages else {}
    return {**readings, **merge_operations(of_commands), **ages}


def requests_of(operations: Operations) -> Operations:
    """What was asked of the target, without what is derived from it: the stages of commands, and ages."""
    return {name: tallies for name, tallies in operations.items() if name not in STAGE_OPERATIONS and not is_age(name)}


def stages_of(operations: Operations) -> dict[str, Histogram]:
    """A command's way by stage, as far as there are any."""
    return {
        name.removeprefix(f"{FAMILY}."): merged(tally.response for tally in tallies.values())
        for name in STAGE_OPERATIONS
        if (tallies := operations.get(name))
    }


def count_unended(streams: Sequence[CommandEnds], operations: Operations, command: str | None = None) -> int:
    """How many of the commands that the run sent have no known age, the refused orders left aside.

    It had not ended, its order was answered without an id, or no server took its result. Percentiles and counts leave
    it out, so that a threshold that holds would hold for the others only.

    Args:
        streams: how the commands of each stream ended.
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


# --- the way of a command ---------------------------------------------------------------------------------------------

FAMILY: Final = "commands"


class Stage(IntEnum):
    """Where a command can be, in order."""

    PLANNED = 0
    SENT = 1
    DELIVERED = 2
    STARTED = 3
    FINISHED = 4
    REPORTED = 5


_DURATIONS: Final = {f"{FAMILY}.{stage.name.lower()}": (Stage(stage - 1), stage) for stage in list(Stage)[1:]}
"""Operations, and the stages that they are measured between."""
STAGE_OPERATIONS: Final = tuple(_DURATIONS)
_ENDED_KEPT: Final = 65_536
"""Commands that have ended and of which more may become known; of more than these the oldest is counted as it is."""


class EndState(StrEnum):
    """How a command ended, as its device and the operator saw it."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    REJECTED = "rejected"
    EXPIRED = "expired"
    """Its time to live ended before its device had it, or before the device could start it."""
    OPEN = "open"
    """It had not ended when the run was over."""


@dataclass(slots=True)
class _CommandTrace:
    """One command.

    Attributes:
        marks: when it reached which stage.
        stream: of the scenario's; None while its order has no answer.
        state: how it ended, as far as that is known.
        is_aged: its age is measured, which happens once.
    """

    marks: dict[Stage, float] = field(default_factory=dict)
    stream: int | None = None
    expires_s: float | None = None
    state: EndState = EndState.OPEN
    is_aged: bool = False

    @property
    def is_whole(self) -> bool:
        """Nothing more can become known of it, once it has ended."""
        came_or_ended = self.state is not EndState.EXPIRED or Stage.DELIVERED in self.marks
        return came_or_ended and {Stage.PLANNED, Stage.SENT} <= self.marks.keys()


class CommandTracker:
    """Follows each command from the plan to its end.

    Args:
        recorder: where durations go, each as soon as both of its ends are known.
        names: of the commands of each stream, in the scenario's order.

    Attributes:
        ends: how many commands of each stream are over, by how they ended; under None those that this run did not send.
    """

    def __init__(self, recorder: Recorder, names: Sequence[str]) -> None:
        self._recorder = recorder
        self._names = names
        self._traces: dict[str, _CommandTrace] = {}
        # Ended, and more may become known: the answer to its order is to come, or its device may have it after all.
        self._ended: dict[str, _CommandTrace] = {}
        self.ends: dict[int | None, Counter[EndState]] = defaultdict(Counter)

    def __len__(self) -> int:
        """Commands under way."""
        return len(self._traces)

    def ordered(self, command_id: str, stream: int, planned_s: float, expires_s: float | None) -> None:
        """The service took a command.

        Args:
            command_id: the service's.
            stream: number of the scenario's stream of commands.
            planned_s: when it was due by the plan, on the machine's monotonic clock.
            expires_s: from when on the service hands it out no more; None if that is not known.
        """
        trace = self._trace(command_id)
        trace.stream, trace.expires_s = stream, expires_s
        self.mark(command_id, Stage.PLANNED, planned_s)

    def mark(self, command_id: str, stage: Stage, at_s: float, state: EndState | None = None) -> None:
        """Note that a command reached a stage, in any order: a device may hold it before its sender has the answer.

        Args:
            command_id: the service's.
            stage: where it got. What is marked again, such as a command that is delivered twice, counts once. A
                command that its device refuses is never started.
            at_s: when, on the machine's monotonic clock.
            state: how it ended, with ``FINISHED``; the last one counts.
        """
        trace = self._trace(command_id)
        marks = trace.marks
        if state is not None:
            trace.state = state
        if stage not in marks:
            marks[stage] = at_s
            for operation, (begin, end) in _DURATIONS.items():
                if stage in (begin, end) and begin in marks and end in marks:
                    self._measure(trace, operation, OutcomeClass.OK, marks[begin], marks[end])
        if stage is Stage.REPORTED:
            self.end(command_id)
        elif command_id in self._ended:
            if stage is Stage.DELIVERED and trace.state is EndState.EXPIRED:
                trace.state = EndState.OPEN  # its device has it after all
                self._traces[command_id] = self._ended.pop(command_id)
            else:
                self.end(command_id)

    def end(self, command_id: str) -> None:
        """The command is under way no more; kept while the answer to its order, or its delivery, may still come."""
        trace = self._traces.pop(command_id, None) or self._ended.pop(command_id, None)
        if trace is None:
            return
        if trace.is_whole:
            self._finish(trace)
            return
        self._ended[command_id] = trace
        if len(self._ended) > _ENDED_KEPT:
            self._finish(self._ended.pop(next(iter(self._ended))))

    def count_unordered(self) -> int:
        """How many commands came to devices and ended, and are not known as orders of this run."""
        return self.ends[None].total() + sum(trace.stream is None for trace in self._ended.values())

    def expire(self, now_s: float) -> int:
        """End those that their devices did not get in time; how many."""
        late = [
            command_id
            for command_id, trace in self._traces.items()
            if trace.expires_s is not None and trace.expires_s <= now_s and Stage.DELIVERED not in trace.marks
        ]
        for command_id in late:
            trace = self._traces[command_id]
            trace.state = EndState.EXPIRED
            self._measure_age(trace, EndState.EXPIRED, trace.expires_s)
            self.end(command_id)
        return len(late)

    def close(self, now_s: float) -> None:
        """The run is over: what is under way is a timeout that waited until now, and everything that is left counts."""
        for trace in self._traces.values():
            self._measure_age(trace, EndState.OPEN, now_s)  # though its device may know how it ended
        for trace in (*self._traces.values(), *self._ended.values()):
            self._finish(trace)
        self._traces.clear()
        self._ended.clear()

    def _trace(self, command_id: str) -> _CommandTrace:
        found = self._traces.get(command_id) or self._ended.get(command_id)
        if found is None:
            found = self._traces[command_id] = _CommandTrace()
        return found

    def _finish(self, trace: _CommandTrace) -> None:
        self.ends[trace.stream][trace.state] += 1
        self._measure_age(trace, trace.state, trace.marks.get(Stage.REPORTED))

    def _measure_age(self, trace: _CommandTrace, state: EndState, ended_s: float | None) -> None:
        """Measure the age of a command whose end has reached the service; a command of another sender has none."""
        planned_s = trace.marks.get(Stage.PLANNED)
        if trace.is_aged or trace.stream is None or planned_s is None or ended_s is None:
            return
        trace.is_aged = True
        outcome = OutcomeClass.TIMEOUT if state is EndState.OPEN else OutcomeClass.OK
        operation = f"{_ONE_COMMAND}{self._names[trace.stream]}].{state}"
        self._measure(trace, operation, outcome, planned_s, ended_s)

    def _measure(
        self, trace: _CommandTrace, operation: str, outcome: OutcomeClass, begun_s: float, ended_s: float
    ) -> None:
        # Nothing was sent by this alone: it has no part in the send lag. A command belongs to the phase that planned
        # it, however far it came in there.
        due_s, now_s = trace.marks.get(Stage.PLANNED), max(ended_s, begun_s)
        self._recorder.record(operation, outcome, intended_s=begun_s, sent_s=None, now_s=now_s, due_s=due_s)
