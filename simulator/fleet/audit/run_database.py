"""``run.sqlite`` in a run's folder: its devices, the ledgers of all workers, what came back, and what is wrong.

While the run goes on each worker has a ledger of its own beside it; an audit takes them in, one after the other. The
tables ``readings``, ``commands`` and ``findings`` are for people, too: ``sqlite3 run.sqlite``.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from agent.config.model import AUTO
from agent.errors import ConfigurationError, StorageError
from agent.wire.server import COMMAND_STATUS, CommandLists
from simulator.fleet.audit.ledger import LEDGER_SCHEMA, LEDGER_TABLES, SEQUENCE_NAME

DATABASE: Final = "run.sqlite"
_SCHEMA: Final = f"""
CREATE TABLE rules (json TEXT);
CREATE TABLE devices (device INTEGER PRIMARY KEY, device_id TEXT, name TEXT, readings_read INTEGER DEFAULT 0,
    commands_read INTEGER DEFAULT 0, has_ledger INTEGER DEFAULT 0, is_whole INTEGER DEFAULT 0);
{LEDGER_SCHEMA}
"""
# is_whole: the ledger has everything of it; of other devices, what is unknown may have been sent.
_MARK_DEVICES: Final = """
UPDATE devices SET (has_ledger, is_whole) = (
    SELECT count(*) > 0, coalesce(max(ended AND NOT EXISTS (SELECT 1 FROM gaps WHERE gaps.worker = l.worker)), 0)
    FROM ledgers AS l WHERE l.first_device <= device AND device < l.first_device + l.devices)
"""


@dataclass(frozen=True, slots=True)
class AuditedDevice:
    """A device of the run.

    Attributes:
        device: index in the fleet, as the ledgers have it.
        device_id: the service's.
        name: for a person.
    """

    device: int
    device_id: str
    name: str


@dataclass(frozen=True, slots=True)
class AuditRules:
    """What the audit of a run goes by; kept with it, so that a later audit goes by the same.

    Attributes:
        began_ms: the run's begin, epoch milliseconds.
        sequence_name: the reading that carries the sequence number; None when readings go without.
        offers: the extensions that the service offers. With ``idempotency-key`` a resend must not make a second
            reading; with ``command-results`` the list of commands must have their results.
        first_number: on the wire sequence numbers count from here; others are another run's.
        time_name: the reading that carries the time of reading, on a server without ``recorded_at``.
        command_lists: what the server's list of a device's commands holds, as the scenario says; see
            :class:`~agent.wire.server.CommandLists`.
        command_id, time_zone: as in :class:`~agent.config.model.DialectConfig`.
        results_table: where results are taken on a plain server: the name of a table of runtime data.
        dated_when_made: the times that readings carry are meant to be those at which they were made: not in a run whose
            scenario makes clocks wrong, and not where readings are of the past, or of no device.
        late_after_s: how long after it was made a reading may be accepted, and a command finished after it was ordered.
        refusals_planned: the run makes readings on purpose that a service refuses.
    """

    began_ms: int
    sequence_name: str | None = SEQUENCE_NAME
    offers: tuple[str, ...] = ()
    first_number: int = 0
    time_name: str | None = None
    command_lists: str | None = None
    command_id: str = AUTO
    time_zone: str = AUTO
    results_table: str | None = None
    dated_when_made: bool = False
    late_after_s: float = 300.0
    refusals_planned: bool = False

    @property
    def lists_are_whole(self) -> bool:
        """Whether the list of a device's commands is known to hold all, and to take none away from the device."""
        if self.command_lists is not None:
            return self.command_lists == CommandLists.EVERYTHING
        return COMMAND_STATUS in self.offers


def ledger_path(run: Path, worker: int) -> Path:
    """Where a worker's ledger is while the run goes on."""
    return run / f"ledger-{worker:03d}.sqlite"


def has_ledgers(run: Path) -> bool:
    """Whether a worker of a run wrote anything down."""
    if _worker_ledgers(run):
        return True
    if not (run / DATABASE).exists():
        return False
    with open_run_database(run) as database:
        return bool(database.execute("SELECT EXISTS (SELECT 1 FROM ledgers)").fetchone()[0])


