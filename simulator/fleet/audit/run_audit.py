"""The audit of a run: its ledgers against what the service gives back, all in ``run.sqlite``.

The steps: take in the workers' ledgers; read back (:mod:`simulator.fleet.audit.readback`); judge
(:mod:`simulator.fleet.audit.judging`); say it in sentences (:mod:`simulator.fleet.audit.audit_text`).
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Final

from simulator.exit_codes import ExitCode
from simulator.fleet.audit.audit_text import audit_sentences, time_sentences
from simulator.fleet.audit.judging import Sums, judge_commands, judge_readings, off_times, worst_findings
from simulator.fleet.audit.readback import (
    COMMAND_COUNTS,
    READING_COUNTS,
    OnProgress,
    Pages,
    ReadBack,
    Unjudged,
    last_ms,
)
from simulator.fleet.audit.run_database import AuditRules, open_run_database, rules_of, take_in_ledgers
from simulator.fleet.record import AuditRecord, DeviceFinding, StreamAudit

_EVERY_COUNT = (
    *READING_COUNTS,
    *COMMAND_COUNTS,
    *(f"{stream}.{kind}" for stream in ("readings", "commands") for kind in ("reordered", "late", "misdated")),
)


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
        rules = rules_of(database)
        if settings.late_after_s is not None:
            rules = replace(rules, late_after_s=settings.late_after_s)
        read = ReadBack(rules, pages, database, on_progress)
        await read.run()
        audit = _judge(database, rules, read, settings, faults)
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


def _judge(
    database: sqlite3.Connection, rules: AuditRules, read: ReadBack, settings: AuditSettings, faults: list[str]
) -> AuditRecord:
    database.execute("UPDATE devices SET readings_read = 0, commands_read = 0")
    for column, devices in (("readings_read", read.readings_of), ("commands_read", read.commands_of)):
        marked = f"UPDATE devices SET {column} = 1 WHERE device = ?"  # noqa: S608 - one of two
        database.executemany(marked, ((device,) for device in devices))
    readings = judge_readings(database, rules)
    ended_ms = _ended_ms(database, rules, settings)
    commands = judge_commands(database, rules, results_read=read.results_read, ended_ms=ended_ms)
    unjudged = [*(Unjudged(fault, _EVERY_COUNT) for fault in faults), *read.unjudged()]
    if readings["lost"] and read.perhaps_cut:
        sentence = (
            f"{readings['lost']:,} readings did not come back, and GET /sensor-data gave {read.perhaps_cut} in one "
            "page without a word of a next one: that may be all that it gives, so loss cannot be judged"
        )
        unjudged.append(Unjudged(sentence, ("readings.lost",)))
        database.execute("DELETE FROM findings WHERE stream = 'readings' AND kind = 'lost'")
        readings = {**readings, "lost": 0}
    unjudged += _unjudged(database, rules, commands)
    why = [each.sentence for each in unjudged]
    counts = {name for each in unjudged for name in each.counts}
    if read.failure is not None:
        counts |= set(_EVERY_COUNT)
    (had_commands,) = database.execute("SELECT EXISTS (SELECT 1 FROM command_events)").fetchone()
    times = tuple(time_sentences(readings, *off_times(database)))
    said = audit_sentences(readings, commands if had_commands else None, rules, read, why)
    return AuditRecord(
        readings=_stream(readings),
        commands=_stream({**commands, "resent": commands["again"]}) if had_commands else None,
        complete=read.failure is None and not unjudged,
        sentences=(*said, *times),
        findings=tuple(_listed(database, settings.findings_max)),
        failures=(*_failures(readings, rules), *times),
        unjudged=(*([] if read.failure is None else [read.failure]), *why),
        unjudged_counts=tuple(sorted(counts)),
    )


def _ended_ms(database: sqlite3.Connection, rules: AuditRules, settings: AuditSettings) -> int:
    """The run's end on the wall clock, in milliseconds after its preparation.

    Ledgers count from the moment at which workers begin, some seconds later: by their times alone the commands of these
    last seconds would be another run's.
    """
    ended_ms = last_ms(database)
    return ended_ms if settings.ended_s is None else max(ended_ms, round(settings.ended_s * 1000) - rules.began_ms)


_UNJUDGED: Final = {
    "stateless": "{:,} commands are listed in a state that is not known, or in none, although their result was taken: "
    "whether it was kept cannot be judged",
    "results_unread": "{:,} results of commands were taken by a service that gives none of them back: whether they "
    "were kept cannot be judged",
    "unjudged": "{:,} commands never came to their devices, and their lists were not read: this service announces no "
    "command-status and may hand each command out once; where it lists everything, say so in "
    "target.dialect.command_lists",
}
"""Sums of commands for which loss and results cannot be judged."""


def _unjudged(database: sqlite3.Connection, rules: AuditRules, commands: Sums) -> Iterator[Unjudged]:
    (dateless,) = database.execute("SELECT EXISTS (SELECT 1 FROM sendings WHERE recorded_ms IS NULL)").fetchone()
    if rules.sequence_name is None and dateless:
        yield Unjudged(
            "readings carry neither a number (audit.numbers) nor a time of their own (recorded_at), so that they "
            "cannot be identified",
            tuple(name for name in _EVERY_COUNT if name.startswith("readings.")),
        )
    for name, sentence in _UNJUDGED.items():
        if commands[name]:
            counts = ("commands.lost",) if name == "unjudged" else ("commands.lost", "commands.altered")
            yield Unjudged(sentence.format(commands[name]), counts)


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
