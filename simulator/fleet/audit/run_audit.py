"""The audit of a run: its ledgers against what the service gives back, all in ``run.sqlite``.

The steps: take in the workers' ledgers; read back (:mod:`simulator.fleet.audit.readback`); judge
(:mod:`simulator.fleet.audit.judging`); say it in sentences.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

from agent.config.dialect import DialectConfig
from agent.wire.dialect import CommandLists
from agent.wire.extensions import COMMAND_RESULTS, COMMAND_STATUS, IDEMPOTENCY_KEY, RECORDED_AT
from simulator.exit_codes import ExitCode
from simulator.fleet.audit.audit_text import audit_sentences, time_sentences
from simulator.fleet.audit.judging import (
    JudgingRules,
    Sums,
    judge_commands,
    judge_readings,
    off_times,
    worst_findings,
)
from simulator.fleet.audit.readback import (
    OnProgress,
    Pages,
    ReadBackResult,
    ReadBackTask,
    TimeRange,
    Unjudged,
    read_back,
)
from simulator.fleet.audit.run_database import (
    AuditedDevice,
    AuditRules,
    devices_of,
    ledger_faults,
    open_run_database,
    rules_of,
    take_in_ledgers,
)
from simulator.fleet.record import AuditRecord, DeviceFinding, StreamAudit

_EVERY_COUNT = tuple(
    f"{stream}.{kind}"
    for stream in ("readings", "commands")
    for kind in ("lost", "doubled", "reordered", "altered", "late", "unknown", "misdated")
)
_WINDOW_BEFORE_MS = 60_000
_WINDOW_AFTER_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class AuditSettings:
    """What a person can choose for one audit.

    Attributes:
        late_after_s: in place of the scenario's; None goes by that.
        findings_max: how many devices are listed; the sums and the table ``findings`` have all.
        ended_s: when the run ended, epoch seconds; None goes by the last thing that was written down.
    """

    late_after_s: float | None = None
    findings_max: int = 1000
    ended_s: float | None = None


async def audit_run(run: Path, pages: Pages, settings: AuditSettings, on_progress: OnProgress) -> AuditRecord:
    """Read back everything that a run did and hold it against its ledgers.

    Args:
        run: the run's folder.
        pages: how to ask the service.
        settings: what to go by.
        on_progress: called now and then with how many devices are read back and how many there are.

    Raises:
        ConfigurationError: there is no database of a run, or it is damaged.
        StorageError: the disk does not take what is read back.
    """
    began_s = time.monotonic()
    with open_run_database(run) as database:
        faults = take_in_ledgers(run, database)
        rules, devices = rules_of(database), devices_of(database)
        if settings.late_after_s is not None:
            rules = replace(rules, late_after_s=settings.late_after_s)
        result = await read_back(_task(database, rules, devices), pages, database, on_progress)
        audit = _judge(database, rules, result, settings, [*faults, *ledger_faults(database)])
        database.commit()
    return replace(audit, took_s=time.monotonic() - began_s)


def offers_of(run: Path) -> frozenset[str]:
    """The extensions that the service had when the run began.

    Raises:
        ConfigurationError: there is no database of a run, or it is damaged.
    """
    with open_run_database(run) as database:
        return frozenset(rules_of(database).offers)


def exit_code_of_audit(audit: AuditRecord) -> ExitCode:
    """How a command that only audits ends its process."""
    streams = [stream for stream in (audit.readings, audit.commands) if stream is not None]
    if any(stream.lost or stream.doubled or stream.altered or stream.unknown for stream in streams):
        return ExitCode.DATA_LOST
    if audit.failures:
        return ExitCode.CHECK_FAILED
    return ExitCode.GOOD if audit.complete else ExitCode.INCONCLUSIVE


def _task(database: sqlite3.Connection, rules: AuditRules, devices: Sequence[AuditedDevice]) -> ReadBackTask:
    with_commands = {device for (device,) in database.execute("SELECT DISTINCT device FROM command_events")}
    return ReadBackTask(
        devices=devices,
        with_commands=frozenset(with_commands) if _lists_may_be_read(rules) else frozenset(),
        sequence_name=rules.sequence_name,
        first_number=rules.first_number,
        offers=frozenset(rules.offers),
        reading=DialectConfig(command_id=rules.command_id, time_zone=rules.time_zone).dialect().reading,
        time_name=rules.time_name,
        results_table=rules.results_table if with_commands else None,
        window=_window(database, rules),
        began_ms=rules.began_ms,
    )


def _lists_may_be_read(rules: AuditRules) -> bool:
    """Whether the list of a device's commands is known to hold all of them, and to take none away from the device."""
    if rules.command_lists is not None:
        return rules.command_lists == CommandLists.EVERYTHING
    return COMMAND_STATUS in rules.offers


def _window(database: sqlite3.Connection, rules: AuditRules) -> TimeRange:
    """The times that the run's readings carry; open where some carry none, since the service dates those."""
    dated = "SELECT min(recorded_ms), max(recorded_ms), sum(recorded_ms IS NULL) FROM sendings"
    low, high, dateless = database.execute(dated).fetchone()
    if low is None or dateless:
        return TimeRange()
    # A service that dates all readings itself does so while the run lasts.
    ended_ms = rules.began_ms + _last_ms(database)
    return TimeRange(low - _WINDOW_BEFORE_MS, max(ended_ms, high) + _WINDOW_AFTER_MS)


def _last_ms(database: sqlite3.Connection) -> int:
    """The last thing written down, since the run's begin."""
    tables = "SELECT at_ms FROM sendings UNION ALL SELECT at_ms FROM answers UNION ALL SELECT at_ms FROM command_events"
    (last,) = database.execute(f"SELECT coalesce(max(at_ms), 0) FROM ({tables})").fetchone()  # noqa: S608 - our own
    return int(last)


