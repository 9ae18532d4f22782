"""The digest of a plan: one number for all its events, the same however the devices are dealt out to workers.

Each event is hashed for itself and the hashes are added up, so neither order nor grouping matters. Of a phase that is
longer than two minutes only the first and the last one are in it: the rest goes by the same rules.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np

from simulator.fleet.plan.events import EventTable
from simulator.fleet.plan.hashed_random import mix, stream
from simulator.fleet.plan.plan import Plan
from simulator.fleet.plan.shares import deal

_LONG_S: Final = 120.0
_EVENTS_AT_ONCE: Final = 500_000
_MICROSECONDS: Final = 1_000_000
_MASK: Final = (1 << 64) - 1
_LANES: Final = (stream(0, "digest/low"), stream(0, "digest/high"))

PartialDigest = tuple[int, int]
"""Of some devices: add those of all devices up with :func:`whole`."""


def digest_of(plan: Plan, workers: int = 1) -> str:
    """The digest of the whole plan, worked out as so many workers would.

    Returns:
        32 hexadecimal digits; they also depend on what the events mean (payloads, models).
    """
    count = plan.scenario.fleet.devices
    return whole(plan, (partial_digest(plan, devices) for devices in deal(count, workers)))


def partial_digest(plan: Plan, devices: range) -> PartialDigest:
    """What some devices add to the digest."""
    low = high = 0
    if len(devices):
        for from_s, to_s in _stretches(plan, len(devices)):
            table = plan.table(devices, from_s, to_s)
            low, high = (total + _sum(lane, table) & _MASK for lane, total in zip(_LANES, (low, high), strict=True))
    return low, high


def whole(plan: Plan, partials: Iterable[PartialDigest]) -> str:
    """The digest out of those of all devices, each of them in exactly one partial."""
    totals = [0, 0]
    for partial in partials:
        totals = [total + part & _MASK for total, part in zip(totals, partial, strict=True)]
    said = plan.scenario.model_dump_json(exclude={"description", "workers", "target", "thresholds"})
    meaning = hashlib.blake2b(said.encode(), digest_size=16)
    meaning.update(totals[0].to_bytes(8) + totals[1].to_bytes(8))
    return meaning.hexdigest()


def _sum(lane: int, table: EventTable) -> int:
    time_us = np.round(table.time_s * _MICROSECONDS).astype(np.int64)
    words = mix(lane, table.device, table.kind.astype(np.int64), table.number, table.serial, time_us)
    return int(np.sum(words, dtype=np.uint64))


def _stretches(plan: Plan, devices: int) -> Iterator[tuple[float, float]]:
    """Stretches of time that cover what the digest covers, each with a bounded number of events."""
    step_s = max(_EVENTS_AT_ONCE / max(_events_per_s(plan) * devices, 1e-9), 0.1)
    for begin_s, end_s in _covered(plan):
        count = max(int(np.ceil((end_s - begin_s) / step_s)), 1)
        bounds = [begin_s + (end_s - begin_s) * number / count for number in range(count)]
        yield from zip(bounds, [*bounds[1:], end_s], strict=True)


def _covered(plan: Plan) -> Iterator[tuple[float, float]]:
    spans = [(span.begin_s, span.end_s) for span in plan.timeline.spans]
    if plan.begin_s < 0:
        spans.insert(0, (plan.begin_s, 0.0))
    for begin_s, end_s in spans:
        if end_s - begin_s <= _LONG_S:
            yield begin_s, end_s
        else:
            yield begin_s, begin_s + _LONG_S / 2
            yield end_s - _LONG_S / 2, end_s


def _events_per_s(plan: Plan) -> float:
    """Of one device, about: what its schedules and its part of the streams bring."""
    models = plan.scenario.fleet.models
    own = max(1 / model.telemetry.every_s + 1 / min(model.poll.every_s, model.poll.wait_s) for model in models)
    rates = [command.rate_per_s for command in plan.scenario.commands]
    rates += [getattr(arrivals, "rate_per_s", 0.0) for arrivals in plan.scenario.arrivals]
    factor = max(span.rate_factor for span in plan.timeline.spans)
    return own + sum(rates) * factor / plan.scenario.fleet.devices
