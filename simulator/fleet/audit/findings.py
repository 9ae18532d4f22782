"""Findings of an audit under way: by kind and device, and as counts of a stream."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

KEYS_KEPT: Final = 5


@dataclass(slots=True)
class Findings:
    """Findings by kind and device.

    Attributes:
        counts: (kind, device) -> how many.
        keys: (kind, device) -> a few, to look them up.
        keys_kept: how many of each.
        early_s, late_s: how far the times that readings carry are off, at most, to either side.
    """

    counts: Counter[tuple[str, int]] = field(default_factory=Counter)
    keys: dict[tuple[str, int], list[str]] = field(default_factory=dict)
    keys_kept: int = KEYS_KEPT
    early_s: float = 0.0
    late_s: float = 0.0

    def add(self, kind: str, device: int, count: int, keys: Sequence[str]) -> None:
        """Count a finding ``count`` times more."""
        self.counts[kind, device] += count
        kept = self.keys.setdefault((kind, device), [])
        kept += keys[: self.keys_kept - len(kept)]


@dataclass(frozen=True, slots=True)
class StreamSums:
    """Counts over all readings, or over all commands; each counts once in each kind.

    See :class:`~simulator.fleet.record.StreamAudit`.
    """

    sent: int = 0
    accepted: int = 0
    stored: int = 0
    lost: int = 0
    doubled: int = 0
    reordered: int = 0
    altered: int = 0
    late: int = 0
    unknown: int = 0
    ambiguous: int = 0
