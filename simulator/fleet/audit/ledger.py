"""Ledgers: what devices and the operator did, recorded for the audit.

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
"""

from __future__ import annotations

import contextlib
import queue
import sqlite3
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal
from zlib import crc32

from agent.errors import ConfigurationError
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
final result. ``undeliverable``: nothing on the service takes it; it stays with the device, and nobody waits for it.
"""


class Ledger:
    """Where devices and the operator write down what they do. Calls are cheap, never block and never fail.

    The base of all ledgers, and the one of runs without an audit: it writes nothing.
    """

    def reading_sent(
        self, device: int, sequence: int, digest: int, recorded_ms: int | None, made_s: float, at_s: float
    ) -> None:
        """A reading goes out for the first time. To be called before its bytes go to the socket.

        Args:
            device: index in the fleet.
            sequence: its number.
            digest: of its values without the sequence number, :func:`~simulator.fleet.audit.digest.digest_values`.
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


LEDGER_TABLES: Final = ("ledgers", "gaps", "sendings", "answers", "command_events")
LEDGER_SCHEMA: Final = """
-- One row a worker. ended is 1 once everything is written down.
CREATE TABLE ledgers (worker INTEGER PRIMARY KEY, first_device INTEGER, devices INTEGER, ended INTEGER);
-- Events that are not in the ledger, from when to when and why.
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
_CHUNK_ROWS: Final = 20_000
_WAITING_MAX: Final = 16
_GAPS_KEPT: Final = 100
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

    def open(self, on_failure: OnFailure = lambda _name, _error: None) -> SqliteLedger:
        """Make the file.

        Args:
            on_failure: called in the writing thread when an error ends it.

        Raises:
            ConfigurationError: it cannot be made.
        """
        return SqliteLedger(self, on_failure)


@dataclass(frozen=True, slots=True)
class LedgerGap:
    """Events that are not in the ledger, made between two times since the run's begin."""

    from_s: float
    to_s: float
    records: int
    reason: str


class SqliteLedger(Ledger):
    """A ledger on disk; see :meth:`LedgerTarget.open`.

    Attributes:
        database: of the thread that writes, which alone uses it while it lives.
        counts: how many readings were ``sent``, and how many of each event there were until now.
    """

    def __init__(self, target: LedgerTarget, on_failure: OnFailure) -> None:
        self.database = _make(target)
        self.counts: Counter[str] = Counter()
        self._worker = target.worker
        self._began_ms = target.began_ms
        self._from_s = self._to_s = 0.0
        self._rows: _Rows = {table: [] for table in _INSERTS}
        self._gaps: list[LedgerGap] = []
        self._lock = threading.Lock()
        self._waiting: queue.Queue[tuple[_Rows, float, float] | None] = queue.Queue(_WAITING_MAX)
        self._is_written = self._is_closed = False
        self._thread = make_thread(self._run, f"ledger-{target.worker}", on_failure)
        self._thread.start()

    @property
    def gaps(self) -> tuple[LedgerGap, ...]:
        """What could not be written so far; neighbours with the same reason are one."""
        with self._lock:
            return tuple(self._gaps)

    @property
    def missed(self) -> int:
        """How many events could not be written down; the audit is not complete then."""
        return sum(gap.records for gap in self.gaps)

    def reading_sent(
        self, device: int, sequence: int, digest: int, recorded_ms: int | None, made_s: float, at_s: float
    ) -> None:
        """See :meth:`Ledger.reading_sent`."""
        self.counts["sent"] += 1
        rows = self._rows["sendings"]
        rows.append((device, sequence, int(at_s * 1000), int(made_s * 1000), recorded_ms, digest))
        self._to_s = at_s
        if len(rows) >= _CHUNK_ROWS:
            self.flush()

    def readings(self, event: ReadingEvent, device: int, sequences: Sequence[int], at_s: float) -> None:
        """See :meth:`Ledger.readings`."""
        self.counts[event] += len(sequences)
        rows, at_ms = self._rows["answers"], int(at_s * 1000)
        for sequence in sequences:
            rows.append((event, device, sequence, at_ms))
        self._to_s = at_s
        if len(rows) >= _CHUNK_ROWS:
            self.flush()

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
        """See :meth:`Ledger.command`."""
        del error
        self.counts[event] += 1
        if created_at is not None and created_at * 1000 < self._began_ms:
            detail = "older"
        rows = self._rows["command_events"]
        rows.append((event, device, plain_id(command_id), int(at_s * 1000), detail, attempt, digest))
        self._to_s = at_s
        if len(rows) >= _CHUNK_ROWS:
            self.flush()

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
        """Write what is left and the end; closing again does nothing. How many events are missing is returned.

        Without an end nobody takes it for a whole one: neither when the disk hangs, nor when an error has ended the
        thread that writes.
        """
        if self._is_closed:
            return self.missed
        self._is_closed = True
        self.flush()
        with contextlib.suppress(queue.Full):
            self._waiting.put(None, timeout=_STOP_S)
            self._thread.join(_STOP_S)
        if self._is_written:
            try:
                with self.database:
                    self._write_gaps()
                    self.database.execute("UPDATE ledgers SET ended = 1 WHERE worker = ?", (self._worker,))
            except sqlite3.Error as error:
                self._miss({}, self._from_s, self._to_s, f"the end of the ledger could not be written: {error}")
            self.database.close()
        return self.missed

    def _run(self) -> None:
        while (chunk := self._waiting.get()) is not None:
            rows, from_s, to_s = chunk
            try:
                with self.database:
                    self._write_gaps()
                    for table, insert in _INSERTS.items():
                        self.database.executemany(insert, rows[table])
            except sqlite3.Error as error:
                self._miss(rows, from_s, to_s, f"the ledger could not be written: {error}")
        self._is_written = True

    def _write_gaps(self) -> None:
        """Write them anew: the last one may have grown."""
        if self.gaps:
            rows = [(self._worker, gap.from_s, gap.to_s, gap.records, gap.reason) for gap in self.gaps]
            self.database.execute("DELETE FROM gaps")
            self.database.executemany("INSERT INTO gaps VALUES (?, ?, ?, ?, ?)", rows)

    def _miss(self, rows: _Rows, from_s: float, to_s: float, reason: str) -> None:
        count = sum(map(len, rows.values()))
        with self._lock:
            last = self._gaps[-1] if self._gaps else None
            if last is not None and (last.reason == reason or len(self._gaps) >= _GAPS_KEPT):
                self._gaps[-1] = replace(last, to_s=max(last.to_s, to_s), records=last.records + count)
            else:
                self._gaps.append(LedgerGap(from_s, to_s, count, reason))


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
