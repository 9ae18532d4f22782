"""What the limiter's test goes by, and what it finds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from enum import StrEnum
from typing import Final

from agent.wire.rate_limit import RateLimit, read_rate_limit

LIMITED: Final = 429
UNAUTHORIZED: Final = 401
_GOOD: Final = range(200, 400)


@dataclass(frozen=True, slots=True)
class LimiterRules:
    """The promise.

    Attributes:
        quota: requests that each key may make in a window.
        window_s: how long a window is; windows begin at whole multiples of it.
        over: how many times its quota a key asks for.
        tolerance: how far counts may be off, as a share of the quota; 0 takes the promise to the letter.
    """

    quota: int
    window_s: float = 60.0
    over: float = 1.5
    tolerance: float = 0.0

    @property
    def slack(self) -> int:
        """How far counts may be off, in requests."""
        return int(self.quota * self.tolerance)


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer of the target.

    Attributes:
        status: 0 when none came.
        headers: by lower-case name.
        sent_s, received_s: on the test's own clock.
    """

    status: int
    headers: Mapping[str, str]
    sent_s: float
    received_s: float

    @property
    def is_limited(self) -> bool:
        """Whether the answer was 429."""
        return self.status == LIMITED

    @property
    def is_allowed(self) -> bool:
        """Let through, and answered well."""
        return self.status in _GOOD

    @property
    def retry_after_s(self) -> int | None:
        """``Retry-After`` in seconds (RFC 9110, section 10.2.3); None when it is missing or not a number."""
        text = self.headers.get("retry-after", "")
        return int(text) if text.isascii() and text.isdigit() else None

    @property
    def limit(self) -> RateLimit | None:
        """The key's quota, by the headers of the answer."""
        return read_rate_limit(self.headers)

    @property
    def stated_limits(self) -> Sequence[RateLimit]:
        """The quota by each family of headers in the answer, for those that are there."""
        families = ("ratelimit", "x-ratelimit-")
        parts = [
            {name: value for name, value in self.headers.items() if name.startswith(family) or name == "date"}
            for family in families
        ]
        return [found for found in map(read_rate_limit, parts) if found is not None]

    @property
    def date_s(self) -> float | None:
        """The target's clock, whole seconds since the epoch; None without a ``Date``."""
        try:
            return parsedate_to_datetime(self.headers["date"]).timestamp()
        except (KeyError, ValueError, TypeError):
            return None


class CheckOutcome(StrEnum):
    """What became of one check."""

    HELD = "held"
    BROKEN = "broken"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of one check.

    Attributes:
        name: what was looked at.
        expected, observed: with numbers.
    """

    name: str
    outcome: CheckOutcome
    expected: str
    observed: str

    @property
    def sentence(self) -> str:
        """The result as a sentence."""
        if self.outcome is CheckOutcome.HELD:
            return f"{self.name}: {self.observed}"
        if self.outcome is CheckOutcome.SKIPPED:
            return f"{self.name}: not checked, {self.observed}"
        return f"{self.name}: {self.observed}; promised: {self.expected}"


def judged(name: str, expected: str, observed: str, *, held: bool) -> CheckResult:
    """A check that could be made."""
    return CheckResult(name, CheckOutcome.HELD if held else CheckOutcome.BROKEN, expected, observed)


def skipped(name: str, expected: str, why: str) -> CheckResult:
    """A check that could not be made."""
    return CheckResult(name, CheckOutcome.SKIPPED, expected, why)
