"""What one device of a small fleet wrote down, held against what the service has: every reading is looked at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from simulator.fleet.audit.ledger import digest_values
from simulator.fleet.runner import DeviceLedger


@dataclass(frozen=True, slots=True)
class ReadingFact:
    """A reading that is stored: under which key, such as its millisecond, and what it says."""

    key: int
    values: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class ReadingFindings:
    """How many are accepted and stored, and the keys of what is wrong by kind."""

    accepted: int
    stored: int
    wrong: Mapping[str, list[int]]

    @property
    def clean(self) -> bool:
        return not any(self.wrong.values())


def audit_readings(ledger: DeviceLedger, stored: Iterable[ReadingFact]) -> ReadingFindings:
    """Accepted is there once and as it was; whatever else is there was sent, and is not refused."""
    stored = tuple(stored)
    sent = dict(ledger.facts.values())
    accepted = {ledger.facts[number][0] for number in ledger.accepted_numbers}
    refused = {ledger.facts[number][0] for number in ledger.refused_numbers} - accepted
    copies = Counter(fact.key for fact in stored)
    altered = {fact.key for fact in stored if sent.get(fact.key) not in {None, digest_values(fact.values)}}
    wrong = {
        "lost": sorted(accepted - copies.keys()),
        "doubled": sorted(key for key, count in copies.items() if count > 1),
        "altered": sorted(altered),
        "unknown": sorted(copies.keys() - sent.keys() | copies.keys() & refused),
    }
    return ReadingFindings(len(accepted), len(stored), wrong)
