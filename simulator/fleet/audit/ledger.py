"""The ledger of one worker's devices: a SQLite file, written by a thread, one transaction a second.

A full, slow or missing disk never ends a run: what could not be written is a gap, which says when and why, and the
audit is not complete then. When the disk takes rows again, the ledger goes on. Nothing is synced: a killed worker loses
the last second, and that its row in ``ledgers`` has no end shows it.
"""

from __future__ import annotations

import contextlib
import json
import queue
import sqlite3
import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from agent.core.values import Contract, OutcomeStatus
from agent.errors import ConfigurationError
from simulator.fleet.audit.fleet_ledger import FleetLedger, LedgerCounts
from simulator.watched import OnFailure, PartEnded, make_thread

LEDGER_TABLES: Final = ("ledgers", "gaps", "sendings", "answers", "command_events")
LEDGER_SCHEMA: Final = """
-- One row a worker. ended is 1 once everything is written down; counts is JSON by then.
CREATE TABLE ledgers (worker INTEGER PRIMARY KEY, first_device INTEGER, devices INTEGER, ended INTEGER, counts TEXT);
-- Events that are not in the ledger, from when to when and why.
CREATE TABLE gaps (worker INTEGER, from_s REAL, to_s REAL, records INTEGER, reason TEXT);
-- The first time that a reading went out. Times are milliseconds since the run's begin, recorded_ms since the epoch.
CREATE TABLE sendings (device INTEGER, sequence INTEGER, at_ms INTEGER, made_ms INTEGER, recorded_ms INTEGER,
    digest INTEGER);
-- What else happened to it: resent, resent_after_refusal, accepted, refused, unanswered.
CREATE TABLE answers (kind TEXT, device INTEGER, sequence INTEGER, at_ms INTEGER);
-- ordered, order_unanswered, received, started, finished, reported. detail is the contract of started, the outcome of
-- finished, and 'older' of a command that is from before the run; digest is that of the payload or the result.
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

Row = tuple[Any, ...]


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


@dataclass(slots=True)
class _Chunk:
    """What was collected since the last flush, by table."""

    rows: dict[str, list[Row]]
    from_s: float
    to_s: float = 0.0

    @property
    def records(self) -> int:
        return sum(map(len, self.rows.values()))


class SqliteLedger(FleetLedger):
    """A :class:`~simulator.fleet.audit.fleet_ledger.FleetLedger` on disk; see :meth:`LedgerTarget.open`.

    Attributes:
        database: of the thread that writes, which alone uses it while it lives.
    """

    def __init__(self, target: LedgerTarget, on_failure: OnFailure) -> None:
        self._worker = target.worker
        self._began_ms = target.began_ms
        self.database = _make(target)
        self._chunk = _Chunk({table: [] for table in _INSERTS}, 0.0)
        self._sendings, self._answers, self._commands = self._chunk.rows.values()
        self._counts = dict.fromkeys(asdict(LedgerCounts()), 0)
        self._gaps: list[LedgerGap] = []
        self._lock = threading.Lock()
        self._waiting: queue.Queue[_Chunk | None] = queue.Queue(_WAITING_MAX)
        self._in_hand: _Chunk | None = None
        self._fault = ""
        self._closed = False
        self._on_failure = on_failure
        self._thread = make_thread(self._run, f"ledger-{target.worker}", self._fail)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def counts(self) -> LedgerCounts:
        """The audit so far."""
        return LedgerCounts(**{**self._counts, "missed": sum(gap.records for gap in self.gaps)})

    @property
    def gaps(self) -> tuple[LedgerGap, ...]:
        """What could not be written so far; neighbours with the same reason are one."""
        with self._lock:
            return tuple(self._gaps)

    # --- what happens -------------------------------------------------------------------------------------------------

    def reading_made(self, device: int) -> None:
        """Only counted; see :class:`FleetLedger` for all of these."""
        self._counts["made"] += 1

    def reading_sent(
        self, device: int, sequence: int, digest: int, *, recorded_ms: int | None, made_s: float, at_s: float
    ) -> None:
        """A reading goes out for the first time."""
        self._counts["sent"] += 1
        self._sendings.append((device, sequence, _ms(at_s), _ms(made_s), recorded_ms, digest))
        self._chunk.to_s = at_s
        if len(self._sendings) >= _CHUNK_ROWS:
            self.flush()

    def readings_resent(self, device: int, sequences: Sequence[int], at_s: float, *, ambiguous: bool) -> None:
        """Readings go out again."""
        self._counts["resent"] += len(sequences)
        self._counts["resent_ambiguous"] += len(sequences) if ambiguous else 0
        self._answer("resent" if ambiguous else "resent_after_refusal", device, sequences, at_s)

    def readings_accepted(self, device: int, sequences: Sequence[int], at_s: float) -> None:
        """The service answered 2xx for these."""
        self._counts["accepted"] += len(sequences)
        self._answer("accepted", device, sequences, at_s)

    def readings_refused(self, device: int, sequences: Sequence[int], at_s: float) -> None:
        """The service refused these for good."""
        self._counts["refused"] += len(sequences)
        self._answer("refused", device, sequences, at_s)

    def readings_unanswered(self, device: int, sequences: Sequence[int], at_s: float) -> None:
        """No answer, or one that leaves it open."""
        self._counts["unanswered"] += len(sequences)
        self._answer("unanswered", device, sequences, at_s)

    def command_ordered(self, device: int, command_id: str, at_s: float, payload: int | None = None) -> None:
        """The service took an operator's command."""
        self._counts["ordered"] += 1
        self._command("ordered", device, command_id, at_s, digest=payload)

    def order_unanswered(self, device: int, at_s: float) -> None:
        """An operator's command got no answer."""
        self._counts["orders_unanswered"] += 1
        self._command("order_unanswered", device, "", at_s)

    def command_received(
        self, device: int, command_id: str, at_s: float, created_at: float | None = None, payload: int | None = None
    ) -> None:
        """The device admitted a command to its journal."""
        self._counts["received"] += 1
        is_older = created_at is not None and created_at * 1000 < self._began_ms
        self._command("received", device, command_id, at_s, "older" if is_older else None, digest=payload)

    def command_started(self, device: int, command_id: str, contract: Contract, attempt: int, at_s: float) -> None:
        """The effect begins."""
        self._counts["effects"] += 1
        self._command("started", device, command_id, at_s, str(contract), attempt)

    def command_finished(
        self,
        device: int,
        command_id: str,
        status: OutcomeStatus,
        at_s: float,
        error: str | None = None,
        result: int | None = None,
    ) -> None:
        """The device ended a command; one that expired is written as rejected."""
        self._counts["finished"] += 1
        self._command("finished", device, command_id, at_s, str(status), digest=result)

    def command_reported(self, device: int, command_id: str, at_s: float) -> None:
        """The service took the final result."""
        self._counts["reported"] += 1
        self._command("reported", device, command_id, at_s)

    # --- on its way to the disk ---------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Hand what was collected to the thread that writes. To be called each second; returns at once."""
        chunk = self._chunk
        if not chunk.records:
            return
        self._chunk = _Chunk({table: [] for table in _INSERTS}, chunk.to_s, chunk.to_s)
        self._sendings, self._answers, self._commands = self._chunk.rows.values()
        try:
            self._waiting.put_nowait(chunk)
        except queue.Full:
            self._miss(chunk, self._fault or "the disk is slower than the run")
        if self._fault:  # only after it: whatever is put before the thread says so, the thread counts as missed
            self._drop_queued()

    def close(self) -> tuple[LedgerGap, ...]:
        """Write what is left and the end; closing again does nothing. The gaps are returned."""
        if self._closed:
            return self.gaps
        self._closed = True
        self.flush()
        with contextlib.suppress(queue.Full):
            self._waiting.put(None, timeout=_STOP_S)
            self._thread.join(_STOP_S)
        if self._fault:
            self._drop_queued()
        elif self._thread.is_alive():
            self._miss(self._chunk, "the disk did not take the end of the ledger in time")
            return self.gaps
        try:
            with self.database:
                self._write_gaps()
                if not self._fault:  # without an end nobody takes it for a whole one
                    end = (json.dumps(asdict(self.counts)), self._worker)
                    self.database.execute("UPDATE ledgers SET ended = 1, counts = ? WHERE worker = ?", end)
        except sqlite3.Error as error:
            self._miss(self._chunk, f"the end of the ledger could not be written: {error}")
        self.database.close()
        return self.gaps

    def _answer(self, kind: str, device: int, sequences: Sequence[int], at_s: float) -> None:
        at_ms = _ms(at_s)
        self._answers += [(kind, device, sequence, at_ms) for sequence in sequences]
        self._chunk.to_s = at_s
        if len(self._answers) >= _CHUNK_ROWS:
            self.flush()

    def _command(
        self,
        kind: str,
        device: int,
        command_id: str,
        at_s: float,
        detail: str | None = None,
        attempt: int = 0,
        digest: int | None = None,
    ) -> None:
        self._commands.append((kind, device, plain_id(command_id), _ms(at_s), detail, attempt, digest))
        self._chunk.to_s = at_s
        if len(self._commands) >= _CHUNK_ROWS:
            self.flush()

    def _run(self) -> None:
        while (chunk := self._waiting.get()) is not None:
            self._in_hand = chunk
            try:
                with self.database:
                    self._write_gaps()
                    for table, rows in chunk.rows.items():
                        self.database.executemany(_INSERTS[table], rows)
            except sqlite3.Error as error:
                self._miss(chunk, f"the ledger could not be written: {error}")
            self._in_hand = None

    def _write_gaps(self) -> None:
        """Write them anew: the last one may have grown."""
        if self.gaps:
            rows = [(self._worker, gap.from_s, gap.to_s, gap.records, gap.reason) for gap in self.gaps]
            self.database.execute("DELETE FROM gaps")
            self.database.executemany("INSERT INTO gaps VALUES (?, ?, ?, ?, ?)", rows)

    def _fail(self, name: str, error: BaseException) -> None:
        """The last thing that the thread does when an error ends it."""
        self._fault = f"{PartEnded(name, error)}"
        self._miss(self._in_hand or self._chunk, self._fault)
        self._drop_queued()
        self._on_failure(name, error)

    def _drop_queued(self) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                if (chunk := self._waiting.get_nowait()) is not None:
                    self._miss(chunk, self._fault)

    def _miss(self, chunk: _Chunk, reason: str) -> None:
        new = LedgerGap(chunk.from_s, chunk.to_s, chunk.records, reason)
        with self._lock:
            last = self._gaps[-1] if self._gaps else None
            if last is not None and (last.reason == reason or len(self._gaps) >= _GAPS_KEPT):
                records = last.records + new.records
                self._gaps[-1] = replace(last, to_s=max(last.to_s, new.to_s), records=records)
            else:
                self._gaps.append(new)


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
            database.execute("INSERT INTO ledgers VALUES (?, ?, ?, 0, NULL)", row)
    except (OSError, sqlite3.Error) as error:
        raise ConfigurationError([f"{path}: the ledger cannot be made: {error}"], "--out") from None
    return database


def plain_id(command_id: str) -> str:
    """A command's id as UTF-8 can have it: JSON may hold half of a surrogate pair."""
    return command_id.encode("utf-8", "backslashreplace").decode()


def _ms(seconds: float) -> int:
    return int(seconds * 1000) if seconds > 0 else 0
