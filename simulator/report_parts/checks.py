"""A run of checks: the values behind the JUnit file, whatever was checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Mark(StrEnum):
    """How a check ended."""

    GOOD = "good"
    BAD = "bad"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Check:
    """One check and how it ended.

    Attributes:
        group: checks of a kind stand together.
        name: unique in the group.
        title: a sentence.
        reason: why it is bad or skipped; of a good one what a reader may want to know.
        seconds: how long it took; None when nobody measured.
    """

    group: str
    name: str
    title: str
    mark: Mark
    reason: str = ""
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class CheckRun:
    """All checks of one run.

    Attributes:
        title: what was run.
        checks: in the order of the run.
        problems: what concerns the run as a whole.
        began_at: RFC 3339.
        seconds: how long all of it took; None: as long as its checks together.
        group_seconds: how long the checks of a group took that went on at the same time; of others the sum counts.
    """

    title: str
    checks: tuple[Check, ...]
    problems: tuple[str, ...] = ()
    began_at: str = ""
    seconds: float | None = None
    group_seconds: Mapping[str, float] = field(default_factory=dict)

    def groups(self) -> dict[str, list[Check]]:
        """The checks by group, in the order of their first."""
        found: dict[str, list[Check]] = {}
        for check in self.checks:
            found.setdefault(check.group, []).append(check)
        return found
