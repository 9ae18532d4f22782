"""The ledger on disk: everything that was written down is read again, and what could not be is a gap."""

from __future__ import annotations

import errno
import os
import threading

import pytest

from agent.core.values import Contract, OutcomeStatus
from agent.errors import ConfigurationError
from simulator.fleet.audit.digest import digest_values
from simulator.fleet.audit.file_ledger import FileLedger
from simulator.fleet.audit.fleet_ledger import SEQUENCE_NAME, LedgerCounts, with_sequence
from simulator.fleet.audit.ledger_format import (
    NO_TIME,
    CommandEvent,
    CommandKind,
    LedgerGap,
    LedgerHeader,
    ReadingKind,
    read_frames,
)
from simulator.fleet.audit.records import records_of
from tests.sudden_ends import SuddenExit

HEADER = LedgerHeader(worker=0, first_device=0, devices=10, began_ms=1_700_000_000_000)


def rows(path):
    """Kind, count, device, first sequence and time of each reading record."""
    names = ["kind", "count", "device", "sequence", "time"]
    return [
        tuple(map(int, row)) for frame in read_frames(path) if frame.kind == b"R" for row in records_of(frame)[names]
    ]


def kinds(path):
    return [frame.kind for frame in read_frames(path)]


def send(ledger, device, *sequences, at_s=1.0):
    for sequence in sequences:
        ledger.reading_sent(device, sequence, 7, recorded_ms=None, made_s=0.5, at_s=at_s)


def test_readings_come_back_as_they_were_written_down(tmp_path):
    path = tmp_path / "a.ledger"
    with FileLedger(path, HEADER) as ledger:
        ledger.reading_sent(3, 1, 0xFFFFFFFF, recorded_ms=1_700_000_000_123, made_s=0.5, at_s=1.25)
        ledger.reading_sent(3, 2, 5, recorded_ms=None, made_s=0.75, at_s=1.25)
        ledger.readings_accepted(3, [1, 2], 1.5)
    sent, dateless, accepted = records_of(next(frame for frame in read_frames(path) if frame.kind == b"R"))
    assert (int(sent["digest"]), int(sent["made"]), int(sent["time"])) == (0xFFFFFFFF, 500, 1250)
    assert (int(sent["recorded"]), int(dateless["recorded"])) == (1_700_000_000_123, NO_TIME)
    assert (int(accepted["kind"]), int(accepted["sequence"]), int(accepted["count"])) == (ReadingKind.ACCEPTED, 1, 2)


def test_numbers_beside_each_other_are_one_record_and_others_are_not(tmp_path):
    path = tmp_path / "a.ledger"
    with FileLedger(path, HEADER) as ledger:
        ledger.readings_accepted(1, [8, 9, 10, 3, 4, 12], 2.0)
        ledger.readings_refused(1, range(1, 70_001), 2.0)
        ledger.readings_unanswered(1, [5], 2.0)
        ledger.readings_resent(1, [], 2.0, ambiguous=True)
    accepted, refused, unanswered = ReadingKind.ACCEPTED, ReadingKind.REFUSED, ReadingKind.UNANSWERED
    assert rows(path) == [
        (accepted, 3, 1, 8, 2000),
        (accepted, 2, 1, 3, 2000),
        (accepted, 1, 1, 12, 2000),
        (refused, 65_535, 1, 1, 2000),
        (refused, 4_465, 1, 65_536, 2000),
        (unanswered, 1, 1, 5, 2000),
    ]


def test_commands_come_back_as_they_were_written_down(tmp_path):
    path = tmp_path / "a.ledger"
    with FileLedger(path, HEADER) as ledger:
        ledger.command_ordered(4, "c-1", 1.0)
        ledger.order_unanswered(4, 1.1)
        ledger.command_received(4, "c-1", 2.0)
        ledger.command_started(4, "c-1", Contract.ONCE, 2, 3.0)
        ledger.command_finished(4, "c-1", OutcomeStatus.REJECTED, 4.0)
        ledger.command_reported(4, "c-1", 5.0)
    events = [event for frame in read_frames(path) if frame.kind == b"C" for event in frame.commands()]
    assert events == [
        CommandEvent(CommandKind.ORDERED, 4, "c-1", 1000),
        CommandEvent(CommandKind.ORDER_UNANSWERED, 4, "", 1100),
        CommandEvent(CommandKind.RECEIVED, 4, "c-1", 2000),
        CommandEvent(CommandKind.STARTED, 4, "c-1", 3000, contract=Contract.ONCE, attempt=2),
        CommandEvent(CommandKind.FINISHED, 4, "c-1", 4000, status=OutcomeStatus.REJECTED),
        CommandEvent(CommandKind.REPORTED, 4, "c-1", 5000),
    ]


def test_the_audit_so_far_is_counted_and_stands_at_the_end(tmp_path):
    path = tmp_path / "a.ledger"
    with FileLedger(path, HEADER) as ledger:
        for _ in range(5):
            ledger.reading_made(1)
        send(ledger, 1, 1, 2, 3, 4)
        ledger.readings_unanswered(1, [1, 2], 2.0)
        ledger.readings_resent(1, [1, 2], 3.0, ambiguous=True)
        ledger.readings_resent(1, [4], 3.0, ambiguous=False)
        ledger.readings_accepted(1, [1, 2], 3.5)
        ledger.readings_refused(1, [3], 3.5)
        so_far = ledger.counts
    assert so_far == LedgerCounts(made=5, sent=4, accepted=2, refused=1, resent=3, unanswered=2, resent_ambiguous=2)
    assert so_far.open == 1
    assert (so_far + so_far).sent == 8
    last = list(read_frames(path))[-1]
    assert last.kind == b"E"
    assert LedgerCounts(**last.json()) == so_far


