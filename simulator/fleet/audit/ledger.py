"""Ledgers: what devices and the operator did, recorded for the audit; and the run's database, which takes them in.

One ledger serves all devices of a worker; a device is its index in the fleet. A reading is known by its *sequence
number*: 1, 2, 3, ... for each device, never used again, not even after a restart. It travels as one more number beside
the signals, :data:`SEQUENCE_NAME`. On the wire it counts from the run's first number (:func:`first_number_of`), so that
another run with the same devices has others. Where it is switched off, readings are identified by the millisecond that
they carry, and each of a device has to carry another one.

Times are seconds since the run's begin, on one monotonic clock for all workers of a machine: the audit compares them.

On disk a ledger is a SQLite file, written by a thread, one transaction a second. A full, slow or missing disk never
ends a run: what could not be written is a gap, which says when and why, and the audit is not complete then. When the
disk takes rows again, the ledger goes on. Nothing is synced: a killed worker loses the last second, and that its row in
``ledgers`` has no end shows it.

``run.sqlite`` in a run's folder has its devices, the ledgers of all workers, what came back, and what is wrong. While
the run goes on each worker has a ledger of its own beside it; an audit takes them in, one after the other. The tables
``readings``, ``commands`` and ``findings`` are for people, too: ``sqlite3 run.sqlite``.
"""

from __future__ import annotations

import contextlib
import json
import queue
import sqlite3
import struct
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple
from zlib import crc32

from pydantic import BaseModel, ConfigDict

from agent.config.model import AUTO, DialectConfig
from agent.errors import ConfigurationError, StorageError
from agent.wire.encoding import encode_json
from agent.wire.server import COMMAND_RESULTS, COMMAND_STATUS
from simulator.watched import OnFailure, make_thread

SEQUENCE_NAME: Final = "fleet_sequence"
"""The reserved name of the reading that carries the sequence number."""
NUMBERS_OF_A_RUN: Final = 2**32
"""So many numbers belong to each run. With 2**20 runs all are below 2**53, which a double holds exactly."""
_RUNS: Final = 2**20


def first_number_of(run: str) -> int:
    """Where a run's numbers begin on the wire: number 1 of a device travels as this plus 1.

    Args:
        run: its name. Two of a million have the same begin, and matter only on the same devices.
    """
    return crc32(run.encode()) % _RUNS * NUMBERS_OF_A_RUN


ReadingEvent = Literal["resent", "resent_after_refusal", "accepted", "refused", "unanswered"]
"""What happened to readings after they were sent for the first time.

``resent``: they went out again, and the service may have had them already; ``resent_after_refusal``: after it had
refused them each time. ``accepted``: it answered 2xx. ``refused``: it refused them for good, and they are not sent
again. ``unanswered``: no answer came, or one that leaves it open (5xx): it may have stored them or not.
"""
CommandEvent = Literal["ordered", "order_unanswered", "received", "started", "finished", "reported", "undeliverable"]
"""What happened to a command.

``ordered``: the service took it from the operator and gave it its id; the digest is that of what was sent.
``order_unanswered``: the operator got no answer: it may exist or not, and its id is not known. ``received``: a device
wrote it into its journal for the first time; the digest is that of the payload that came. ``started``: the effect
begins, written before the work; the detail is the handler's contract. ``finished``: the device decided how it ended,
also without an effect; the detail is the outcome, the digest that of the result. ``reported``: the service took the
final result. ``undeliverable``: nothing on the service takes it; it stays with the device, and is not waited for.
"""


class Ledger:
    """Where devices and the operator write down what they do. Calls are cheap, never block and never fail.

    The base of all ledgers, and the one of runs without an audit: it writes nothing.
    """

    def digest(self, values: Mapping[str, float]) -> int:
        """Of a reading's values without the sequence number, for :meth:`reading_sent`; 0 where nothing is written."""
        del values
        return 0

    def reading_sent(
        self, device: int, sequence: int, digest: int, recorded_ms: int | None, made_s: float, at_s: float
    ) -> None:
        """A reading goes out for the first time. To be called before its bytes go to the socket.

        Args:
            device: index in the fleet.
            sequence: its number.
            digest: of its values, :meth:`digest`.
            recorded_ms: the time that it carries, epoch milliseconds; None when it carries none.
            made_s: when the sensor was read.
            at_s: now.
        """

    def readings(self, event: ReadingEvent, device: int, sequences: Sequence[int], at_s: float) -> None:
        """Something happened to readings of a device, known by their numbers."""

    def command(
        self,
        event: CommandEvent,
        device: int,
        command_id: str,
        at_s: float,
        *,
        detail: str | None = None,
        attempt: int = 0,
        digest: int | None = None,
        created_at: float | None = None,
        error: str | None = None,
    ) -> None:
        """Something happened to a command.

        Args:
            event: what.
            device: index in the fleet.
            command_id: the service's; empty while it is not known.
            at_s: now.
            detail: the handler's contract, or the outcome.
            attempt: with ``started``: 1 for the first run; more when the power went in the middle.
            digest: of the payload or the result.
            created_at: with ``received``: when the service made it, epoch seconds; None when it does not say.
            error: with ``finished``: why it did not succeed, a word and a sentence: ``expired: ...``.
        """