def _judge(
    database: sqlite3.Connection, rules: AuditRules, result: ReadBackResult, settings: AuditSettings, faults: list[str]
) -> AuditRecord:
    database.execute("UPDATE devices SET readings_read = 0, commands_read = 0")
    for column, read in (("readings_read", result.readings_of), ("commands_read", result.commands_of)):
        marked = f"UPDATE devices SET {column} = 1 WHERE device = ?"  # noqa: S608 - one of two
        database.executemany(marked, ((device,) for device in read))
    judging = JudgingRules(
        by_sequence=rules.sequence_name is not None,
        replays=IDEMPOTENCY_KEY in rules.offers,
        keeps_times=RECORDED_AT in rules.offers,
        dated_when_made=rules.dated_when_made,
        late_after_ms=round(rules.late_after_s * 1000),
        results_listed=COMMAND_RESULTS in rules.offers,
        results_read=result.results_read,
        lists_read=_lists_may_be_read(rules),
        ended_ms=_ended_ms(database, rules, settings),
    )
    readings, commands = judge_readings(database, judging), judge_commands(database, judging)
    (devices, had_commands) = database.execute(
        "SELECT (SELECT count(*) FROM devices), EXISTS (SELECT 1 FROM command_events)"
    ).fetchone()
    unjudged = [*(Unjudged(fault, _EVERY_COUNT) for fault in faults), *result.unjudged]
    if readings["lost"] and result.perhaps_cut:
        sentence = (
            f"{readings['lost']:,} readings did not come back, and GET /sensor-data gave {result.perhaps_cut} in one "
            "page without a word of a next one: that may be all that it gives, so loss cannot be judged"
        )
        unjudged.append(Unjudged(sentence, ("readings.lost",)))
        database.execute("DELETE FROM findings WHERE stream = 'readings' AND kind = 'lost'")
        readings = {**readings, "lost": 0}
    unjudged += _unjudged(database, rules, readings, commands)
    result = replace(result, unjudged=tuple(unjudged))
    times = tuple(time_sentences(readings, *off_times(database)))
    return AuditRecord(
        readings=_stream(readings),
        commands=_stream({**commands, "resent": commands["again"]}) if had_commands else None,
        complete=result.failure is None and not unjudged,
        sentences=(*audit_sentences(readings, commands if had_commands else None, rules, result, devices), *times),
        findings=tuple(_listed(database, settings.findings_max)),
        failures=(*_failures(readings, rules), *times),
        unjudged=(*([] if result.failure is None else [result.failure]), *(each.sentence for each in unjudged)),
        unjudged_counts=tuple(
            sorted({*(() if result.failure is None else _EVERY_COUNT), *(name for u in unjudged for name in u.counts)})
        ),
    )


def _ended_ms(database: sqlite3.Connection, rules: AuditRules, settings: AuditSettings) -> int:
    """The run's end on the wall clock, in milliseconds after its preparation.

    Ledgers count from the moment at which workers begin, some seconds later: by their times alone the commands of these
    last seconds would be another run's.
    """
    last_ms = _last_ms(database)
    return last_ms if settings.ended_s is None else max(last_ms, round(settings.ended_s * 1000) - rules.began_ms)


def _unjudged(database: sqlite3.Connection, rules: AuditRules, readings: Sums, commands: Sums) -> Iterator[Unjudged]:
    (dateless,) = database.execute("SELECT EXISTS (SELECT 1 FROM sendings WHERE recorded_ms IS NULL)").fetchone()
    if rules.sequence_name is None and dateless:
        yield Unjudged(
            "readings carry neither a number (audit.numbers) nor a time of their own (recorded_at), so that they "
            "cannot be identified",
            tuple(name for name in _EVERY_COUNT if name.startswith("readings.")),
        )
    if commands["stateless"]:
        yield Unjudged(
            f"{commands['stateless']:,} commands are listed in a state that is not known, or in none, although their "
            "result was taken: whether it was kept cannot be judged",
            ("commands.lost", "commands.altered"),
        )
    if commands["results_unread"]:
        yield Unjudged(
            f"{commands['results_unread']:,} results of commands were taken by a service that gives none of them back: "
            "whether they were kept cannot be judged",
            ("commands.lost", "commands.altered"),
        )
    if commands["unjudged"]:
        yield Unjudged(
            f"{commands['unjudged']:,} commands never came to their devices, and their lists were not read: this "
            "service announces no command-status and may hand each command out once; where it lists everything, say so "
            "in target.dialect.command_lists",
            ("commands.lost",),
        )


def _failures(readings: Sums, rules: AuditRules) -> Iterator[str]:
    """What was sent and not accepted, beyond what the scenario plans."""
    if readings["sent"] and not readings["accepted"]:
        yield f"none of the {readings['sent']:,} readings that were sent was accepted"
    elif readings["refused"] and not rules.refusals_planned:
        yield (
            f"{readings['refused']:,} of {readings['sent']:,} readings were refused for good, and no fault of the "
            "scenario makes any such"
        )


def _stream(sums: Sums) -> StreamAudit:
    names = (each.name for each in fields(StreamAudit))
    return StreamAudit(**{name: sums[name] for name in names if name in sums})


def _listed(database: sqlite3.Connection, most: int) -> Iterator[DeviceFinding]:
    for device, kind, count, keys in worst_findings(database, most):
        found = database.execute("SELECT device_id, name FROM devices WHERE device = ?", (device,)).fetchone()
        device_id, name = found or ("", f"device {device}")
        yield DeviceFinding(device_id=device_id, name=name, kind=kind, count=count, keys=tuple(keys))
