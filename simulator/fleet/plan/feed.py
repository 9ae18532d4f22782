"""The events of a range of devices as a worker plays them: each once, in the order of time, phase after phase.

A run goes forward only, and does not know when the phases behind a barrier begin. So everything a phase does is made
before the run, in seconds since the phase's begin, and opening a barrier is nothing but that begin. How many causes
keep a device off is counted for each device, and causes are taken up as their time comes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np

from simulator.fleet.plan.events import EventKind, EventTable
from simulator.fleet.plan.hashed_random import Floats, Indices
from simulator.fleet.plan.plan import Plan
from simulator.fleet.plan.power import (
    Causes,
    add_up,
    phase_power,
    phase_storms,
    ramp_places,
)
from simulator.fleet.plan.streams import StreamPlan, streams_of
from simulator.fleet.plan.timeline import PhaseSpan

_FED: Final = frozenset({EventKind.COMMAND, EventKind.ARRIVAL})


@dataclass(slots=True)
class _Track:
    """The causes to be off that one phase brings, or the devices themselves, in the order of time.

    Attributes:
        phase: that brings them; None for the devices' own.
        time_s: since the phase's begin, or the run's.
        taken: so many rows have been taken.
    """

    phase: int | None
    device: Indices
    time_s: Floats
    change: Indices
    taken: int = 0

    @classmethod
    def of(cls, phase: int | None, causes: Iterable[Causes]) -> _Track:
        parts = list(causes)
        if not parts:
            return cls(phase, np.empty(0, np.int64), np.empty(0), np.empty(0, np.int64))
        device, time_s, change = (np.concatenate(column) for column in zip(*parts, strict=True))
        order = np.argsort(time_s, kind="stable")
        return cls(phase, device[order], time_s[order], change[order])

    def take(self, begin_s: float, to_s: float) -> Causes:
        """The next rows, until before ``to_s``; seconds since the run's begin."""
        end = max(int(np.searchsorted(self.time_s, to_s - begin_s, side="left")), self.taken)
        rows, self.taken = slice(self.taken, end), end
        return self.device[rows], self.time_s[rows] + begin_s, self.change[rows]


class _Switches:
    """Switching of a range of devices: power, or connections.

    Args:
        tracks: what takes it away and gives it back.
        held: how many causes to be off each device has before the run.
        on, off: the events.
    """

    def __init__(self, tracks: list[_Track], held: Indices, on: EventKind, off: EventKind) -> None:
        self._tracks = [track for track in tracks if len(track.time_s)]
        self._held = held
        self._kinds = on, off

    def take(self, spans: tuple[PhaseSpan, ...], last_phase: int, to_s: float, first_device: int) -> list[EventTable]:
        """The switches until before ``to_s`` that have not been taken; nothing of phases after ``last_phase``."""
        causes = [
            track.take(0.0 if track.phase is None else spans[track.phase].begin_s, to_s)
            for track in self._tracks
            if track.phase is None or track.phase <= last_phase
        ]
        device, time_s, is_on = add_up(causes, self._held)
        on, off = self._kinds
        device = device + first_device
        return [EventTable.of(on, time_s[is_on], device[is_on]), EventTable.of(off, time_s[~is_on], device[~is_on])]


class EventFeed:
    """Switches, commands and open arrivals of some devices. What it needs is made at once, before the run.

    Args:
        plan: of the run.
        devices: the range.

    Attributes:
        planned: the phases without waits at barriers.
        timeline: the phases with the waits that there were until now.
        phase: the one that was entered last.
    """

    def __init__(self, plan: Plan, devices: range) -> None:
        scenario, spans = plan.scenario, plan.timeline.spans
        self.planned = self.timeline = plan.timeline
        self.phase = 0
        self._devices = devices
        self._longest_s = plan.longest_s
        places = ramp_places(scenario, devices)
        power = [_Track.of(span.index, phase_power(scenario, span, devices, places)) for span in spans]
        storms = [
            _Track.of(
                span.index,
                (change for each in phase_storms(scenario, span, devices, "connection") for change in each.changes()),
            )
            for span in spans
        ]
        none, one = np.zeros(len(devices), np.int64), np.ones(len(devices), np.int64)
        self._power = _Switches(power, one, EventKind.SWITCH_ON, EventKind.SWITCH_OFF)
        self._contact = _Switches(storms, none, EventKind.RECONNECT, EventKind.DISCONNECT)
        waiting = self.timeline.waiting(0, self._longest_s)
        self._streams = [StreamPlan(each, scenario, waiting) for each in streams_of(scenario) if each.kind in _FED]
        self._fed_s = 0.0  # commands and arrivals before are given

    def enter(self, phase: int, begin_s: float) -> bool:
        """This phase began: where the one before it waited at its barrier, the phases move.

        Args:
            phase: its place in the scenario.
            begin_s: since the run's begin.

        Returns:
            Whether what was behind a barrier has its time only now.
        """
        self.phase = phase
        if phase == 0 or not self.timeline.spans[phase - 1].waits:
            return False  # it begins when it was planned to, and everything of it has its time
        self.timeline = self.timeline.entered(phase, begin_s)
        waiting = self.timeline.waiting(phase, self._longest_s)
        for each in self._streams:
            each.move(waiting)
        self._fed_s = min(self._fed_s, begin_s)
        return True

    def moved(self, planned_s: float) -> float | None:
        """When that happens which was planned for ``planned_s``; None while a barrier before it may still wait."""
        return self.timeline.moved(planned_s, self.planned, self.phase)

    def take(self, to_s: float, now_s: float) -> EventTable:
        """The events until before ``to_s`` that were not taken yet; while a barrier waits, those until now.

        What is late since a barrier opened only now is among them. Both times are seconds since the run's begin.
        """
        spans, last = self.timeline.spans, self.timeline.barrier_from(self.phase)
        barrier = spans[last]
        to_s = min(to_s, max(barrier.begin_s + barrier.duration_s, now_s) if barrier.waits else self.timeline.end_s)
        parts = self._power.take(spans, last, to_s, self._devices.start)
        parts += self._contact.take(spans, last, to_s, self._devices.start)
        if to_s > self._fed_s:
            parts += [each.between(self._devices, self._fed_s, to_s) for each in self._streams]
            self._fed_s = to_s
        return EventTable.joined(parts)
