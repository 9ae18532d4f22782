"""A run of checks as a report shows it: the values behind the JUnit file and the page, whatever was checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Mark(StrEnum):
    """How a check ended."""

    GOOD = "good"
    NOTED = "noted"
    """Good, with something that a reader should know."""
    BAD = "bad"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class CheckStep:
    """One step of a check.

    Attributes:
        name: what was done.
        expected, answered: in words.
        detail: particulars.
        seconds: how long it took; None when it was not done.
    """

    name: str
    mark: Mark
    expected: str = ""
    answered: str = ""
    detail: str = ""
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Check:
    """One check and how it ended.

    Attributes:
        group: checks of a kind stand together.
        name: unique in the group.
        title: a sentence.
        reason: why it is bad, noted or skipped; of a good one what a reader may want to know.
        seconds: how long it took; None when nobody measured.
    """

    group: str
    name: str
    title: str
    mark: Mark
    reason: str = ""
    seconds: float | None = None
    steps: tuple[CheckStep, ...] = ()


@dataclass(frozen=True, slots=True)
class Fact:
    """A figure at the head of the page."""

    label: str
    value: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class CheckRun:
    """All checks of one run.

    Attributes:
        title: what was run.
        headline: what came of it, one sentence.
        lead: what was done, for whom.
        facts: the figures.
        checks: in the order of the run.
        problems: what concerns the run as a whole.
        began_at: RFC 3339.
        seconds: how long all of it took; None: as long as its checks together.
        group_seconds: how long the checks of a group took that went on at the same time; of others the sum counts.
        text, text_title: a text to copy, and what it is; empty without one.
    """

    title: str
    headline: str
    lead: str
    facts: tuple[Fact, ...]
    checks: tuple[Check, ...]
    problems: tuple[str, ...] = ()
    began_at: str = ""
    seconds: float | None = None
    group_seconds: Mapping[str, float] = field(default_factory=dict)
    text: str = ""
    text_title: str = ""

    @property
    def is_good(self) -> bool:
        """Whether nothing is bad."""
        return not self.problems and all(check.mark is not Mark.BAD for check in self.checks)

    def count(self, mark: Mark) -> int:
        """How many checks ended so."""
        return sum(check.mark is mark for check in self.checks)

    def groups(self) -> dict[str, list[Check]]:
        """The checks by group, in the order of their first."""
        found: dict[str, list[Check]] = {}
        for check in self.checks:
            found.setdefault(check.group, []).append(check)
        return found