def make_run_database(run: Path, rules: AuditRules, devices: Iterable[AuditedDevice]) -> None:
    """Make the database of a run that begins.

    Raises:
        ConfigurationError: it cannot be written.
    """
    path = run / DATABASE
    try:
        run.mkdir(parents=True, exist_ok=True)
        with contextlib.closing(sqlite3.connect(path)) as database:
            database.executescript(_SCHEMA)
            with database:
                database.execute("INSERT INTO rules VALUES (?)", (json.dumps(asdict(rules)),))
                rows = ((each.device, each.device_id, each.name) for each in devices)
                database.executemany("INSERT INTO devices (device, device_id, name) VALUES (?, ?, ?)", rows)
    except (OSError, sqlite3.Error) as error:
        raise ConfigurationError([f"{path}: cannot be written: {error}: name another folder"], "--out") from None


@contextlib.contextmanager
def open_run_database(run: Path) -> Iterator[sqlite3.Connection]:
    """The database of a run that was made; closed at the end.

    Raises:
        ConfigurationError: there is none, or it is damaged.
        StorageError: the disk does not take what is written.
    """
    path = run / DATABASE
    if not path.exists():
        fix = "name the folder of a run that was made with an audit"
        raise ConfigurationError([f"holds no {DATABASE}: {fix}"], str(run))
    try:
        with contextlib.closing(sqlite3.connect(path)) as database:
            yield database
    except sqlite3.OperationalError as error:
        raise StorageError(f"{path}: {error}") from None
    except sqlite3.DatabaseError as error:
        raise ConfigurationError([f"is damaged: {error}"], str(path)) from None


def rules_of(database: sqlite3.Connection) -> AuditRules:
    """What was kept when the run began."""
    (text,) = database.execute("SELECT json FROM rules").fetchone()
    values = json.loads(text)
    return AuditRules(**{**values, "offers": tuple(values["offers"])})


def devices_of(database: sqlite3.Connection) -> tuple[AuditedDevice, ...]:
    """All devices of the run."""
    rows = database.execute("SELECT device, device_id, name FROM devices ORDER BY device")
    return tuple(AuditedDevice(*row) for row in rows)


def take_in_ledgers(run: Path, database: sqlite3.Connection) -> list[str]:
    """Copy the ledgers of workers into the run's database, and take their files away.

    Returns:
        What is not there, a sentence each; files that could not be read stay.
    """
    faults = []
    for path in _worker_ledgers(run):
        try:
            _take_in(path, database)
        except sqlite3.DatabaseError as error:
            if "full" in str(error):
                raise
            faults.append(f"{path.name} is damaged: {error}")
            continue
        for name in (path.name, f"{path.name}-wal", f"{path.name}-shm"):
            (run / name).unlink(missing_ok=True)
    with database:
        database.execute(_MARK_DEVICES)
    return [*faults, *_missing(database)]


def _missing(database: sqlite3.Connection) -> Iterator[str]:
    alone, whole = database.execute("SELECT sum(NOT has_ledger), count(*) FROM devices").fetchone()
    if alone:
        names = database.execute("SELECT name FROM devices WHERE NOT has_ledger ORDER BY device LIMIT 3")
        some = ", ".join(name for (name,) in names)
        yield f"{alone:,} of {whole:,} devices have no ledger ({some}): one of the folder is missing"
    for (worker,) in database.execute("SELECT worker FROM ledgers WHERE NOT ended ORDER BY worker"):
        yield f"the ledger of worker {worker} has no end: it was killed, and its last second may be missing"
    for worker, from_s, to_s, records, reason in database.execute("SELECT * FROM gaps ORDER BY worker, from_s"):
        yield (f"the ledger of worker {worker} lacks {records:,} records from {from_s:.0f} s to {to_s:.0f} s: {reason}")


def _worker_ledgers(run: Path) -> list[Path]:
    return sorted(run.glob("ledger-*.sqlite"))


def _take_in(path: Path, database: sqlite3.Connection) -> None:
    database.execute("ATTACH ? AS worker", (str(path),))
    try:
        with database:
            for table in LEDGER_TABLES:
                database.execute(f"INSERT INTO main.{table} SELECT * FROM worker.{table}")  # noqa: S608 - our own names
    finally:
        database.execute("DETACH worker")
