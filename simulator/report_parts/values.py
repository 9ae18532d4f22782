"""What a report shows, as values. Times are seconds since the run began, unless a name says otherwise."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Tone(StrEnum):
    """How a thing is coloured."""

    GOOD = "good"
    BAD = "bad"
    WARN = "warn"
    PLAIN = "plain"
    ACCENT = "accent"


@dataclass(frozen=True, slots=True)
class Figure:
    """One number of the headline.

    Attributes:
        value: as it is shown.
        label: what it counts.
        note: one more thing to know about it.
    """

    value: str
    label: str
    note: str = ""
