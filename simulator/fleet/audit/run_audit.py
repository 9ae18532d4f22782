"""The audit of a run: its ledgers against what the service gives back, in memory that does not grow with the run.

The steps: look through the ledgers; read back (:mod:`simulator.fleet.audit.readback`); sort both by device
(:mod:`simulator.fleet.audit.sorting`); judge range by range; put it together.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, fields, replace
from pathlib import Path
from typing import Final, TypeVar

import numpy as np

from agent.config.dialect import DialectConfig
from agent.wire.dialect import CommandLists
from agent.wire.extensions import COMMAND_RESULTS, COMMAND_STATUS, IDEMPOTENCY_KEY, RECORDED_AT
from simulator.exit_codes import ExitCode
from simulator.fleet.audit.audit_text import audit_sentences, time_sentences
from simulator.fleet.audit.command_findings import CommandRules, CommandSums, judge_commands
from simulator.fleet.audit.coverage import Coverage, RecordedRun, check_of_one_run, cover
from simulator.fleet.audit.findings import Findings
from simulator.fleet.audit.folder import AuditedDevice, find_ledgers, read_devices, readback_path
from simulator.fleet.audit.ledger_format import LedgerHeader
from simulator.fleet.audit.readback import OnProgress, Pages, ReadBackResult, ReadBackTask, TimeRange, read_back
from simulator.fleet.audit.reading_findings import ReadingRules, ReadingSums, judge_readings
from simulator.fleet.audit.sorting import (
    RANGE_READINGS,
    LedgerSurvey,
    cut_ranges,
    header_of,
    sorted_ranges,
    survey_ledger,
    weigh_stored,
)
from simulator.fleet.record import AuditRecord, DeviceFinding, StreamAudit

_GRAVITY: Final = {"lost": 0, "doubled": 1, "altered": 2, "unknown": 3, "reordered": 4, "late": 5, "misdated": 6}
_WINDOW_BEFORE_MS: Final = 60_000
_WINDOW_AFTER_MS: Final = 3_600_000

Sums = TypeVar("Sums", ReadingSums, CommandSums)


@dataclass(frozen=True, slots=True)
class AuditSettings:
    """What a person can choose.

    Attributes:
        late_after_s: how long after it was made a reading may be accepted, and a command finished after it was ordered.
        findings_max: how many devices are listed; the sums count all.
        range_readings: how many readings are judged at once.
        refusals_planned: the run makes readings on purpose that a service refuses.
        recorded: what the run's record says of it; None without one.
    """

    late_after_s: float = 300.0
    findings_max: int = 1000
    range_readings: int = RANGE_READINGS
    refusals_planned: bool = False
    recorded: RecordedRun | None = None


async def audit_run(run: Path, pages: Pages, settings: AuditSettings, on_progress: OnProgress) -> AuditRecord:
    """Read back everything that a run did and hold it against its ledgers.

    Args:
        run: the run's folder, with ``audit/`` in it.
        pages: how to ask the service.
        settings: what to go by.
        on_progress: called now and then with how many devices are read back and how many there are.

    Raises:
        ConfigurationError: there are no ledgers, or no list of devices, they cannot be read, or are not of one run.
        StorageError: the disk does not take what is read back.
    """
    began_s = time.monotonic()
    by_path = {path: survey_ledger(path) for path in find_ledgers(run)}
    check_of_one_run(by_path, settings.recorded)
    surveys = list(by_path.values())
    devices = read_devices(run)
    task = _task(surveys, devices)
    result = await read_back(task, pages, readback_path(run), on_progress)
    audit = _judge(run, surveys, devices, result, settings)
    return replace(audit, took_s=time.monotonic() - began_s)


def offers_of(run: Path) -> frozenset[str]:
    """The extensions that the service had when the run began.

    Raises:
        ConfigurationError: there are no ledgers, or they cannot be read.
    """
    return frozenset(header_of(find_ledgers(run)[0]).offers)


def exit_code_of_audit(audit: AuditRecord) -> ExitCode:
    """How a command that only audits ends its process."""
    streams = [stream for stream in (audit.readings, audit.commands) if stream is not None]
    if any(stream.lost or stream.doubled or stream.altered or stream.unknown for stream in streams):
        return ExitCode.DATA_LOST
    if not audit.complete:
        return ExitCode.INCONCLUSIVE
    return ExitCode.CHECK_FAILED if audit.failures else ExitCode.GOOD


def _task(surveys: Sequence[LedgerSurvey], devices: Sequence[AuditedDevice]) -> ReadBackTask:
    header = surveys[0].header
    with_commands: set[int] = set()
    for survey in surveys:
        with_commands |= survey.with_commands
    return ReadBackTask(
        devices=devices,
        with_commands=frozenset(with_commands) if _lists_may_be_read(header) else frozenset(),
        sequence_name=header.sequence_name,
        first_number=header.first_number,
        offers=frozenset(header.offers),
        reading=DialectConfig(command_id=header.command_id, time_zone=header.time_zone).dialect().reading,
        time_name=header.time_name,
        window=_window(surveys),
        began_ms=header.began_ms,
    )


def _lists_may_be_read(header: LedgerHeader) -> bool:
    """Whether the list of a device's commands is known to hold all of them, and to take none away from the device."""
    if header.command_lists is not None:
        return header.command_lists == CommandLists.EVERYTHING
    return COMMAND_STATUS in header.offers


