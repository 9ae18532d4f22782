"""The ledger of one worker's devices on disk: a file that only grows.

Records are collected in memory and handed to a thread at each :meth:`FileLedger.flush`, once a second and whenever a
bound is reached; the thread deflates and writes. Both are bounded: what collects, and what the thread has not written
yet. A full, slow or missing disk never ends a run: what could not be written is a gap, which says when and why, and
the audit is not complete then. When the disk takes bytes again, the ledger goes on.

Nothing is synced: a killed worker loses what it has not handed over, the last second; the machine's own power is not
what is being proven.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from agent.core.values import Contract, OutcomeStatus
from agent.errors import ConfigurationError
from simulator.fleet.audit.fleet_ledger import FleetLedger, LedgerCounts
from simulator.fleet.audit.ledger_format import (
    CONTRACTS,
    COUNT_MAX,
    LEDGER_FORMAT,
    NO_TIME,
    READING_RECORD,
    STATUSES,
    CommandKind,
    LedgerGap,
    LedgerHeader,
    ReadingKind,
    make_json_frame,
    make_records_frame,
    pack_command,
)
from simulator.watched import OnFailure, PartEnded, make_thread

_CHUNK_BYTES: Final = 1024 * 1024
_WAITING_MAX: Final = 16
_GAPS_KEPT: Final = 100
_STOP_S: Final = 30.0
_SENT, _RESENT, _ACCEPTED, _REFUSED, _UNANSWERED, _AFTER_REFUSAL = (int(kind) for kind in ReadingKind)
_STATUS_INDEX: Final = {status: index for index, status in enumerate(STATUSES)}
_CONTRACT_INDEX: Final = {contract: index for index, contract in enumerate(CONTRACTS)}

Write = Callable[[int, bytes], int]
"""As :func:`os.write`."""


@dataclass(frozen=True, slots=True)
class _Chunk:
    """What was collected since the last flush.

    Attributes:
        from_s, to_s: when, since the run's begin.
    """

    readings: bytearray
    commands: bytearray
    records: int
    from_s: float
    to_s: float


class FileLedger(FleetLedger):
    """A :class:`~simulator.fleet.audit.fleet_ledger.FleetLedger` on disk, for one thread that writes it down.

    Args:
        path: the file, which must not exist.
        header: whose ledger it is.
        write: writes bytes to a descriptor, :func:`os.write` but in tests.
        on_failure: called in the writing thread when an error ends it. What it has not written then, and whatever comes
            later, is a gap, and the file gets no end.

    Raises:
        ConfigurationError: the file cannot be made.
    """

    def __init__(
        self,
        path: Path,
        header: LedgerHeader,
        *,
        write: Write = os.write,
        on_failure: OnFailure = lambda _name, _error: None,
    ) -> None:
        self._file = _File(path, write)
        self._file.append(make_json_frame(b"H", {"format": LEDGER_FORMAT, **asdict(header)}))
        self._readings = bytearray()
        self._commands = bytearray()
        self._began_ms = header.began_ms
        self._records = 0
        self._from_s = self._to_s = 0.0
        self._made = self._sent = self._accepted = self._refused = self._resent = self._unanswered = 0
        self._resent_ambiguous = 0
        self._by_kind = [0] * (max(CommandKind) + 1)
        self._waiting: queue.Queue[_Chunk | None] = queue.Queue(_WAITING_MAX)
        self._closed = False
        self._in_hand: _Chunk | None = None
        self._fault = ""
        self._on_failure = on_failure
        self._thread = make_thread(self._run, f"ledger-{header.worker}", self._fail)
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
        by_kind = self._by_kind
        return LedgerCounts(
            made=self._made,
            sent=self._sent,
            accepted=self._accepted,
            refused=self._refused,
            resent=self._resent,
            unanswered=self._unanswered,
            ordered=by_kind[CommandKind.ORDERED],
            received=by_kind[CommandKind.RECEIVED],
            effects=by_kind[CommandKind.STARTED],
            finished=by_kind[CommandKind.FINISHED],
            reported=by_kind[CommandKind.REPORTED],
            orders_unanswered=by_kind[CommandKind.ORDER_UNANSWERED],
            missed=self._file.missed,
            resent_ambiguous=self._resent_ambiguous,
        )

    @property
    def gaps(self) -> tuple[LedgerGap, ...]:
        """What could not be written so far; neighbours with the same reason are one."""
        return self._file.gaps

    def reading_made(self, device: int) -> None:
        """A sensor was read, and the reading waits to be sent. Only counted. See :meth:`FleetLedger.reading_made`."""
        self._made += 1

    def reading_sent(
        self, device: int, sequence: int, digest: int, *, recorded_ms: int | None, made_s: float, at_s: float
    ) -> None:
        """A reading goes out for the first time. To be called before its bytes go to the socket."""
        self._sent += 1
        recorded = NO_TIME if recorded_ms is None else recorded_ms
        made_ms = int(made_s * 1000) if made_s > 0 else 0
        self._readings += READING_RECORD.pack(
            _SENT, 1, device, sequence, digest, int(at_s * 1000) if at_s > 0 else 0, made_ms, recorded
        )
        self._records += 1
        self._to_s = at_s
        if len(self._readings) >= _CHUNK_BYTES:
            self.flush()

    def readings_resent(self, device: int, sequences: Sequence[int], at_s: float, *, ambiguous: bool) -> None:
        """Readings that were sent before go out again. See :meth:`FleetLedger.readings_resent`."""
        self._resent += len(sequences)
        if ambiguous:
            self._resent_ambiguous += len(sequences)
        self._put(_RESENT if ambiguous else _AFTER_REFUSAL, device, sequences, at_s)

    def readings_accepted(self, device: int, sequences: Sequence[int], at_s: float) -> None:
        """The service answered 2xx for these. See :meth:`FleetLedger.readings_accepted`."""
        self._accepted += len(sequences)
        self._put(_ACCEPTED, device, sequences, at_s)

    def readings_refused(self, device: int, sequences: Sequence[int], at_s: float) -> None:
        """The service refused these for good: they are not sent again. See :meth:`FleetLedger.readings_refused`."""
        self._refused += len(sequences)
        self._put(_REFUSED, device, sequences, at_s)

    def readings_unanswered(self, device: int, sequences: Sequence[int], at_s: float) -> None:
        """No answer came, or one that leaves it open (5xx): the service may have stored them or not."""
        self._unanswered += len(sequences)
        self._put(_UNANSWERED, device, sequences, at_s)

    def command_ordered(self, device: int, command_id: str, at_s: float) -> None:
        """The service took an operator's command for this device, and gave it this id."""
        self._note(CommandKind.ORDERED, device, command_id, at_s)

    def order_unanswered(self, device: int, at_s: float) -> None:
        """An operator's command got no answer: it may exist or not, and its id is not known."""
        self._note(CommandKind.ORDER_UNANSWERED, device, "", at_s)

    def command_received(self, device: int, command_id: str, at_s: float, created_at: float | None = None) -> None:
        """The device admitted a command to its journal. See :meth:`FleetLedger.command_received`."""
        is_older = created_at is not None and created_at * 1000 < self._began_ms
        self._note(CommandKind.RECEIVED, device, command_id, at_s, detail=int(is_older))

    def command_started(self, device: int, command_id: str, contract: Contract, attempt: int, at_s: float) -> None:
        """The effect begins. To be called before the work. See :meth:`FleetLedger.command_started`."""
        self._note(CommandKind.STARTED, device, command_id, at_s, detail=_CONTRACT_INDEX[contract], attempt=attempt)

    def command_finished(
        self, device: int, command_id: str, status: OutcomeStatus, at_s: float, error: str | None = None
    ) -> None:
        """Write that a device ended a command; one that expired is written as rejected."""
        del error
        self._note(CommandKind.FINISHED, device, command_id, at_s, detail=_STATUS_INDEX[status])

    def command_reported(self, device: int, command_id: str, at_s: float) -> None:
        """The service took the final result. See :meth:`FleetLedger.command_reported`."""
        self._note(CommandKind.REPORTED, device, command_id, at_s)

    def result_put_aside(self, device: int, command_id: str) -> None:
        """Nothing on the service takes the final result: it stays with the device, and nobody waits for it.

        See :meth:`FleetLedger.result_put_aside`; on disk it is a command that finished and was never reported.
        """

    def flush(self) -> None:
        """Hand what was collected to the thread that writes. To be called each second; returns at once."""
        if not self._records:
            return
        chunk = _Chunk(self._readings, self._commands, self._records, self._from_s, self._to_s)
        self._readings, self._commands, self._records, self._from_s = bytearray(), bytearray(), 0, self._to_s
        try:
            self._waiting.put_nowait(chunk)
        except queue.Full:
            self._file.miss(chunk.from_s, chunk.to_s, chunk.records, self._fault or "the disk is slower than the run")
        if self._fault:  # only after it: whatever is put before the thread says so, the thread counts as missed
            self._drop_queued()

    def close(self) -> tuple[LedgerGap, ...]:
        """Write what is left and the end. Closing again does nothing.

        Returns:
            The gaps.
        """
        if self._closed:
            return self.gaps
        self._closed = True
        self.flush()
        try:
            self._waiting.put(None, timeout=_STOP_S)
        except queue.Full:
            pass
        else:
            self._thread.join(_STOP_S)
        if self._fault:
            self._drop_queued()
            self._file.append(b"")  # the gaps; without an end nobody takes it for a whole one
            self._file.close()
            return self.gaps
        if self._thread.is_alive():
            self._file.miss(self._from_s, self._to_s, 0, "the disk did not take the end of the ledger in time")
            return self.gaps
        if self._file.append(make_json_frame(b"E", asdict(self.counts))) is not None:
            self._file.miss(self._to_s, self._to_s, 0, "the end of the ledger could not be written")
        self._file.close()
        return self.gaps

    def _put(self, kind: int, device: int, sequences: Sequence[int], at_s: float) -> None:
        at_ms = int(at_s * 1000) if at_s > 0 else 0
        self._to_s = at_s
        if len(sequences) == 1:
            self._readings += READING_RECORD.pack(kind, 1, device, sequences[0], 0, at_ms, 0, 0)
            self._records += 1
            return
        for first, count in _runs(sequences):
            self._readings += READING_RECORD.pack(kind, count, device, first, 0, at_ms, 0, 0)
            self._records += 1

    def _note(
        self, kind: CommandKind, device: int, command_id: str, at_s: float, *, detail: int = 0, attempt: int = 0
    ) -> None:
        self._by_kind[kind] += 1
        self._commands += pack_command(
            kind, device, command_id, int(at_s * 1000) if at_s > 0 else 0, detail=detail, attempt=attempt
        )
        self._records += 1
        self._to_s = at_s
        if len(self._commands) >= _CHUNK_BYTES:
            self.flush()

    def _run(self) -> None:
        while (chunk := self._waiting.get()) is not None:
            self._in_hand = chunk
            frames = b""
            if chunk.readings:
                frames += make_records_frame(b"R", chunk.readings)
            if chunk.commands:
                frames += make_records_frame(b"C", chunk.commands)
            fault = self._file.append(frames)
            if fault is not None:
                self._file.miss(chunk.from_s, chunk.to_s, chunk.records, fault)
            self._in_hand = None

    def _fail(self, name: str, error: BaseException) -> None:
        """The last thing that the thread does when an error ends it."""
        chunk, self._fault = self._in_hand, f"{PartEnded(name, error)}"
        if chunk is None:  # what it had just taken is not known
            self._file.miss(self._to_s, self._to_s, 0, self._fault)
        else:
            self._file.miss(chunk.from_s, chunk.to_s, chunk.records, self._fault)
        self._drop_queued()
        self._on_failure(name, error)

    def _drop_queued(self) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                if (chunk := self._waiting.get_nowait()) is not None:
                    self._file.miss(chunk.from_s, chunk.to_s, chunk.records, self._fault)


