"""What a live view shows beside the seconds: what the run is, and its state. Values only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from simulator.fleet.record import Span, WorkerGap
from simulator.fleet.report.formatting import plural


@dataclass(frozen=True, slots=True)
class RunHead:
    """What is known before the first second.

    Attributes:
        level: ``core`` or ``wire``.
        phases: as planned; seconds since the run's begin.
        faults: as planned.
        duration_s: of all phases together, as planned.
        noun: what ``devices`` counts; empty where there are none.
    """

    name: str
    level: str
    transport: str
    target: str
    devices: int
    workers: int
    phases: tuple[Span, ...] = ()
    faults: tuple[Span, ...] = ()
    duration_s: float = 0.0
    noun: str = "device"

    @property
    def parts(self) -> tuple[str, ...]:
        """What the run is made of, in a few words each."""
        whose = (plural(self.devices, self.noun),) if self.noun else ()
        return (*whose, self.transport, self.level)


class WorkerState(StrEnum):
    """What a worker is doing."""

    STARTING = "starting"
    RUNNING = "running"
    DRAINING = "draining"
    DONE = "done"
    DEAD = "dead"


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """One worker process.

    Attributes:
        devices: in its index range.
        cpu_percent: of one core.
    """

    number: int
    state: WorkerState
    devices: int = 0
    cpu_percent: float = 0.0


@dataclass(frozen=True, slots=True)
class StreamSoFar:
    """Readings or commands, by the devices' own ledgers; the service is read back only at the end.

    Attributes:
        sent: readings that left a device at least once; commands that were ordered.
        accepted: readings that were answered with 2xx; commands whose result was.
        unanswered: readings that were sent, and nobody knows what became of them; commands that are on their way.
    """

    sent: int = 0
    accepted: int = 0
    unanswered: int = 0


@dataclass(frozen=True, slots=True)
class RunStatus:
    """How the run stands at the end of a second.

    Attributes:
        phase: name of the phase under way, and where it began and will end (a barrier may move the end); None before
            the first and after the last.
        waiting_for: the condition that the phase waits for, such as ``online >= 99%``; empty when it waits for none.
        faults: those that are under way.
        audit: ``readings`` and ``commands`` to how they stand.
        gaps: seconds that workers did not report so far; one that still grows is in here with its end so far.
    """

    phase: Span | None = None
    waiting_for: str = ""
    faults: tuple[Span, ...] = ()
    workers: tuple[WorkerStatus, ...] = ()
    audit: Mapping[str, StreamSoFar] = field(default_factory=dict)
    gaps: tuple[WorkerGap, ...] = ()


def phase_under_way(phases: Sequence[Span], second: int) -> Span | None:
    """The phase that a second ended in: where two share it, the later one; None before the first.

    Args:
        phases: in order.
        second: since the run's begin.
    """
    begun = [phase for phase in phases if phase.begin_s < second + 1]
    return begun[-1] if begun else None


def spans_under_way(spans: Sequence[Span], second: int) -> tuple[Span, ...]:
    """The faults that had begun and not ended when a second began."""
    return tuple(span for span in spans if span.begin_s <= second < span.end_s)