def _window(surveys: Sequence[LedgerSurvey]) -> TimeRange:
    """The times that the run's readings carry; open where some carry none, since the service dates those."""
    dated = [survey.recorded for survey in surveys if survey.recorded is not None]
    if not dated or any(survey.dateless for survey in surveys):
        return TimeRange()
    # A service that dates all readings itself does so while the run lasts.
    ended_ms = max(survey.header.began_ms + survey.last_ms for survey in surveys)
    begin = min(low for low, _ in dated) - _WINDOW_BEFORE_MS
    return TimeRange(begin, max(ended_ms, *(high for _, high in dated)) + _WINDOW_AFTER_MS)


def _judge(
    run: Path,
    surveys: Sequence[LedgerSurvey],
    devices: Sequence[AuditedDevice],
    result: ReadBackResult,
    settings: AuditSettings,
) -> AuditRecord:
    size = 1 + max(
        [each.device for each in devices] + [int(np.flatnonzero(survey.weights).max(initial=0)) for survey in surveys]
    )
    weights = weigh_stored(readback_path(run), size)
    for survey in surveys:
        weights[: len(survey.weights)] += survey.weights[:size]
    coverage = cover(surveys, devices, settings.recorded)
    reading_rules, command_rules = _rules(surveys, coverage, result, settings, size)
    paths = [*find_ledgers(run), readback_path(run)]

    def judged(reading_rules: ReadingRules) -> tuple[Findings, ReadingSums, CommandSums]:
        found, readings, commands = Findings(), ReadingSums(), CommandSums()
        for part in sorted_ranges(paths, cut_ranges(weights, settings.range_readings)):
            if len(part.readings) or len(part.stored):
                readings = _added(readings, judge_readings(part.readings, part.stored, reading_rules, found))
            commands = _added(commands, judge_commands(part.commands, command_rules, found))
        return found, readings, commands

    found, readings, commands = judged(reading_rules)
    unjudged = [*coverage.sentences, *result.unjudged]
    if readings.lost and result.perhaps_cut:
        unjudged.append(
            f"{readings.lost:,} readings did not come back, and GET /sensor-data gave {result.perhaps_cut} in one page "
            "without a word of a next one: that may be all that it gives, so loss cannot be judged"
        )
        found, readings, commands = judged(replace(reading_rules, read=np.zeros(size, dtype=np.bool_)))
    unjudged += _unjudged(surveys, readings, commands)
    complete = result.failure is None and not unjudged
    had_commands = any(survey.with_commands for survey in surveys)
    result = replace(result, unjudged=tuple(unjudged))
    return AuditRecord(
        readings=_stream(readings),
        commands=_stream(commands, resent=commands.again) if had_commands else None,
        complete=complete,
        sentences=(
            *audit_sentences(readings, commands if had_commands else None, surveys, result, len(devices)),
            *time_sentences(readings, found),
        ),
        findings=_listed(found, {each.device: each for each in devices}, settings.findings_max),
        failures=(*_failures(readings, settings), *time_sentences(readings, found)),
        unjudged=(*([] if result.failure is None else [result.failure]), *unjudged),
    )