@dataclass(frozen=True, slots=True)
class LedgerTarget:
    """Path and header of a worker's ledger, to be opened in its process; can be pickled."""

    path: Path
    header: LedgerHeader

    def open(self, on_failure: OnFailure) -> FileLedger:
        """Make the file; see :class:`FileLedger`."""
        return FileLedger(self.path, self.header, on_failure=on_failure)


class _File:
    """Appends whole frames or nothing."""

    def __init__(self, path: Path, write: Write) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise ConfigurationError([f"{path}: the ledger cannot be made: {error.strerror}"], "--out") from None
        self._write = write
        self._good = 0
        self._torn = False
        self._gaps: list[LedgerGap] = []
        self._unwritten: list[LedgerGap] = []
        self._lock = threading.Lock()
        self.missed = 0

    @property
    def gaps(self) -> tuple[LedgerGap, ...]:
        with self._lock:
            return tuple(self._gaps)

    def miss(self, from_s: float, to_s: float, records: int, reason: str) -> None:
        """Note that these records are not written."""
        with self._lock:
            self.missed += records
            _add_gap(self._gaps, LedgerGap(from_s, to_s, records, reason))
            _add_gap(self._unwritten, LedgerGap(from_s, to_s, records, reason))

    def append(self, frames: bytes) -> str | None:
        """Write frames, and before them what was missed; None, or why it could not be done."""
        with self._lock:
            gaps, self._unwritten = self._unwritten, []
        data = b"".join(make_json_frame(b"G", asdict(gap)) for gap in gaps) + frames
        try:
            if self._torn:
                os.ftruncate(self._descriptor, self._good)
                os.lseek(self._descriptor, self._good, os.SEEK_SET)
                self._torn = False
            view = memoryview(data)
            while view:
                view = view[self._write(self._descriptor, bytes(view)) :]
        except OSError as error:
            self._torn = True
            with self._lock:
                self._unwritten[:0] = gaps
            self._mend()
            return f"the ledger could not be written: {error.strerror or error}"
        self._good += len(data)
        return None

    def close(self) -> None:
        os.close(self._descriptor)

    def _mend(self) -> None:
        """Take a half-written frame away at once: it may be the last chance."""
        try:
            os.ftruncate(self._descriptor, self._good)
            os.lseek(self._descriptor, self._good, os.SEEK_SET)
        except OSError:
            return
        self._torn = False


def _add_gap(gaps: list[LedgerGap], new: LedgerGap) -> None:
    if gaps and (gaps[-1].reason == new.reason or len(gaps) >= _GAPS_KEPT):
        last = gaps[-1]
        gaps[-1] = replace(last, to_s=max(last.to_s, new.to_s), records=last.records + new.records)
    else:
        gaps.append(new)


def _runs(sequences: Sequence[int]) -> Iterator[tuple[int, int]]:
    """First number and length of each run of neighbours."""
    first = expected = -1
    for sequence in sequences:
        if sequence != expected or sequence - first >= COUNT_MAX:
            if expected > first:
                yield first, expected - first
            first = sequence
        expected = sequence + 1
    if expected > first:
        yield first, expected - first
