"""The audit of a run: its ledgers against what the service gives back, in ``run.sqlite`` and in sentences.

The steps: take in the workers' ledgers; read back (:mod:`simulator.fleet.audit.readback`); judge
(:mod:`simulator.fleet.audit.judging`); put it into words. Each count is judged by itself: one that cannot be known
counts nowhere as passed.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

from agent.errors import ConfigurationError, NotFound
from agent.wire import paths
from agent.wire.server import RECORDED_AT
from simulator.exit_codes import ExitCode
from simulator.fleet.audit.judging import (
    OFF_S,
    Sums,
    judge_commands,
    judge_readings,
    last_ms,
    worst_findings,
)
from simulator.fleet.audit.ledger import AuditRules, devices_of, open_run_database, rules_of, take_in_ledgers
from simulator.fleet.audit.readback import OnProgress, Pages, ReadBack
from simulator.fleet.record import AuditRecord, StreamAudit

_FINDINGS_MAX: Final = 1000
_ASKED_FOR: Final = 5
_READING_COUNTS: Final = tuple(f"readings.{kind}" for kind in ("lost", "doubled", "altered", "unknown"))
_COMMAND_COUNTS: Final = tuple(f"commands.{kind}" for kind in ("lost", "doubled", "altered", "unknown"))
_EVERY_COUNT: Final = (*_READING_COUNTS, "readings.misdated", *_COMMAND_COUNTS)


async def audit_run(run: Path, pages: Pages, on_progress: OnProgress, *, ended_s: float | None = None) -> AuditRecord:
    """Read back everything that a run did and hold it against its ledgers.

    Args:
        run: the run's folder.
        pages: how to ask the service.
        on_progress: called now and then with how many devices are read back and how many there are.
        ended_s: when the run ended, epoch seconds; None goes by the last thing that was written down. Ledgers count
            from the moment at which workers begin, some seconds after the run's begin: by their times alone the
            commands of these last seconds would be another run's.

    Raises:
        ConfigurationError: there is no database of a run, or it is damaged.
        StorageError: the disk does not take what is read back.
    """
    with open_run_database(run) as database:
        faults = take_in_ledgers(run, database)
        rules = rules_of(database)
        read = ReadBack(rules, pages, database, on_progress)
        await read.run()
        ended_ms = last_ms(database)
        if ended_s is not None:
            ended_ms = max(ended_ms, round(ended_s * 1000) - rules.began_ms)
        audit = _judge(database, rules, read, faults, ended_ms)
        database.commit()
    return audit


def offers_of(run: Path) -> frozenset[str]:
    """The extensions that the service had when the run began.

    Raises:
        ConfigurationError: there is no database of a run, or it is damaged.
    """
    with open_run_database(run) as database:
        return frozenset(rules_of(database).offers)


async def check_knows_devices(run: Path, ask: Callable[[str, str], Awaitable[object]]) -> None:
    """Refuse to audit a run against a service that knows none of its first devices.

    Args:
        run: the run's folder.
        ask: makes one request: method, and path with query.

    Raises:
        ConfigurationError: this one does not; or there is no database of a run, or it is damaged.
        ServiceError: it could not be asked.
    """
    with open_run_database(run) as database:
        rules, devices = rules_of(database), devices_of(database)
    for device in devices[:_ASKED_FOR]:
        query = urlencode({rules.device_filter or "device_id": device.device_id})
        try:
            await ask("GET", f"{paths.SENSOR_DATA}?{query}")
        except NotFound:
            continue
        return
    text = (
        f"this service knows none of the run's devices, such as {devices[0].name}: name the one that the run was made "
        "against; nothing was changed (a run whose devices were removed cannot be audited again)"
    )
    raise ConfigurationError([text], "audit")


def exit_code_of_audit(audit: AuditRecord) -> ExitCode:
    """How a command that only audits ends its process."""
    if any(stream.wrong for _, stream in audit.streams):
        return ExitCode.DATA_LOST
    if audit.failures:
        return ExitCode.CHECK_FAILED
    return ExitCode.GOOD if audit.complete else ExitCode.INCONCLUSIVE


def _judge(
    database: sqlite3.Connection, rules: AuditRules, read: ReadBack, faults: list[str], ended_ms: int
) -> AuditRecord:
    readings = judge_readings(database, rules)
    commands = judge_commands(database, rules, results_read=read.results_read, ended_ms=ended_ms)
    odd = {**read.odd, **commands, "perhaps_cut": readings["lost"] if read.perhaps_cut else 0}
    if odd["perhaps_cut"]:
        database.execute("DELETE FROM findings WHERE stream = 'readings' AND kind = 'lost'")
        readings = {**readings, "lost": 0}
    if not rules.numbered:
        (odd["nameless"],) = database.execute("SELECT count(*) FROM sendings WHERE recorded_ms IS NULL").fetchone()
    if read.failure is not None:
        far = f"{len(read.readings_of):,} of {len(read.devices):,} devices, then {read.failure}"
        faults = [f"not everything could be read back: {far}; repeat it with 'fleet-simulator audit'", *faults]
    unjudged = dict.fromkeys(faults, _EVERY_COUNT)
    unjudged |= {text.format(odd[name]): counts for name, (text, counts) in _UNJUDGED.items() if odd.get(name)}
    (had_commands,) = database.execute("SELECT EXISTS (SELECT 1 FROM command_events)").fetchone()
    failures = tuple(_failures(readings, rules))
    said = _sentences(readings, commands if had_commands else None, rules, read)
    return AuditRecord(
        readings=_stream(readings),
        commands=_stream({**commands, "resent": commands["again"]}) if had_commands else None,
        complete=not unjudged,
        sentences=(*unjudged, *said, *failures),
        findings=tuple(worst_findings(database, _FINDINGS_MAX)),
        failures=failures,
        unjudged=tuple(unjudged),
        unjudged_counts=tuple(sorted({count for counts in unjudged.values() for count in counts})),
    )


_UNJUDGED: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "homeless": (
        "{:,} stored readings name no device, so that it is not known whose they are: loss cannot be judged",
        ("readings.lost", "readings.doubled", "readings.altered"),
    ),
    "shapeless": (
        "{:,} rows of GET /sensor-data hold no readings in a shape that is known: loss cannot be judged",
        _READING_COUNTS,
    ),
    "timeless": (
        "{:,} readings came back without a recorded_at that can be read, from a service that announces it: whether "
        "their times were kept cannot be judged",
        ("readings.altered",),
    ),
    "perhaps_cut": (
        "{:,} readings did not come back, and GET /sensor-data gave one page of a usual size without a word of a next "
        "one: that may be all that it gives, so loss cannot be judged",
        ("readings.lost",),
    ),
    "nameless": (
        "{:,} readings carry neither a number (audit.numbers) nor a time of their own (recorded_at), so that they "
        "cannot be identified",
        (*_READING_COUNTS, "readings.misdated"),
    ),
    "malformed": ("{:,} rows in lists of commands cannot be read as commands", _COMMAND_COUNTS),
    "stateless": (
        "{:,} commands are listed in a state that is not known, or in none, although their result was taken: whether "
        "it was kept cannot be judged",
        ("commands.lost", "commands.altered"),
    ),
    "results_unread": (
        "{:,} results of commands were taken by a service that gives none of them back: whether they were kept cannot "
        "be judged",
        ("commands.lost", "commands.altered"),
    ),
    "unlisted": (
        "{:,} commands never came to their devices, and their lists were not read: this service announces no "
        "command-status and may hand each command out once; where it lists everything, say so in "
        "target.dialect.command_lists",
        ("commands.lost",),
    ),
}
"""What cannot be judged: how it is said, and which counts of the audit are not known then."""


def _failures(readings: Sums, rules: AuditRules) -> Iterator[str]:
    """What was sent and not accepted, beyond what the scenario plans; and times that are too far off."""
    sent, refused = readings["sent"], readings["refused"]
    if sent and not readings["accepted"]:
        yield f"none of the {sent:,} readings that were sent was accepted"
    elif refused and not rules.refusals_planned:
        yield f"{refused:,} of {sent:,} readings were refused for good, and no fault of the scenario makes any such"
    if readings["misdated"]:
        yield (
            f"{readings['misdated']:,} of {sent:,} readings carry a time that is more than {OFF_S:g} s away from when "
            f"they were made: by up to {readings['off_ms'] / 1000:.1f} s"
        )


def _stream(sums: Sums) -> StreamAudit:
    names = (each.name for each in fields(StreamAudit))
    return StreamAudit(**{name: sums[name] for name in names if name in sums})


# --- in sentences -----------------------------------------------------------------------------------------------------

_OF_READINGS: Final = {
    "ambiguous": "{:,} readings were sent and never answered for good: they may be stored or not",
    "doubled_by_resend": "{:,} readings are stored more than once since they were sent more than once: the service "
    "keeps no idempotency keys",
    "refused": "the service refused {:,} readings for good",
    "unaccounted": "{:,} readings came back that no ledger has; their worker's ledger is not whole",
    "dated_by_service": "{:,} readings came back with the service's time instead of their own: it does not keep "
    "recorded_at",
}
_OF_COMMANDS: Final = {
    "again": "{:,} effects began again after the power had gone, as their handlers' contract allows",
    "undelivered": "{:,} commands never came to their device: they expired, or still wait",
    "ambiguous": "{:,} commands were sent by an operator and got no answer, or one without an id: they may exist or "
    "not",
    "foreign_ones": "{:,} commands of other runs with the same devices were left out",
}
"""How sums are said; those that are 0 are left out."""


def _sentences(readings: Sums, commands: Sums | None, rules: AuditRules, read: ReadBack) -> Iterator[str]:
    counted = f"{readings['sent']:,} sent, {readings['accepted']:,} accepted, {readings['stored']:,} given back"
    yield "readings: " + ", ".join(filter(None, (counted, _stream(readings).wrong)))
    yield from _said(_OF_READINGS, readings)
    if commands is not None:
        counted = f"{commands['sent']:,} sent, {commands['accepted']:,} accepted, {commands['stored']:,} listed"
        effects = f"{commands['effects']:,} effects"
        yield "commands: " + ", ".join(filter(None, (counted, effects, _stream(commands).wrong)))
        yield from _said(_OF_COMMANDS, commands)
    if readings["sent"] and RECORDED_AT not in rules.offers and rules.dialect.recorded_at_reading is None:
        yield "the service takes no recorded_at: readings are identified by number, and their times cannot be compared"
    if read.gone:
        names = ", ".join([*read.gone.values()][:3])
        yield f"the service does not know {len(read.gone):,} devices any more ({names}): what they sent is lost"
    if read.foreign:
        yield f"{read.foreign:,} readings of other runs with the same devices were left out"


def _said(sentences: Mapping[str, str], sums: Sums) -> Iterator[str]:
    return (sentence.format(sums[name]) for name, sentence in sentences.items() if sums[name])


def audit_text(audit: AuditRecord) -> str:
    """The audit for a terminal: its sentences, then one line for each finding."""
    found = [
        f"  {each.kind:9} {each.count:>7,}  {each.name} ({each.device_id}): "
        + ", ".join([*each.keys, *(["..."] if each.count > len(each.keys) else [])])
        for each in audit.findings
    ]
    return "\n".join((*audit.sentences, *(["findings by device:", *found] if found else [])))
