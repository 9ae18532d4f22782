"""Numbers and outcomes as a person reads them, the same in the terminal, on the page and in a comparison."""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

from simulator.fleet.outcomes import FAILED, OutcomeClass
from simulator.fleet.record import RunRecord, VerdictStatus


class Tone(StrEnum):
    """How a thing is coloured."""

    GOOD = "good"
    BAD = "bad"
    WARN = "warn"
    PLAIN = "plain"
    ACCENT = "accent"


DASH: Final = "\u2013"
_MINUTE_S: Final = 60
_HOUR_S: Final = 3600
_FEW: Final = 10

OUTCOME_WORDS: Final[dict[OutcomeClass, str]] = {
    OutcomeClass.OK: "ok",
    OutcomeClass.LIMITED: "limited (429)",
    OutcomeClass.REFUSED: "refused (4xx)",
    OutcomeClass.SERVER_ERROR: "server error (5xx)",
    OutcomeClass.TIMEOUT: "no answer in time",
    OutcomeClass.TRANSPORT: "no connection",
    OutcomeClass.UNEXPECTED: "not the service's answer",
}

ERRORS: Final = tuple(kind for kind in OutcomeClass if kind in FAILED)
"""What counts as an error, in the order in which it is shown. 429 does not: it is the quota at work."""

VERDICT_WORDS: Final[dict[VerdictStatus, str]] = {
    VerdictStatus.PASSED: "Everything held.",
    VerdictStatus.FAILED: "Not everything held.",
    VerdictStatus.INCONCLUSIVE: "No verdict: the run proves nothing.",
    VerdictStatus.LOST: "Data was lost or changed.",
    VerdictStatus.UNREACHABLE: "The target could not be reached.",
    VerdictStatus.INTERRUPTED: "The run was cut short.",
}


def headline(record: RunRecord) -> str:
    """The verdict as a title."""
    if record.verdict.word is VerdictStatus.PASSED and record.search and record.search.has_found_limit:
        return "The limit was found."
    return VERDICT_WORDS[record.verdict.word]


def time_text(seconds: float | None) -> str:
    """A time of an answer in three digits: ``850 µs``, ``3.42 ms``, ``1.25 s``; a dash for None or no number."""
    if seconds is None or not math.isfinite(seconds):
        return DASH
    for size, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        # 0.9996 of a unit is shown as 1.00 of it, not as 1000 of the next smaller one.
        if abs(seconds) >= size * 0.9995:
            return f"{_three_digits(seconds / size)} {unit}"
    return "0" if seconds == 0 else f"{seconds * 1e6:.2f} µs"


def count_text(number: float | None) -> str:
    """A count with thousands apart: ``12,345``; fractions only below ten; a dash for None or no number."""
    if number is None or not math.isfinite(number):
        return DASH
    if abs(number) < _FEW and number != int(number):
        return f"{number:.1f}"
    return f"{number:,.0f}"


def clock_text(seconds: float) -> str:
    """A length of time as a clock shows it: ``1:05``, ``2:00:00``."""
    whole = max(0, int(seconds))
    if whole < _HOUR_S:
        return f"{whole // _MINUTE_S}:{whole % _MINUTE_S:02d}"
    return f"{whole // _HOUR_S}:{whole % _HOUR_S // _MINUTE_S:02d}:{whole % _MINUTE_S:02d}"


def percent_text(share: float | None) -> str:
    """A share as percent: ``99.95 %``. Never rounded up to 100 or down to 0 when it is not."""
    if share is None or not math.isfinite(share):
        return DASH
    if share in {0, 1}:
        return f"{share * 100:.0f} %"
    if 0 < share < 0.0001:
        return "< 0.01 %"
    return f"{share * 100 if share > 1 else min(share * 100, 99.99):.2f} %"


def plural(number: int, noun: str) -> str:
    """``1 device``, ``2 devices``, ``10,000 devices``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _three_digits(value: float) -> str:
    size = abs(value)
    if size < 9.995:
        return f"{value:.2f}"
    return f"{value:.1f}" if size < 99.95 else f"{value:,.0f}"


def finite(value: Any) -> Any:
    """A document with fractions of six digits, and null where a number is infinite or none."""
    if isinstance(value, Mapping):
        return {key: finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [finite(each) for each in value]
    if not isinstance(value, float):
        return value
    return float(f"{value:.6g}") if math.isfinite(value) else None
