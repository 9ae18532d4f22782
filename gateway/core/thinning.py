"""Chooses which waiting readings to send when each needs a request and the quota is too short for all.

Handled here: whether it is short, by how long the oldest one has waited; joining the readings of a device into one
record, or leaving some of them out; counting exactly what was joined and left out.

Never handled here: storing, deleting, sending; a service with the extension ``batch-sensor-data``, which takes 500
readings for one request and needs none of this.

Therefore the caller must hand over the waiting readings of *one* device, oldest first, and delete the rows of a record
(``Record.keys``) and of what was left out (``ThinningResult.left_out``) only together with the service's 2xx for the
record.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

BATCH_MAX: Final = 500
"""So many readings does one request carry where the service offers ``batch-sensor-data``."""


class ThinningMode(StrEnum):
    """What to do with readings when the quota is short."""

    KEEP_ALL = "keep-all"
    """Nothing: they come late, and every one of them comes."""
    MERGE = "merge"
    """The readings of a device within a window become one record."""
    THIN = "thin"
    """Only some are sent: the first, the last, every n-th, and each that differs from the one sent before it."""


class MergeBy(StrEnum):
    """How values of the same name become one."""

    LAST = "last"
    MEAN = "mean"


@dataclass(frozen=True, slots=True)
class ThinningPolicy:
    """How readings are thinned, for all devices.

    Attributes:
        mode: what to do.
        short_after_s: the quota counts as short when a reading has waited for this long.
        window_s: for ``merge``: readings that lie closer together than this become one record; more than this where
            the quota does not even allow one record of each device in it.
        merge_by: for ``merge``: the last value of each name, or the mean.
        every: for ``thin``: one of so many is sent whatever it says.
        deadband: for ``thin``: a value that differs by more than this from the one sent before it is a change.
    """

    mode: ThinningMode = ThinningMode.MERGE
    short_after_s: float = 60.0
    window_s: float = 300.0
    merge_by: MergeBy = MergeBy.LAST
    every: int = 10
    deadband: float = 0.0

    def is_short(self, oldest_waits_s: float) -> bool:
        """Whether readings are joined or left out now."""
        return self.mode is not ThinningMode.KEEP_ALL and oldest_waits_s >= self.short_after_s

    def for_fleet(self, devices: int, pace_per_s: float | None) -> ThinningPolicy:
        """The policy with a window in which every device can send one record, so that the backlog stays bounded.

        Args:
            devices: how many of them have readings waiting.
            pace_per_s: requests with readings per second (:meth:`gateway.core.budget.Budget.pace_per_s`).
        """
        if not pace_per_s or devices / pace_per_s <= self.window_s:
            return self
        return replace(self, window_s=devices / pace_per_s)


@dataclass(frozen=True, slots=True)
class Waiting:
    """A reading in the gateway's store.

    Attributes:
        key: its row.
        values: reading name -> finite number.
        at_s: when it was read, epoch seconds.
    """

    key: int
    values: dict[str, float]
    at_s: float


@dataclass(frozen=True, slots=True)
class Record:
    """What one request carries.

    Attributes:
        keys: the rows that it stands for, oldest first, at least one.
        values: what is sent as ``sensor_data``.
        at_s: when the last of them was read, epoch seconds.
    """

    keys: tuple[int, ...]
    values: dict[str, float]
    at_s: float


@dataclass(frozen=True, slots=True)
class ThinningResult:
    """What becomes of a device's waiting readings: every row is in exactly one record or left out.

    Attributes:
        records: to be sent, oldest first.
        left_out: rows that are not sent.
    """

    records: tuple[Record, ...]
    left_out: tuple[int, ...] = ()

    @property
    def merged(self) -> int:
        """How many readings did not become a record of their own because they were joined with another."""
        return sum(len(record.keys) - 1 for record in self.records)


def thin(waiting: Sequence[Waiting], policy: ThinningPolicy) -> ThinningResult:
    """What to send of a device's waiting readings under a short quota.

    Args:
        waiting: readings of one device, oldest first.
        policy: ``readings.when_short`` of the configuration.
    """
    match policy.mode:
        case ThinningMode.KEEP_ALL:
            return ThinningResult(tuple(_single(each) for each in waiting))
        case ThinningMode.MERGE:
            return ThinningResult(tuple(_merge(group, policy.merge_by) for group in _windows(waiting, policy.window_s)))
        case ThinningMode.THIN:
            return _leave_out(waiting, policy)


def _single(reading: Waiting) -> Record:
    return Record((reading.key,), dict(reading.values), reading.at_s)


def _windows(waiting: Sequence[Waiting], window_s: float) -> Iterator[list[Waiting]]:
    """Groups that span less than the window; a clock that was set between two readings parts them too."""
    group: list[Waiting] = []
    for reading in waiting:
        if group and not 0 <= reading.at_s - group[0].at_s < window_s:
            yield group
            group = []
        group.append(reading)
    if group:
        yield group


def _merge(group: Sequence[Waiting], merge_by: MergeBy) -> Record:
    if len(group) == 1:
        return _single(group[0])
    collected: dict[str, list[float]] = {}
    for reading in group:
        for name, value in reading.values.items():
            collected.setdefault(name, []).append(value)
    values = {name: _mean(each) if merge_by is MergeBy.MEAN else each[-1] for name, each in collected.items()}
    return Record(tuple(reading.key for reading in group), values, group[-1].at_s)


def _mean(values: Sequence[float]) -> float:
    # Each divided first: the sum of finite numbers may not be finite.
    return math.fsum(value / len(values) for value in values)


def _leave_out(waiting: Sequence[Waiting], policy: ThinningPolicy) -> ThinningResult:
    kept: list[Waiting] = []
    left_out: list[int] = []
    since = 0
    for index, reading in enumerate(waiting):
        since += 1
        is_edge = index in (0, len(waiting) - 1)
        if is_edge or since >= policy.every or _differs(kept[-1].values, reading.values, policy.deadband):
            kept.append(reading)
            since = 0
        else:
            left_out.append(reading.key)
    return ThinningResult(tuple(_single(each) for each in kept), tuple(left_out))


def _differs(sent: dict[str, float], values: dict[str, float], deadband: float) -> bool:
    return sent.keys() != values.keys() or any(abs(values[name] - sent[name]) > deadband for name in values)