# --- on disk ----------------------------------------------------------------------------------------------------------

LEDGER_TABLES: Final = ("ledgers", "gaps", "sendings", "answers", "command_events")
LEDGER_SCHEMA: Final = """
-- One row a worker. ended is 1 once everything is written down.
CREATE TABLE ledgers (worker INTEGER PRIMARY KEY, first_device INTEGER, devices INTEGER, ended INTEGER);
-- Events that are not in a ledger, from when to when and why the last of them; written at its end.
CREATE TABLE gaps (worker INTEGER, from_s REAL, to_s REAL, records INTEGER, reason TEXT);
-- The first time that a reading went out. Times are milliseconds since the run's begin, recorded_ms since the epoch.
CREATE TABLE sendings (device INTEGER, sequence INTEGER, at_ms INTEGER, made_ms INTEGER, recorded_ms INTEGER,
    digest INTEGER);
-- What else happened to it: resent, resent_after_refusal, accepted, refused, unanswered.
CREATE TABLE answers (kind TEXT, device INTEGER, sequence INTEGER, at_ms INTEGER);
-- ordered, order_unanswered, received, started, finished, reported, undeliverable. detail is the contract of started,
-- the outcome of finished, and 'older' of a command that is from before the run; digest is that of the payload or the
-- result.
CREATE TABLE command_events (kind TEXT, device INTEGER, command_id TEXT, at_ms INTEGER, detail TEXT, attempt INTEGER,
    digest INTEGER);
"""
_WAITING_MAX: Final = 16
_STOP_S: Final = 30.0
_INSERTS: Final = {
    "sendings": "INSERT INTO sendings VALUES (?, ?, ?, ?, ?, ?)",
    "answers": "INSERT INTO answers VALUES (?, ?, ?, ?)",
    "command_events": "INSERT INTO command_events VALUES (?, ?, ?, ?, ?, ?, ?)",
}
_Rows = dict[str, list[tuple[Any, ...]]]
"""What was collected since the last flush, by table."""


@dataclass(frozen=True, slots=True)
class LedgerTarget:
    """Where a worker's ledger goes and whose it is, to be opened in its process; can be pickled.

    Attributes:
        path: the file, which must not exist.
        first_device, devices: the range of indices.
        began_ms: the run's begin, epoch milliseconds.
        numbered: readings carry their sequence numbers.
        first_number: on the wire these count from here.
    """

    path: Path
    worker: int
    first_device: int
    devices: int
    began_ms: int
    numbered: bool = True
    first_number: int = 0


class LedgerGap(NamedTuple):
    """Events that are not in the ledger: made between two times since the run's begin, and why the last one is not."""

    from_s: float
    to_s: float
    records: int
    reason: str


