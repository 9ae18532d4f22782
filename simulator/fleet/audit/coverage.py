"""Whether the ledgers of a run are complete: what is missing in them proves neither loss nor its absence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final

from agent.errors import ConfigurationError
from agent.wire.times import to_rfc3339
from simulator.fleet.audit.folder import AuditedDevice
from simulator.fleet.audit.ledger_format import LedgerHeader
from simulator.fleet.audit.sorting import LedgerSurvey

_NAMES_SHOWN: Final = 3
_CLOCK_S: Final = 1.0
"""Both are of one machine's wall clock, which may be set a little meanwhile."""
_OWN: Final = frozenset({"worker", "first_device", "devices"})
"""What headers of one run differ in."""


@dataclass(frozen=True, slots=True)
class Coverage:
    """How the ledgers fit the list of devices.

    Attributes:
        without_ledger: indices of devices that no ledger speaks for.
        sentences: what is missing, one sentence each; empty when nothing is.
    """

    without_ledger: frozenset[int] = frozenset()
    sentences: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """What the ledgers and the list of devices have to agree with, from the record of the run.

    Attributes:
        began_s, ended_s: from its first preparation to its end, epoch seconds.
        devices: of its fleet.
    """

    began_s: float
    ended_s: float
    devices: int


def check_of_one_run(surveys: Mapping[Path, LedgerSurvey], recorded: RecordedRun | None) -> None:
    """See that ledgers are of one run, each of devices of its own.

    Args:
        surveys: what each file holds.
        recorded: what the run's record says; None without one.

    Raises:
        ConfigurationError: they are not: held against each other they would prove a loss that never was.
    """
    (first, one), *others = surveys.items()
    begun_s = one.header.began_ms / 1000
    if recorded is not None and not recorded.began_s - _CLOCK_S <= begun_s <= recorded.ended_s + _CLOCK_S:
        span = f"{to_rfc3339(recorded.began_s)} to {to_rfc3339(recorded.ended_s)}"
        text = f"is of a run at {to_rfc3339(begun_s)}, and run.json of one from {span}: put back those of this run"
        raise ConfigurationError([text], str(first))
    for number, (path, survey) in enumerate(others, 1):
        differing = [
            each.name
            for each in fields(LedgerHeader)
            if each.name not in _OWN and getattr(one.header, each.name) != getattr(survey.header, each.name)
        ]
        if differing:
            fix = "put back the one of this run, or take the other away"
            text = f"is of another run than {first.name} ({', '.join(differing)} differ): {fix}"
            raise ConfigurationError([text], str(path))
        for before, other in list(surveys.items())[:number]:
            if set(_range_of(survey)) & set(_range_of(other)):
                text = f"is of the same devices as {before.name}: take the copy, or the one of another run, away"
                raise ConfigurationError([text], str(path))


def cover(
    surveys: Sequence[LedgerSurvey], devices: Sequence[AuditedDevice], recorded: RecordedRun | None = None
) -> Coverage:
    """Hold the ledgers against the list of devices.

    Args:
        surveys: what the ledgers hold.
        devices: of the run, as ``devices.csv`` has them.
        recorded: what the run's record says; None without one.
    """
    covered = {index for survey in surveys for index in _range_of(survey)}
    alone = [each for each in devices if each.device not in covered]
    sentences = [*_sentences(surveys, devices, alone, covered)]
    if recorded is not None and len(devices) != recorded.devices:
        sentences.append(f"devices.csv has {len(devices):,} devices, and run.json {recorded.devices:,}")
    return Coverage(frozenset(each.device for each in alone), tuple(sentences))


def _sentences(
    surveys: Sequence[LedgerSurvey], devices: Sequence[AuditedDevice], alone: Sequence[AuditedDevice], covered: set[int]
) -> Iterator[str]:
    if alone:
        names = ", ".join(each.name for each in alone[:_NAMES_SHOWN])
        yield f"{len(alone):,} of {len(devices):,} devices have no ledger ({names}): one of the folder is missing"
    if unlisted := len(covered - {each.device for each in devices}):
        yield f"{unlisted:,} devices that the ledgers have are missing in devices.csv: they cannot be read back"
    for survey in surveys:
        worker = survey.header.worker
        if survey.counts is None:
            yield f"the ledger of worker {worker} has no end: it was killed, and its last second may be missing"
        elif survey.lacks:
            differing = ", ".join(_off(name, count) for name, count in survey.lacks.items())
            yield f"the ledger of worker {worker} does not hold what the counts at its end say: {differing}"
        if survey.counts is not None and survey.excess_bytes:
            yield f"the ledger of worker {worker} goes on for {survey.excess_bytes:,} bytes behind its end"
        for gap in survey.gaps:
            yield (
                f"the ledger of worker {worker} lacks {gap.records:,} records from {gap.from_s:.0f} s to "
                f"{gap.to_s:.0f} s: {gap.reason}"
            )


def _off(name: str, missing: int) -> str:
    return f"{missing:,} {name} missing" if missing > 0 else f"{-missing:,} {name} too many"


def _range_of(survey: LedgerSurvey) -> range:
    return range(survey.header.first_device, survey.header.first_device + survey.header.devices)