def test_a_torn_tail_costs_nothing_but_itself(tmp_path):
    path = tmp_path / "a.ledger"
    with FileLedger(path, HEADER) as ledger:
        send(ledger, 1, 1, 2)
        ledger.flush()
        send(ledger, 1, 3)
    whole = path.read_bytes()
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        assert [row[3] for row in rows(path)] in ([], [1, 2], [1, 2, 3])
    path.write_bytes(whole[:-10] + b"garbage---")
    assert kinds(path) == [b"H", b"R", b"R"]


class FullDisk:
    """A disk that takes so many bytes, half a write at a time, until room is made."""

    def __init__(self, room):
        self.room = room
        self.refused = threading.Event()

    def write(self, descriptor, data):
        if self.room <= 0:
            self.refused.set()
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        taken = data[: self.room]
        self.room -= len(taken)
        return os.write(descriptor, taken)


def test_a_full_disk_makes_a_gap_and_the_ledger_goes_on_when_there_is_room(tmp_path):
    path = tmp_path / "a.ledger"
    disk = FullDisk(10**6)
    with FileLedger(path, HEADER, write=disk.write) as ledger:
        send(ledger, 1, 1, at_s=1.0)
        ledger.flush()
        while len(kinds(path)) < 2:
            pass
        disk.room = 5
        send(ledger, 1, 2, 3, at_s=2.0)
        ledger.flush()
        assert disk.refused.wait(60)
        while not ledger.gaps:
            pass
        disk.room = 10**6
        send(ledger, 1, 4, at_s=3.0)
    gap = LedgerGap(1.0, 2.0, 2, "the ledger could not be written: No space left on device")
    assert ledger.gaps == (gap,)
    assert ledger.counts.missed == 2
    assert ledger.counts.sent == 4
    assert kinds(path) == [b"H", b"R", b"G", b"R", b"E"]
    assert [LedgerGap(**frame.json()) for frame in read_frames(path) if frame.kind == b"G"] == [gap]
    assert [row[3] for row in rows(path)] == [1, 4]


def test_a_disk_that_stays_full_ends_in_gaps_and_not_in_an_error(tmp_path):
    path = tmp_path / "a.ledger"
    disk = FullDisk(400)
    ledger = FileLedger(path, HEADER, write=disk.write)
    disk.room = 0
    for second in range(300):
        send(ledger, 1, second + 1, at_s=float(second))
        ledger.flush()
    gaps = ledger.close()
    assert sum(gap.records for gap in gaps) == 300
    assert len(gaps) <= 100
    assert kinds(path) == [b"H"]
    assert ledger.close() == gaps


def test_a_disk_that_hangs_is_a_gap_and_memory_stays_bounded(tmp_path):
    path = tmp_path / "a.ledger"
    go_on = threading.Event()

    def write(descriptor, data):
        if data[:1] == b"R":
            go_on.wait(60)
        return os.write(descriptor, data)

    ledger = FileLedger(path, HEADER, write=write)
    for second in range(40):
        send(ledger, 1, second + 1, at_s=float(second))
        ledger.flush()
    missed = ledger.counts.missed
    assert missed >= 40 - 18
    go_on.set()
    ledger.close()
    assert len(rows(path)) == 40 - missed
    assert b"G" in kinds(path)


def test_a_ledger_is_never_written_over_and_says_what_to_do(tmp_path):
    path = tmp_path / "a.ledger"
    FileLedger(path, HEADER).close()
    with pytest.raises(ConfigurationError, match="--out"):
        FileLedger(path, HEADER)


def test_the_sequence_number_travels_as_a_reading_of_its_own():
    values = {"temperature": 21.5}
    assert with_sequence(values, 7) == {"temperature": 21.5, SEQUENCE_NAME: 7}
    assert values == {"temperature": 21.5}


def test_a_digest_is_of_numbers_whatever_their_order_or_form():
    assert digest_values({"a": 1, "b": 2.5}) == digest_values({"b": 2.5, "a": 1.0})
    assert digest_values({"a": -0.0}) == digest_values({"a": 0})


@pytest.mark.parametrize(
    "altered", [{"a": 1.0000000000000002}, {"b": 1.0}, {"a": 1.0, "b": 0.0}, {}, {"a": True}, {"a": "1.0"}, {"a": None}]
)
def test_a_digest_tells_every_kind_of_alteration(altered):
    assert digest_values(altered) != digest_values({"a": 1.0})


def test_a_digest_can_be_made_of_any_json_value():
    assert len({digest_values({"a": value}) for value in (10**400, "\udc80", [1], {"b": 1}, None)}) == 5


def test_a_thread_that_an_error_ends_is_told_of_and_everything_from_then_on_is_a_gap(tmp_path):
    path, told, ended = tmp_path / "a.ledger", [], threading.Event()

    def write(descriptor: int, data: bytes) -> int:
        if b"R" in data[:1]:
            raise SuddenExit
        return os.write(descriptor, data)

    def note(name, error):
        told.append((name, type(error)))
        ended.set()

    ledger = FileLedger(path, HEADER, write=write, on_failure=note)
    send(ledger, 1, 1, 2)
    ledger.flush()
    assert ended.wait(60)
    send(ledger, 1, 3)
    gaps = ledger.close()
    assert told == [("ledger-0", SuddenExit)]
    assert [(gap.records, gap.reason) for gap in gaps] == [(3, "ledger-0 ended unexpectedly: SuddenExit")]
    assert ledger.counts.missed == 3
    assert kinds(path) == [b"H", b"G"]  # without an end: nobody takes it for a whole one
