"""The audit of readings: what a device's ledger says was accepted, against what the service gives back.

Pure: facts in, findings out. A *fact* is one reading under a key that is unique for its device, such as the
millisecond it was recorded at or a sequence number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ReadingFact:
    """One reading as one side knows it.

    Attributes:
        key: unique among the device's readings.
        values: its named numbers.
    """

    key: int
    values: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class ReadingAccount:
    """Both sides of one device.

    Attributes:
        device: its name for a person.
        accepted: what the service answered with 2xx, or what was durably taken in before it was sent.
        stored: what the service gives back.
        unsure: keys that may be stored or not: sent without an answer, or taken in while the power went.
    """

    device: str
    accepted: tuple[ReadingFact, ...]
    stored: tuple[ReadingFact, ...]
    unsure: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class ReadingFindings:
    """What is wrong with one device's readings, by key; all empty when nothing is.

    Attributes:
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


def audit_readings(account: ReadingAccount) -> ReadingFindings:
    """Compare both sides of one device."""
    accepted = {fact.key: fact.values for fact in account.accepted}
    times = Counter(fact.key for fact in account.stored)
    altered = {
        fact.key for fact in account.stored if fact.key in accepted and dict(fact.values) != dict(accepted[fact.key])
    }
    return ReadingFindings(
        device=account.device,
        accepted=len(account.accepted),
        stored=len(account.stored),
        lost=_sorted(key for key in accepted if key not in times and key not in account.unsure),
        doubled=_sorted(key for key, count in times.items() if count > 1),
        altered=_sorted(altered),
        unknown=_sorted(key for key in times if key not in accepted and key not in account.unsure),
    )


def _sorted(keys: Iterable[int]) -> tuple[int, ...]:
    return tuple(sorted(keys))


def _some(keys: tuple[int, ...], shown: int = 3) -> str:
    text = ", ".join(map(str, keys[:shown]))
    return f"{text}, ..." if len(keys) > shown else text
