"""The audit of one device's readings, all in memory: for the demo and for tests, where every reading is looked at.

Facts in, findings out, by the judgement of :mod:`simulator.fleet.audit.reading_findings`. A *fact* is one reading under
a key that is unique for its device, such as the millisecond it was recorded at or a sequence number.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from simulator.fleet.audit.digest import digest_values
from simulator.fleet.audit.findings import Findings
from simulator.fleet.audit.ledger_format import NO_TIME, ReadingKind
from simulator.fleet.audit.reading_findings import ReadingRules, judge_readings
from simulator.fleet.audit.records import READING_TYPE, STORED_TYPE, Records

_DEVICE: Final = 0
_ONE_DEVICE: Final = np.ones(1, dtype=np.bool_)
_RULES: Final = ReadingRules(by_sequence=True, replays=True, late_after_ms=0, read=_ONE_DEVICE, whole=_ONE_DEVICE)


@dataclass(frozen=True, slots=True)
class ReadingFact:
    """One reading: its key and its values.

    Attributes:
        key: unique among the device's readings.
        values: its named numbers.
    """

    key: int
    values: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class DeviceReadings:
    """Both sides of one device.

    Attributes:
        device: its name for a person.
        accepted: what the service answered with 2xx, or what was durably taken in before it was sent.
        stored: what the service gives back.
        unsure: keys that may be stored or not: sent without an answer, or taken in while the power went.
        waiting: keys that were still on their way when all was read back: neither stored nor lost.
        refused: how many the service refused for good.
        unanswered: how many were sent, got no good answer, and are not stored.
        misdated: how many are stored with another time than that at which they were made.
    """

    device: str
    accepted: tuple[ReadingFact, ...]
    stored: tuple[ReadingFact, ...]
    unsure: frozenset[int] = frozenset()
    waiting: frozenset[int] = frozenset()
    refused: int = 0
    unanswered: int = 0
    misdated: int = 0


@dataclass(frozen=True, slots=True)
class ReadingFindings:
    """What is wrong with one device's readings, by key; all empty when nothing is.

    Attributes:
        accepted: how many; of the unsure and the waiting ones those that are stored.
        stored: how many.
        lost: accepted and not stored.
        doubled: stored more than once.
        altered: stored once, with other values than were accepted.
        unknown: stored and never sent.
    """

    device: str
    accepted: int
    stored: int
    lost: tuple[int, ...] = ()
    doubled: tuple[int, ...] = ()
    altered: tuple[int, ...] = ()
    unknown: tuple[int, ...] = ()

    @property
    def clean(self) -> bool:
        """Whether every accepted reading is stored once as it was, and nothing else is."""
        return not (self.lost or self.doubled or self.altered or self.unknown)

    def sentences(self) -> tuple[str, ...]:
        """One sentence for each kind of finding."""
        kinds = {"lost": self.lost, "doubled": self.doubled, "altered": self.altered, "unknown": self.unknown}
        return tuple(f"{self.device}: {len(keys)} {kind} ({_some(keys)})" for kind, keys in kinds.items() if keys)


def audit_readings(readings: DeviceReadings) -> ReadingFindings:
    """Compare both sides of one device."""
    readings = replace(readings, unsure=readings.unsure | readings.waiting)
    keys = sorted({fact.key for fact in (*readings.accepted, *readings.stored)} | readings.unsure)
    sequences = {key: number for number, key in enumerate(keys, start=1)}
    found = Findings(keys_kept=len(keys))
    judge_readings(_records(readings, sequences), _stored(readings, sequences), _RULES, found)

    def named(kind: str) -> tuple[int, ...]:
        return tuple(sorted({keys[int(sequence) - 1] for sequence in found.keys.get((kind, _DEVICE), ())}))

    absent = readings.unsure - {fact.key for fact in readings.stored}
    return ReadingFindings(
        device=readings.device,
        accepted=sum(fact.key not in absent for fact in readings.accepted),
        stored=len(readings.stored),
        lost=named("lost"),
        doubled=named("doubled"),
        altered=named("altered"),
        unknown=named("unknown"),
    )


def _records(readings: DeviceReadings, sequences: Mapping[int, int]) -> Records:
    """What a ledger would have. An unsure reading was left without an answer."""
    rows: list[tuple[int, int, int, int, int, int, int, int, int]] = []

    def add(kind: ReadingKind, key: int, digest: int = 0) -> None:
        rows.append((kind, 0, 1, _DEVICE, sequences[key], digest, 0, 0, NO_TIME))

    for fact in readings.accepted:
        add(ReadingKind.SENT, fact.key, digest_values(fact.values))
        if fact.key not in readings.unsure:
            add(ReadingKind.ACCEPTED, fact.key)
    for key in readings.unsure:
        add(ReadingKind.UNANSWERED, key)
    return np.array(rows, dtype=READING_TYPE)


def _stored(readings: DeviceReadings, sequences: Mapping[int, int]) -> Records:
    rows = [
        (_DEVICE, sequences[fact.key], digest_values(fact.values), place, NO_TIME, NO_TIME)
        for place, fact in enumerate(readings.stored)
    ]
    return np.array(rows, dtype=STORED_TYPE)


def _some(keys: tuple[int, ...], shown: int = 3) -> str:
    text = ", ".join(map(str, keys[:shown]))
    return f"{text}, ..." if len(keys) > shown else text
