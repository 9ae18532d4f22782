"""Checks and their findings, for ``check`` and ``doctor`` of agent and gateway."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from agent.errors import ConfigurationError


class CheckStatus(StrEnum):
    """How a check went, from good to bad."""

    OK = "ok"
    SKIPPED = "skipped"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Finding:
    """One result of a check.

    Attributes:
        seen: what was looked at and how it is; of a skipped check, why it was skipped.
        cause: of a fault, in one line.
        fix: what to do about it, in one line; empty where ``seen`` or ``cause`` is a sentence that says so itself.
        is_unreachable: the fault is that the other side cannot be reached, which has an exit code of its own.
    """

    verdict: CheckStatus
    seen: str
    cause: str = ""
    fix: str = ""
    is_unreachable: bool = False


Named = tuple[str, Finding]
"""A finding with the name of what was checked, such as ``sensors``; one name may have several findings."""


def ok(seen: str) -> Finding:
    """A finding without a fault."""
    return Finding(CheckStatus.OK, seen)


def skipped(why: str) -> Finding:
    """Nothing could be judged, and why."""
    return Finding(CheckStatus.SKIPPED, why)


def warning(seen: str, cause: str, fix: str = "") -> Finding:
    """A finding that stops nothing today: it will fail later, or is less safe than it could be."""
    return Finding(CheckStatus.WARNING, seen, cause, fix)


def failed(seen: str, cause: str = "", fix: str = "") -> Finding:
    """A fault that keeps the program from its job."""
    return Finding(CheckStatus.FAILED, seen, cause, fix)


def unreachable(seen: str, cause: str = "", fix: str = "") -> Finding:
    """A fault: the other side cannot be reached."""
    return Finding(CheckStatus.FAILED, seen, cause, fix, is_unreachable=True)


@dataclass(frozen=True, slots=True)
class Check:
    """One check of a device.

    Attributes:
        id: stable; in the table of docs/operations.md.
        run: yields what it finds; what it raises becomes a fault of its own.
        after: checks without whose success this one says nothing.
        online: it asks another machine.
        timeout_s: beyond it the check is given up.
    """

    id: str
    run: Callable[[Any], Iterator[Finding]]
    after: tuple[str, ...] = ()
    online: bool = False
    timeout_s: float = 10.0


def examine(device: Any, checks: Iterable[Check], *, offline: bool = False) -> Iterator[Named]:
    """Run checks one after the other, each within its time; one that fails hides no other.

    Args:
        device: what is looked at.
        checks: which, in this order.
        offline: skip those that ask another machine.
    """
    without: dict[str, str] = {}  # the checks that failed or were skipped, and which of both
    for check in checks:
        bad = next((each for each in check.after if each in without), None)
        if offline and check.online:
            findings = [skipped("--offline: nobody outside this machine is asked")]
        elif bad is not None:
            findings = [skipped(f"{bad} {without[bad]}, so it says nothing")]
        else:
            findings = _run(check, device)
        verdicts = {finding.verdict for finding in findings}
        if CheckStatus.FAILED in verdicts:
            without[check.id] = "failed"
        elif verdicts == {CheckStatus.SKIPPED}:
            without[check.id] = "was skipped"
        yield from ((check.id, finding) for finding in findings)


def _run(check: Check, device: Any) -> list[Finding]:
    """In a thread of its own: a name server or a disk that hangs must not hang all of it."""
    found: list[Finding] = []

    def work() -> None:
        try:
            found.extend(check.run(device))
        except ConfigurationError as error:
            found.extend(failed(error.source, sentence) for sentence in error.faults)
        except BaseException as error:  # noqa: BLE001 - one check's mistake, or a plug-in's exit, must not hide the others
            why = " ".join(str(error).split()) or type(error).__name__
            fix = "report this as a bug, with the configuration (it holds no secrets)"
            found.append(failed(f"the check itself failed: {type(error).__name__}", why, fix))

    thread = threading.Thread(target=work, name=f"doctor:{check.id}", daemon=True)
    thread.start()
    thread.join(check.timeout_s)
    if thread.is_alive():
        cause = f"it did not end within {check.timeout_s:g} s"
        fix = "look whether the disk, the name server or a sensor hangs (dmesg, top)"
        return [*found, failed("given up", cause, fix)]
    return found or [skipped("there is nothing to look at")]