def _unjudged(surveys: Sequence[LedgerSurvey], readings: ReadingSums, commands: CommandSums) -> Iterator[str]:
    header = surveys[0].header
    if header.sequence_name is None and any(survey.dateless for survey in surveys) and readings.sent:
        yield (
            "readings carry neither a number (audit.numbers) nor a time of their own (recorded_at), so that they "
            "cannot be identified"
        )
    if commands.stateless:
        yield (
            f"{commands.stateless:,} commands are listed in a state that is not known, or in none, although their "
            "result was taken: whether it was kept cannot be judged"
        )
    if commands.unjudged:
        yield (
            f"{commands.unjudged:,} commands never came to their devices, and their lists were not read: this service "
            "announces no command-status and may hand each command out once; where it lists everything, say so in "
            "target.dialect.command_lists"
        )


def _failures(readings: ReadingSums, settings: AuditSettings) -> Iterator[str]:
    """What was sent and not accepted, beyond what the scenario plans."""
    if readings.sent and not readings.accepted:
        yield f"none of the {readings.sent:,} readings that were sent was accepted"
    elif readings.refused and not settings.refusals_planned:
        yield (
            f"{readings.refused:,} of {readings.sent:,} readings were refused for good, and no fault of the scenario "
            "makes any such"
        )


def _rules(
    surveys: Sequence[LedgerSurvey], coverage: Coverage, result: ReadBackResult, settings: AuditSettings, size: int
) -> tuple[ReadingRules, CommandRules]:
    read = np.zeros(size, dtype=np.bool_)
    read[list(result.readings_of)] = True
    whole = np.ones(size, dtype=np.bool_)
    for survey in surveys:
        if not survey.whole:
            whole[survey.header.first_device : survey.header.first_device + survey.header.devices] = False
    whole[list(coverage.without_ledger)] = False
    all_whole = bool(whole.all())
    header = surveys[0].header
    late_after_ms = round(settings.late_after_s * 1000)
    return (
        ReadingRules(
            header.sequence_name is not None,
            IDEMPOTENCY_KEY in header.offers,
            late_after_ms,
            read,
            whole,
            header.dated_when_made,
            RECORDED_AT in header.offers,
        ),
        CommandRules(
            ordered_here=any(survey.orders for survey in surveys),
            results_listed=COMMAND_RESULTS in header.offers,
            lists_read=_lists_may_be_read(header),
            ended_ms=_ended_ms(surveys, settings.recorded),
            late_after_ms=late_after_ms,
            read=result.commands_of,
            # Orders may be in any of the ledgers.
            partial=frozenset() if all_whole else frozenset(range(size)),
        ),
    )


def _ended_ms(surveys: Sequence[LedgerSurvey], recorded: RecordedRun | None) -> int:
    """The run's end on the wall clock, in milliseconds after its preparation.

    Ledgers count from the moment at which workers begin, some seconds later: by their times alone the commands of these
    last seconds would be another run's.
    """
    last_ms = max(survey.last_ms for survey in surveys)
    return last_ms if recorded is None else max(last_ms, round(recorded.ended_s * 1000) - surveys[0].header.began_ms)


def _added(one: Sums, other: Sums) -> Sums:
    return type(one)(*(a + b for a, b in zip(astuple(one), astuple(other), strict=True)))


def _stream(sums: ReadingSums | CommandSums, **more: int) -> StreamAudit:
    """The sums as the record has them, and ``more`` under other names."""
    names = (each.name for each in fields(StreamAudit))
    return StreamAudit(**{name: getattr(sums, name) for name in names if hasattr(sums, name)}, **more)


def _listed(found: Findings, devices: Mapping[int, AuditedDevice], most: int) -> tuple[DeviceFinding, ...]:
    """The gravest kinds first, then the devices with the most."""
    worst = heapq.nsmallest(most, found.counts.items(), key=lambda item: (_GRAVITY[item[0][0]], -item[1], item[0][1]))
    return tuple(
        DeviceFinding(
            device_id=devices[device].device_id if device in devices else "",
            name=devices[device].name if device in devices else f"device {device}",
            kind=kind,
            count=count,
            keys=tuple(found.keys[kind, device]),
        )
        for (kind, device), count in worst
    )
