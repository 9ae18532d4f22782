"""The way of a command by stage, measured like any operation: ``commands.delivered`` and so on.

Each stage is the time since the one before it: ``sent`` from the planned instant to the service's answer, ``delivered``
until the device has it, ``started``, ``finished``, ``reported`` until the service has the result. Percentiles of stages
do not add up, so the whole way is measured as well: ``commands.round_trip``, from the planned instant to the report.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Final

from simulator.fleet.metrics.ages import AGE_OPERATIONS
from simulator.fleet.metrics.histogram import merged
from simulator.fleet.metrics.recorder import Recorder
from simulator.fleet.outcomes import OutcomeClass
from simulator.fleet.record import Operations

FAMILY: Final = "commands"
ROUND_TRIP: Final = "round_trip"


class Stage(IntEnum):
    """Where a command can be, in order."""

    PLANNED = 0
    SENT = 1
    DELIVERED = 2
    STARTED = 3
    FINISHED = 4
    REPORTED = 5

    @property
    def operation(self) -> str:
        """The name that its duration is measured under."""
        return f"{FAMILY}.{self.name.lower()}"


_MEASURED: Final = tuple(stage for stage in Stage if stage is not Stage.PLANNED)
_ROUND_TRIP_OPERATION: Final = f"{FAMILY}.{ROUND_TRIP}"
STAGE_OPERATIONS: Final = (*(stage.operation for stage in _MEASURED), _ROUND_TRIP_OPERATION)
_DERIVED: Final = frozenset((*STAGE_OPERATIONS, *AGE_OPERATIONS))


class CommandWays:
    """Commands under way, from the plan to the report; what is known of one goes away with its report.

    Args:
        recorder: where durations go, each as soon as both of its ends are known.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._ways: dict[str, list[float | None]] = {}

    def __len__(self) -> int:
        """Commands under way."""
        return len(self._ways)

    def mark(self, command_id: str, stage: Stage, at_s: float) -> None:
        """A command got somewhere, in any order: a device may hold it before the one who sent it has the answer.

        Args:
            command_id: the service's.
            stage: where it got. What is marked again, such as a command that is delivered twice, counts once.
            at_s: when, on the machine's monotonic clock.
        """
        way = self._ways.setdefault(command_id, [None] * len(Stage))
        if way[stage] is not None:
            return
        way[stage] = at_s
        for later in _MEASURED:
            if stage in (later, later - 1):
                self._measure(later.operation, way[later - 1], way[later], way[Stage.PLANNED])
        if stage in (Stage.PLANNED, Stage.REPORTED):
            self._measure(_ROUND_TRIP_OPERATION, way[Stage.PLANNED], way[Stage.REPORTED], way[Stage.PLANNED])
        if None not in way:
            del self._ways[command_id]

    def end(self, command_id: str) -> None:
        """Nothing more comes of this command: what is known of it is forgotten, and its round trip is not measured."""
        self._ways.pop(command_id, None)

    def give_up(self, now_s: float, after_s: float) -> int:
        """Count those that are under way for longer as timeouts, so that they are in the percentiles of the round trip.

        Returns:
            How many. What was reported without a stage between, or never planned here, is forgotten without a count.
        """
        begun = {command_id: min(at_s for at_s in way if at_s is not None) for command_id, way in self._ways.items()}
        given_up = 0
        for command_id in [command_id for command_id, begun_s in begun.items() if now_s - begun_s >= after_s]:
            way = self._ways.pop(command_id)
            planned_s = way[Stage.PLANNED]
            if planned_s is not None and way[Stage.REPORTED] is None:
                given_up += 1
                self._note(_ROUND_TRIP_OPERATION, OutcomeClass.TIMEOUT, planned_s, now_s, planned_s)
        return given_up

    def _measure(self, operation: str, begun_s: float | None, ended_s: float | None, planned_s: float | None) -> None:
        if begun_s is not None and ended_s is not None:
            self._note(operation, OutcomeClass.OK, begun_s, max(ended_s, begun_s), planned_s)

    def _note(
        self, operation: str, outcome: OutcomeClass, begun_s: float, ended_s: float, planned_s: float | None
    ) -> None:
        # Nothing was sent by this alone: it has no part in the send lag. A command belongs to the phase that planned
        # it, however far it came in there.
        self._recorder.record(operation, outcome, intended_s=begun_s, sent_s=None, now_s=ended_s, due_s=planned_s)


def stages_of(operations: Operations) -> Mapping[str, str]:
    """The encoded histograms of a command's way, by stage and for the round trip, as far as there are any.

    Commands that never came back have waited, too: the round trip counts them with what they waited.
    """
    found = {}
    for name in STAGE_OPERATIONS:
        tallies = operations.get(name, {})
        texts = [tallies[outcome].response for outcome in (OutcomeClass.OK, OutcomeClass.TIMEOUT) if outcome in tallies]
        if texts:
            found[name.removeprefix(f"{FAMILY}.")] = merged(texts).encode()
    return found


def without_stages(operations: Operations) -> Operations:
    """What was asked of the target, without what is derived of it: the stages of commands, and ages."""
    return {name: tallies for name, tallies in operations.items() if name not in _DERIVED}
