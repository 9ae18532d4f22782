"""Checks and their findings, for ``check`` and ``doctor`` of agent and gateway."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, Generic, TypeVar

Subject_contra = TypeVar("Subject_contra", contravariant=True)


class CheckStatus(StrEnum):
    """How a check went."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check.

    Attributes:
        seen: what was looked at and how it is; of a skipped check, why it was skipped.
        cause: of a fault, in one line.
        fix: what to do about it, in one line.
        is_unreachable: the fault is that the other side cannot be reached, which has an exit code of its own.
    """

    verdict: CheckStatus
    seen: str
    cause: str = ""
    fix: str = ""
    is_unreachable: bool = False


Named = tuple[str, Finding]
"""A finding with the name of what was checked, such as ``sensors``; one name may have several findings."""


@dataclass(frozen=True, slots=True)
class Check(Generic[Subject_contra]):
    """One check of a ``Subject_contra``.

    Attributes:
        id: stable; in the table of docs/operations.md.
        looks_at: what, in a few words.
        look: finds out. What it raises becomes a fault of its own.
        after: checks without whose success this one says nothing.
        online: it asks another machine.
        timeout_s: beyond it the check is given up.
    """

    id: str
    looks_at: str
    look: Callable[[Subject_contra], Finding]
    after: tuple[str, ...] = ()
    online: bool = False
    timeout_s: float = 10.0


def ok(seen: str) -> Finding:
    """A finding without a fault."""
    return Finding(CheckStatus.OK, seen)


def skipped(why: str) -> Finding:
    """A finding of a check that had nothing to look at."""
    return Finding(CheckStatus.SKIPPED, why)


def warning(seen: str, cause: str, fix: str) -> Finding:
    """A finding of what works now and will go wrong, or is not as it should be."""
    return Finding(CheckStatus.WARNING, seen, cause, fix)


def failed(seen: str, cause: str, fix: str) -> Finding:
    """A fault that keeps the agent from its job."""
    return Finding(CheckStatus.FAILED, seen, cause, fix)


def unreachable(seen: str, cause: str, fix: str) -> Finding:
    """A fault: the other side cannot be reached."""
    return Finding(CheckStatus.FAILED, seen, cause, fix, is_unreachable=True)


def fault(sentence: str) -> Finding:
    """A fault in one sentence: what does not work, why, and how to mend it."""
    return Finding(CheckStatus.FAILED, sentence)


def no_answer(sentence: str) -> Finding:
    """As :func:`fault`, of another side that cannot be reached."""
    return Finding(CheckStatus.FAILED, sentence, is_unreachable=True)


def in_parts(finding: Finding, seen: str) -> Finding:
    """A finding of :func:`fault` or :func:`no_answer` with cause and fix in members of their own."""
    cause, fix = cause_and_fix(finding.seen)
    return replace(finding, seen=seen, cause=cause, fix=fix)


# What a fix begins with in the error texts of this project.
_FIX: Final = re.compile(
    r"[:;,] (?=(?:is|check|set|raise|mend|create|replace|run|put|write|name|remove|install|give|choose|sign|renew|poll|"
    r"ask|look|let|free|remount|send|correct|chmod|chown|mkdir|stop|use|try|nothing to do|report)\b)"
)


def cause_and_fix(text: str) -> tuple[str, str]:
    """An error's sentence in two: what happened, and from the first word that says what to do."""
    match = _FIX.search(text)
    return (text[: match.start()], text[match.end() :]) if match else (text, "see docs/operations.md")
