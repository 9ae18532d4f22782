"""What the run wrote down for its audit: ledgers and the list of devices."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from simulator.fleet.audit.ledger_format import Frame, ReadingKind, make_json_frame
from simulator.fleet.audit.records import Records
from tests.damage.run import INCONCLUSIVE, LOST, USAGE, Case, Kind, planted


def _without(kind: bytes) -> Callable[[Case], None]:
    """Leave the first frame of a kind out of a ledger."""

    def plant(case: Case) -> None:
        frames = case.frames()
        frames.remove(next(frame for frame in frames if frame.kind == kind))
        case.write_frames(frames)

    return plant


def _doubled(kind: bytes) -> Callable[[Case], None]:
    def plant(case: Case) -> None:
        frames = case.frames()
        number = next(number for number, frame in enumerate(frames) if frame.kind == kind)
        case.write_frames([*frames[: number + 1], frames[number], *frames[number + 1 :]])

    return plant


def _ledger_bytes(change: Callable[[bytes], bytes]) -> Callable[[Case], None]:
    return lambda case: case.ledger().write_bytes(change(case.ledger().read_bytes()))


def _flipped(case: Case) -> None:
    """Turn a bit within the first frame after the header."""
    data = bytearray(case.ledger().read_bytes())
    header, frame, *_ = case.frames()
    data[header.size_bytes + frame.size_bytes - 3] ^= 1
    case.ledger().write_bytes(data)


def _records(change: Callable[[Records], object]) -> Callable[[Case], None]:
    def changed(records: Records) -> Records:
        change(records)
        return records

    return lambda case: case.readings(changed)


def _first_sent(column: str, more: int) -> Callable[[Case], None]:
    """Add to a column of the first record of a reading that was sent."""
    done: list[bool] = []

    def change(records: Records) -> None:
        (sent,) = np.nonzero(records["kind"] == ReadingKind.SENT)
        if len(sent) and not done:
            records[column][sent[0]] += more
            done.append(True)

    return _records(change)


def _sent_forgotten(case: Case) -> None:
    """Take a sending and its answer out of a ledger, and out of its counts."""
    taken: list[int] = []

    def change(records: Records) -> Records:
        if taken:
            return records
        sent = records[records["kind"] == ReadingKind.SENT]
        if not len(sent):
            return records
        device, sequence = int(sent[0]["device"]), int(sent[0]["sequence"])
        single = (records["device"] == device) & (records["sequence"] == sequence) & (records["count"] == 1)
        gone = single & np.isin(records["kind"], [ReadingKind.SENT, ReadingKind.ACCEPTED])
        assert int(gone.sum()) == 2
        taken.append(sequence)
        return records[~gone]

    case.readings(change)
    assert taken
    case.counts(sent=-1, accepted=-1, made=-1)


def _gap(case: Case) -> None:
    frames = case.frames()
    gap = make_json_frame(b"G", {"from_s": 1.0, "to_s": 2.0, "records": 7, "reason": "No space left on device"})[9:]
    case.write_frames([*frames[:-1], Frame(b"G", gap), frames[-1]])


def _garbage(kind: bytes, body: bytes) -> Callable[[Case], None]:
    """A frame that is whole and holds nothing that can be read."""

    def plant(case: Case) -> None:
        frames = case.frames()
        number = next(number for number, frame in enumerate(frames) if frame.kind == kind)
        frames[number] = Frame(kind, body)
        case.write_frames(frames)

    return plant


def _of_both(**members: Any) -> Callable[[Case], None]:
    """Change a member of both headers, so that they agree."""
    return lambda case: [case.header(worker, **members) for worker in (0, 1)]


def _moved_in_time(case: Case) -> None:
    began_ms = case.frames()[0].json()["began_ms"]
    _of_both(began_ms=began_ms - 3_600_000)(case)


def _unreadable(case: Case) -> None:
    case.ledger().unlink()
    case.ledger().mkdir()


def ledgers() -> Iterator[Kind]:
    kind = partial(planted, "ledgers")

    yield kind(
        "one of two missing", lambda case: case.ledger(1).unlink(), INCONCLUSIVE, "3 of 6 devices have no ledger"
    )
    yield kind(
        "all missing", lambda case: [case.ledger(worker).unlink() for worker in (0, 1)], USAGE, "holds no ledgers"
    )
    yield kind("the folder missing", lambda case: shutil.rmtree(case.run / "audit"), USAGE, "holds no ledgers")
    yield kind("one empty", _ledger_bytes(lambda _: b""), USAGE, "worker-000.ledger: is no ledger of a run")
    yield kind("one unreadable", _unreadable, USAGE, "worker-000.ledger: cannot be read: Is a directory")
    yield kind(
        "one of other bytes", _ledger_bytes(lambda data: data[::-1]), USAGE, "worker-000.ledger: is no ledger of a run"
    )
    yield kind("cut in the middle", _ledger_bytes(lambda data: data[: len(data) // 2]), INCONCLUSIVE, "has no end")
    yield kind("its last byte cut", _ledger_bytes(lambda data: data[:-1]), INCONCLUSIVE, "has no end")
    yield kind("a bit turned", _flipped, INCONCLUSIVE, "has no end")
    yield kind(
        "a byte behind its end",
        _ledger_bytes(lambda data: data + b"\0"),
        INCONCLUSIVE,
        "goes on for 1 bytes behind its end",
    )
    yield kind(
        "records behind its end",
        lambda case: case.write_frames([*case.frames(), case.frames()[1]]),
        INCONCLUSIVE,
        "bytes behind its end",
    )
    yield kind("its end missing", _without(b"E"), INCONCLUSIVE, "has no end")
    yield kind(
        "a second of readings missing",
        _without(b"R"),
        INCONCLUSIVE,
        "does not hold what the counts at its end say",
        "missing",
    )
    yield kind(
        "a second of commands missing",
        _without(b"C"),
        INCONCLUSIVE,
        "does not hold what the counts at its end say",
        "missing",
    )
    yield kind(
        "a second of readings twice",
        _doubled(b"R"),
        INCONCLUSIVE,
        "does not hold what the counts at its end say",
        "too many",
    )
    yield kind("other counts at its end", lambda case: case.counts(sent=1), INCONCLUSIVE, "1 sent missing")
    yield kind("a gap", _gap, INCONCLUSIVE, "lacks 7 records from 1 s to 2 s: No space left on device")
    yield kind("a sending and its answer forgotten, in the counts too", _sent_forgotten, LOST, "1 unknown")
    yield kind("another digest of a reading", _first_sent("digest", 1), LOST, "1 altered")
    yield kind("another time of a reading", _first_sent("recorded", 60), LOST, "1 altered")
    yield kind("another device of a reading", _first_sent("device", 1), LOST, "altered")
    yield kind(
        "readings that cannot be unpacked", _garbage(b"R", b"no deflated bytes"), USAGE, "worker-000.ledger: is damaged"
    )
    yield kind("an end that cannot be read", _garbage(b"E", b'{"sent": {}}'), USAGE, "worker-000.ledger: is damaged")
    yield kind("a header that cannot be read", _garbage(b"H", b"[]"), USAGE, "worker-000.ledger: is damaged")
    yield kind(
        "another format", lambda case: case.header(format="fleet-ledger/9"), USAGE, "has the format 'fleet-ledger/9'"
    )
    yield kind(
        "another range of devices",
        lambda case: case.header(first_device=100),
        INCONCLUSIVE,
        "3 of 6 devices have no ledger",
    )
    yield kind(
        "one of another run",
        lambda case: case.header(1, began_ms=1_700_000_000_000),
        USAGE,
        "worker-001.ledger: is of another run than worker-000.ledger (began_ms differ)",
    )
    yield kind(
        "one with other numbers",
        lambda case: case.header(1, first_number=2**32),
        USAGE,
        "is of another run",
        "first_number",
    )
    yield kind(
        "one with other extensions", lambda case: case.header(1, offers=[]), USAGE, "is of another run", "offers"
    )
    yield kind(
        "both of another run", _moved_in_time, USAGE, "worker-000.ledger: is of a run at", "put back those of this run"
    )
    yield kind(
        "a copy beside it",
        lambda case: shutil.copy(case.ledger(), case.ledger(2)),
        USAGE,
        "worker-002.ledger: is of the same devices as worker-000.ledger",
    )


# --- the list of devices -------------------------------------------------------------------------------------------


def _devices(change: Callable[[list[str]], list[str]]) -> Callable[[Case], None]:
    return lambda case: case.lines("audit/devices.csv", change)


def _ids_swapped(lines: list[str]) -> list[str]:
    one, other = lines[1].split(","), lines[2].split(",")
    one[1], other[1] = other[1], one[1]
    return [lines[0], ",".join(one), ",".join(other), *lines[3:]]


def _field(number: int, value: str) -> Callable[[list[str]], list[str]]:
    def change(lines: list[str]) -> list[str]:
        parts = lines[1].split(",")
        parts[number] = value
        return [lines[0], ",".join(parts), *lines[2:]]

    return change


def device_list() -> Iterator[Kind]:
    kind = partial(planted, "devices.csv")

    def both_gone(case: Case) -> None:
        case.ledger(1).unlink()
        _devices(lambda lines: lines[:4])(case)

    yield kind(
        "missing",
        lambda case: (case.run / "audit/devices.csv").unlink(),
        USAGE,
        "devices.csv: cannot be read: No such file",
    )
    yield kind(
        "empty", _devices(lambda _: []), INCONCLUSIVE, "6 devices that the ledgers have are missing in devices.csv"
    )
    yield kind(
        "its head alone",
        _devices(lambda lines: lines[:1]),
        INCONCLUSIVE,
        "6 devices that the ledgers have are missing in devices.csv",
    )
    yield kind(
        "a device missing",
        _devices(lambda lines: lines[:-1]),
        INCONCLUSIVE,
        "1 devices that the ledgers have are missing in devices.csv",
    )
    yield kind(
        "devices missing, and their ledger", both_gone, INCONCLUSIVE, "devices.csv has 3 devices, and run.json 6"
    )
    yield kind(
        "cut in a line",
        _devices(lambda lines: [*lines[:-1], lines[-1][:3]]),
        USAGE,
        "devices.csv: is no list of devices",
    )
    yield kind(
        "a device twice", _devices(lambda lines: [*lines, lines[1]]), USAGE, "devices.csv: device 0 is in it 2 times"
    )
    yield kind(
        "an id twice", _devices(lambda lines: [*lines, "6," + lines[1].partition(",")[2]]), USAGE, "is in it 2 times"
    )
    yield kind(
        "a device more",
        _devices(lambda lines: [*lines, "6,another,sim-6\n"]),
        INCONCLUSIVE,
        "1 of 7 devices have no ledger",
    )
    yield kind("the ids of two exchanged", _devices(_ids_swapped), LOST, "lost")
    yield kind("another id", _devices(_field(1, "another")), LOST, "does not know 1 devices", "lost")
    yield kind("no id", _devices(_field(1, "")), USAGE, "devices.csv: device 0 with the id '' is no device of a run")
    yield kind("a negative index", _devices(_field(0, "-1")), USAGE, "devices.csv: device -1 with the id")
    yield kind(
        "an index beyond all", _devices(_field(0, "4000000000")), USAGE, "devices.csv: device 4000000000 with the id"
    )
    yield kind(
        "an index that is a word",
        _devices(_field(0, "first")),
        USAGE,
        "devices.csv: is no list of devices with the columns",
    )
    yield kind(
        "another head",
        _devices(lambda lines: ["number,id,name\n", *lines[1:]]),
        USAGE,
        "devices.csv: is no list of devices with the columns",
    )