class SqliteLedger(Ledger):
    """A ledger on disk, made anew.

    Args:
        target: where it goes.
        on_failure: called in the writing thread when an error ends it.

    Attributes:
        database: of the thread that writes, which alone uses it while it lives.
        counts: how many readings were ``sent``, and how many of each event there were until now.
        gap: what could not be written so far.

    Raises:
        ConfigurationError: it cannot be made.
    """

    def __init__(self, target: LedgerTarget, on_failure: OnFailure = lambda _name, _error: None) -> None:
        self.database = _make(target)
        self.counts: Counter[str] = Counter()
        self.gap: LedgerGap | None = None
        self._worker = target.worker
        self._began_ms = target.began_ms
        self._from_s = self._to_s = 0.0
        self._rows: _Rows = {table: [] for table in _INSERTS}
        self._lock = threading.Lock()
        self._waiting: queue.Queue[tuple[_Rows, float, float] | None] = queue.Queue(_WAITING_MAX)
        self._is_written = False
        self._thread = make_thread(self._run, f"ledger-{target.worker}", on_failure)
        self._thread.start()

    def digest(self, values: Mapping[str, float]) -> int:
        """See :meth:`Ledger.digest`."""
        return digest_values(values)

    def reading_sent(
        self, device: int, sequence: int, digest: int, recorded_ms: int | None, made_s: float, at_s: float
    ) -> None:
        """See :meth:`Ledger.reading_sent`."""
        self.counts["sent"] += 1
        row = device, sequence, int(at_s * 1000), int(made_s * 1000), recorded_ms, digest
        self._rows["sendings"].append(row)
        self._to_s = at_s

    def readings(self, event: ReadingEvent, device: int, sequences: Sequence[int], at_s: float) -> None:
        """See :meth:`Ledger.readings`."""
        self.counts[event] += len(sequences)
        rows, at_ms = self._rows["answers"], int(at_s * 1000)
        for sequence in sequences:
            rows.append((event, device, sequence, at_ms))
        self._to_s = at_s

    def command(self, event: CommandEvent, device: int, command_id: str, at_s: float, **facts: Any) -> None:
        """See :meth:`Ledger.command`."""
        self.counts[event] += 1
        created_at, detail = facts.get("created_at"), facts.get("detail")
        if created_at is not None and created_at * 1000 < self._began_ms:
            detail = "older"
        rest = detail, facts.get("attempt", 0), facts.get("digest")
        self._rows["command_events"].append((event, device, plain_id(command_id), int(at_s * 1000), *rest))
        self._to_s = at_s

    # --- on its way to the disk ---------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Hand what was collected to the thread that writes. To be called each second; returns at once."""
        if not any(self._rows.values()):
            return
        rows, from_s, self._from_s = self._rows, self._from_s, self._to_s
        self._rows = {table: [] for table in _INSERTS}
        try:
            self._waiting.put_nowait((rows, from_s, self._to_s))
        except queue.Full:
            self._miss(rows, from_s, self._to_s, "the disk is slower than the run")

    def close(self) -> int:
        """Write what is left, and mark the ledger as ended.

        When the disk hangs, or an error has ended the thread that writes, the mark is missing: then it does not count
        as complete.

        Returns:
            How many events are missing; the audit is not complete then.
        """
        self.flush()
        with contextlib.suppress(queue.Full):
            self._waiting.put(None, timeout=_STOP_S)
            self._thread.join(_STOP_S)
        if self._is_written:
            try:
                with self.database:
                    if self.gap:
                        row = self._worker, *self.gap
                        self.database.execute("INSERT INTO gaps VALUES (?, ?, ?, ?, ?)", row)
                    self.database.execute("UPDATE ledgers SET ended = 1 WHERE worker = ?", (self._worker,))
            except sqlite3.Error as error:
                self._miss({}, self._from_s, self._to_s, f"the end of the ledger could not be written: {error}")
            self.database.close()
        return self.gap.records if self.gap else 0

    def _run(self) -> None:
        while (chunk := self._waiting.get()) is not None:
            rows, from_s, to_s = chunk
            try:
                with self.database:
                    for table, insert in _INSERTS.items():
                        self.database.executemany(insert, rows[table])
            except sqlite3.Error as error:
                self._miss(rows, from_s, to_s, f"the ledger could not be written: {error}")
        self._is_written = True

    def _miss(self, rows: _Rows, from_s: float, to_s: float, reason: str) -> None:
        with self._lock:
            gap = self.gap or LedgerGap(from_s, to_s, 0, reason)
            count = gap.records + sum(map(len, rows.values()))
            self.gap = LedgerGap(min(gap.from_s, from_s), max(gap.to_s, to_s), count, reason)


def _make(target: LedgerTarget) -> sqlite3.Connection:
    path = target.path
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(exist_ok=False)
        database = sqlite3.connect(path, check_same_thread=False)
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = OFF")
        database.executescript(LEDGER_SCHEMA)
        with database:
            row = (target.worker, target.first_device, target.devices)
            database.execute("INSERT INTO ledgers VALUES (?, ?, ?, 0)", row)
    except (OSError, sqlite3.Error) as error:
        raise ConfigurationError([f"{path}: the ledger cannot be made: {error}"], "--out") from None
    return database


def plain_id(command_id: str) -> str:
    """A command's id as UTF-8 can have it: JSON may hold half of a surrogate pair."""
    return command_id.encode("utf-8", "backslashreplace").decode()


# --- a reading's values in 32 bits, the same before the wire and after it ---------------------------------------------
#
# JSON has one kind of number (RFC 8259, section 6): 21, 21.0 and 2.1e1 are the same value, and a double is what every
# implementation can keep. So the digest is made of the names and of doubles. One alteration in 4,294,967,296 is missed.

_NUMBERS: Final = frozenset({int, float})


@lru_cache(maxsize=4096)
def _shape(names: tuple[str, ...]) -> tuple[tuple[str, ...], Callable[..., bytes], int]:
    """The names sorted, how their values are packed, and the checksum to begin with."""
    ordered = tuple(sorted(names))
    return ordered, struct.Struct(f"<{len(ordered)}d").pack, crc32(encode_json(ordered))


