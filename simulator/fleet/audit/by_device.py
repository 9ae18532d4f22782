"""Figures of each device of a run, from the ledgers, in memory that does not grow with the run."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from agent.core.values import OutcomeStatus
from simulator.fleet.audit.folder import AuditedDevice, find_ledgers, read_devices
from simulator.fleet.audit.ledger_format import CommandEvent, CommandKind
from simulator.fleet.audit.reading_findings import NEVER, SEQUENCE_BITS, facts_of
from simulator.fleet.audit.sorting import RANGE_READINGS, DeviceRange, cut_ranges, sorted_ranges, survey_ledger

AGE_PERCENTILES: Final = (50.0, 90.0, 99.0, 100.0)


@dataclass(frozen=True, slots=True)
class DeviceFigures:
    """The audit's counts of one device.

    Attributes:
        sent: readings that left it at least once.
        accepted: answered with 2xx.
        refused: refused for good.
        unanswered: sent, and neither accepted nor refused in the end.
        resent: readings that were sent again.
        ages_s: :data:`AGE_PERCENTILES` of the ages of its accepted readings, from made to accepted, to the millisecond;
            each is that of a reading. NaN without any.
        commands: that came to it.
        succeeded: of these.
        reported: of these, with a result that the service has taken.
    """

    device: AuditedDevice
    sent: int = 0
    accepted: int = 0
    refused: int = 0
    unanswered: int = 0
    resent: int = 0
    ages_s: tuple[float, ...] = (math.nan,) * len(AGE_PERCENTILES)
    commands: int = 0
    succeeded: int = 0
    reported: int = 0


def device_figures(run: Path) -> Iterator[DeviceFigures]:
    """Every device of ``audit/devices.csv``, in the order of its ledgers; one that did nothing has zeros.

    Raises:
        ConfigurationError: the run has no ledgers or no list of devices, or they cannot be read.
        StorageError: the disk does not take what has to be sorted.
    """
    paths = find_ledgers(run)
    devices = {each.device: each for each in read_devices(run)}
    size = 1 + max(devices, default=0)
    weights = np.zeros(size, dtype=np.int64)
    for path in paths:
        found = survey_ledger(path).weights
        weights = np.pad(weights, (0, max(0, len(found) - len(weights))))
        weights[: len(found)] += found
    begun = 0
    ends = cut_ranges(weights, RANGE_READINGS)
    for part in sorted_ranges(paths, ends):
        figures = dict(_figures_of(part, devices))
        last = max(figures, default=begun - 1)
        for number in range(begun, last + 1):
            if number in devices:
                yield figures.get(number, DeviceFigures(devices[number]))
        begun = max(begun, last + 1)
    for number in range(begun, size):
        if number in devices:
            yield DeviceFigures(devices[number])


def _figures_of(part: DeviceRange, devices: dict[int, AuditedDevice]) -> Iterator[tuple[int, DeviceFigures]]:
    facts = facts_of(part.readings)
    numbers = facts.keys >> SEQUENCE_BITS
    events = _events_of(part.commands)
    accepted = facts.accepted_at < NEVER
    aged = accepted & facts.has_sent
    for number in sorted({*np.unique(numbers).tolist(), *(device for device, _ in events)} & devices.keys()):
        here = slice(*np.searchsorted(numbers, [number, number + 1]))
        is_sent, is_accepted, is_refused = facts.sends[here] > 0, accepted[here], facts.refused[here]
        ages_ms = (facts.accepted_at[here] - facts.made[here])[aged[here]]
        yield (
            number,
            DeviceFigures(
                devices[number],
                sent=int(is_sent.sum()),
                accepted=int(is_accepted.sum()),
                refused=int((is_refused & ~is_accepted).sum()),
                unanswered=int((is_sent & ~is_accepted & ~is_refused).sum()),
                resent=int((facts.sends[here] > 1).sum()),
                ages_s=_ages(ages_ms),
                commands=events[number, "received"],
                succeeded=events[number, "succeeded"],
                reported=events[number, "reported"],
            ),
        )


def _ages(ages_ms: npt.NDArray[np.int64]) -> tuple[float, ...]:
    if not len(ages_ms):
        return (math.nan,) * len(AGE_PERCENTILES)
    ordered = np.sort(ages_ms)
    places = [max(1, math.ceil(percent / 100 * len(ordered))) - 1 for percent in AGE_PERCENTILES]
    return tuple(float(ordered[place]) / 1000 for place in places)


def _events_of(commands: Sequence[CommandEvent]) -> Counter[tuple[int, str]]:
    """(device, what) -> how many commands: each counts once, however often it came."""
    seen: set[tuple[int, str, str]] = set()
    for event in commands:
        if event.kind is CommandKind.RECEIVED:
            seen.add((event.device, "received", event.command_id))
        elif event.kind is CommandKind.REPORTED:
            seen.add((event.device, "reported", event.command_id))
        elif event.kind is CommandKind.FINISHED and event.status is OutcomeStatus.SUCCEEDED:
            seen.add((event.device, "succeeded", event.command_id))
    return Counter((device, what) for device, what, _ in seen)
