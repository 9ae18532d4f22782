"""Runs checks one after the other, each within its time; one that fails hides no other."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from agent.doctor.findings import Check, CheckStatus, Finding, failed, skipped
from agent.doctor.installed import InstalledProgram, words_of

if TYPE_CHECKING:
    from agent.doctor.subject import Subject

GROUPS: Final = (
    *("setup", "clock", "files", "store", "units", "plugins", "process"),
    *("network", "service", "broker"),
)
"""The groups in the order in which they are examined; each is the module of its name with ``CHECKS``."""


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one check.

    Attributes:
        duration_s: how long looking took.
    """

    check: Check[Any]
    finding: Finding
    duration_s: float


def all_checks() -> tuple[Check[Subject], ...]:
    """Every check, in order."""
    return tuple(check for group in GROUPS for check in import_module(f"agent.doctor.{group}").CHECKS)


def examine(
    subject: InstalledProgram,
    *,
    checks: Iterable[Check[Any]] | None = None,
    offline: bool = False,
    monotonic: Callable[[], float] = time.monotonic,
) -> Iterator[Result]:
    """Examine, one result at a time.

    Args:
        subject: what is looked at.
        checks: which; all of the agent's by default.
        offline: send nothing to other machines.
        monotonic: measures the durations.
    """
    verdicts: dict[str, CheckStatus] = {}
    for check in all_checks() if checks is None else checks:
        begun_s = monotonic()
        finding = _excused(check, verdicts, offline=offline) or _look(check, subject)
        verdicts[check.id] = finding.verdict
        yield Result(check, finding, monotonic() - begun_s)


def _excused(check: Check[Any], verdicts: dict[str, CheckStatus], *, offline: bool) -> Finding | None:
    if offline and check.online:
        return skipped("--offline: nobody outside this machine is asked")
    for earlier in check.after:
        verdict = verdicts.get(earlier)
        if verdict in {CheckStatus.FAILED, CheckStatus.SKIPPED}:
            return skipped(
                f"{earlier} {'failed' if verdict is CheckStatus.FAILED else 'was skipped'}, so it says nothing"
            )
    return None


def _look(check: Check[Any], subject: InstalledProgram) -> Finding:
    """Look in a thread of its own: a name server or a disk that hangs must not hang the doctor."""
    found: list[Finding] = []

    def work() -> None:
        try:
            found.append(check.look(subject))
        except BaseException as error:  # noqa: BLE001 - one check's mistake, or a plug-in's exit, must not hide the others
            fix = "report this as a bug, with the configuration (it holds no secrets)"
            found.append(failed(f"the check itself failed: {type(error).__name__}", words_of(error), fix))

    thread = threading.Thread(target=work, name=f"doctor:{check.id}", daemon=True)
    thread.start()
    thread.join(check.timeout_s)
    if found:
        return found[0]
    cause = f"it did not end within {check.timeout_s:g} s"
    return failed("given up", cause, "look whether the disk, the name server or a sensor hangs (dmesg, top)")