def digest_values(values: Mapping[str, Any]) -> int:
    """The digest of named numbers: 0 to 2**32 - 1, whatever their order.

    Args:
        values: named numbers, without the sequence number. What is no number counts as altered: it gets a digest that
            no numbers get on purpose.
    """
    names, pack, begin = _shape(tuple(values))
    if _NUMBERS.issuperset(map(type, values.values())):
        try:
            # -0.0 is written as 0 by some: the sum with 0.0 makes them one.
            return crc32(pack(*[values[name] + 0.0 for name in names]), begin)
        except OverflowError:
            pass
    return crc32(repr([values[name] for name in names]).encode("utf-8", "surrogatepass"), ~begin & 0xFFFFFFFF)


def digest_document(value: Any) -> int:
    """The digest of a JSON value: 0 to 2**32 - 1, whatever the order of its members and the spelling of its numbers."""
    return crc32(json.dumps(_plain(value), sort_keys=True, separators=(",", ":")).encode())


def _plain(value: Any) -> Any:
    """The value with whole numbers as integers: ``21.0`` and ``21`` are the same number in JSON."""
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


# --- the run's database -----------------------------------------------------------------------------------------------

DATABASE: Final = "run.sqlite"
LEDGERS: Final = "ledger-*.sqlite"
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


class AuditedDevice(NamedTuple):
    """A device of the run.

    Attributes:
        device: index in the fleet, as the ledgers have it.
        device_id: the service's.
        name: for a person.
    """

    device: int
    device_id: str
    name: str


class AuditRules(BaseModel):
    """What the audit of a run goes by; kept with it, so that a later audit goes by the same.

    Attributes:
        began_ms: the run's begin, epoch milliseconds.
        offers: the extensions that the service offers. With ``idempotency-key`` a resend must not make a second
            reading; with ``command-results`` the list of commands must have their results.
        first_number: on the wire sequence numbers count from here; others are another run's.
        numbered: readings carry their sequence numbers.
        dialect: how the service speaks, as the scenario says.
        device_filter: the query parameter by which it gives one device's readings, as the scenario says.
        dated_when_made: the times that readings carry are meant to be those at which they were made: not in a run whose
            scenario makes clocks wrong, and not where readings are of the past, or of no device.
        refusals_planned: the run makes readings on purpose that a service refuses.
    """

    model_config = ConfigDict(frozen=True)

    began_ms: int
    offers: frozenset[str] = frozenset()
    first_number: int = 0
    numbered: bool = True
    dialect: DialectConfig = DialectConfig()
    device_filter: str | None = None
    dated_when_made: bool = False
    refusals_planned: bool = False

    @property
    def lists_are_whole(self) -> bool:
        """Whether the list of a device's commands is known to hold all, and to take none away from the device."""
        lists = self.dialect.command_lists
        return lists == "everything" or (lists == AUTO and COMMAND_STATUS in self.offers)

    @property
    def results_table(self) -> str | None:
        """Where results are rows: where the service has no results of commands, unless the scenario says otherwise."""
        place = self.dialect.results
        as_rows = place == "table" or (place == AUTO and COMMAND_RESULTS not in self.offers)
        return self.dialect.results_table if as_rows else None


def ledger_path(run: Path, worker: int) -> Path:
    """Where a worker's ledger is while the run goes on."""
    return run / f"ledger-{worker:03d}.sqlite"


def make_run_database(run: Path, rules: AuditRules, devices: Iterable[tuple[str, str]]) -> None:
    """Make the database of a run that begins.

    Args:
        run: its folder.
        rules: of its audit.
        devices: the service's id and the name of each, in the order of their numbers.

    Raises:
        ConfigurationError: it cannot be written.
    """
    path = run / DATABASE
    try:
        run.mkdir(parents=True, exist_ok=True)
        with contextlib.closing(sqlite3.connect(path)) as database:
            database.executescript(_SCHEMA)
            with database:
                database.execute("INSERT INTO rules VALUES (?)", (rules.model_dump_json(),))
                rows = ((number, *device) for number, device in enumerate(devices))
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
    return AuditRules.model_validate_json(text)


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
    for path in sorted(run.glob(LEDGERS)):
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


def _take_in(path: Path, database: sqlite3.Connection) -> None:
    database.execute("ATTACH ? AS worker", (str(path),))
    try:
        with database:
            for table in LEDGER_TABLES:
                database.execute(f"INSERT INTO main.{table} SELECT * FROM worker.{table}")  # noqa: S608 - our own names
    finally:
        database.execute("DETACH worker")
