"""The audit of readings: the ledgers of some devices against what the service gives back. Pure, on arrays.

*Lost*: accepted, and not there. *Doubled*: there more often than it may be, which is once; where the service keeps no
idempotency keys once more for each time that it was sent again while the service may have had it already. *Altered*:
there with other values, or with another time than it carried. *Unknown*: there, and never sent, or refused for good.
*Late*: accepted long after it was made. *Misdated*: carries a time that is not the one at which it was made, by more
than :data:`OFF_S` on the service's clock; the times of arrival show how far the two clocks are apart.

*Reordered*: the service says that it received reading A after B, although A was accepted before B was first sent. So
the order in which a device sends is its own business (live readings before the backlog), requests that were in flight
together have no order, and equal times are no finding. The service's own clock stepping back looks the same.

*Ambiguous*: sent, and neither accepted nor refused in the end. It may be there or not, and is neither lost nor unknown.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from agent.core.timekeeping import DATE_RESOLUTION_S
from simulator.fleet.audit.findings import Findings, StreamSums
from simulator.fleet.audit.ledger_format import NO_TIME, ReadingKind
from simulator.fleet.audit.records import Records

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

OFF_S: Final = 2 * DATE_RESOLUTION_S
"""A device that goes by the service's ``Date`` is never further off than this."""
NEVER: Final = 2**62
"""``accepted_at`` of a reading that nobody accepted."""
_QUICKEST: Final = 0.05
"""This share of the readings came so quickly that what they took is no part of how far two clocks are apart."""
SEQUENCE_BITS: Final = 32
_SEQUENCE_MASK: Final = 2**SEQUENCE_BITS - 1
_TIME_BITS: Final = 43
_ROUNDED_MS: Final = 1
_SECOND_MS: Final = 1000


@dataclass(frozen=True, slots=True)
class ReadingRules:
    """What the judgement goes by.

    Attributes:
        by_sequence: readings carry their sequence number; otherwise the millisecond that they carry identifies them.
        replays: the service keeps idempotency keys, so that a resend may not make a second reading.
        late_after_ms: from made to accepted.
        read: by device index: whether it was read back to the end; what was not is not judged.
        whole: by device index: whether its ledger is; where it is not, what is unknown may have been sent.
        dated_when_made: see :class:`~simulator.fleet.audit.ledger_format.LedgerHeader`.
        keeps_times: the service announces that it keeps ``recorded_at``: another time is no choice of its then.
    """

    by_sequence: bool
    replays: bool
    late_after_ms: int
    read: Flags
    whole: Flags
    dated_when_made: bool = False
    keeps_times: bool = False


@dataclass(frozen=True, slots=True)
class ReadingSums(StreamSums):
    """Counts over all readings; each reading counts once in each kind.

    Attributes:
        unaccounted: given back, and in no ledger, of devices whose ledger is not whole.
        dated_by_service: stored under the time of arrival although they carried another.
        unordered: stored without a time of arrival, so that their order cannot be judged.
    """

    resent: int = 0
    refused: int = 0
    resent_ambiguous: int = 0
    doubled_by_resend: int = 0
    unaccounted: int = 0
    dated_by_service: int = 0
    unordered: int = 0
    misdated: int = 0


def judge_readings(records: Records, stored: Records, rules: ReadingRules, found: Findings) -> ReadingSums:
    """Judge the readings of some devices.

    Args:
        records: what the ledgers say.
        stored: what came back.
        rules: what to go by.
        found: gets what is wrong, by device.

    Returns:
        The sums of these devices.
    """
    facts = facts_of(records)
    rows = _rows_of(stored, facts, rules)
    judged = rules.read[facts.keys >> SEQUENCE_BITS]
    copies = _count(rows.fact, facts.size)
    accepted, refused = facts.accepted_at < NEVER, facts.refused
    allowed = np.ones(facts.size, dtype=np.int64) if rules.replays else facts.open_sends + 1
    altered, dated = _altered(rows, facts, keeps_times=rules.keeps_times)
    first_received = np.full(facts.size, NEVER, dtype=np.int64)
    ordered = rows.received != NO_TIME
    np.minimum.at(first_received, rows.fact[ordered], rows.received[ordered])
    wrong = {
        "lost": judged & accepted & (copies == 0),
        "doubled": copies > allowed,
        "altered": altered,
        "reordered": _reordered(facts, first_received),
        "late": accepted & facts.has_sent & (facts.accepted_at - facts.made > rules.late_after_ms),
        "unknown": refused & ~accepted & ~facts.in_doubt & (copies > 0),
    }
    if rules.dated_when_made:
        wrong["misdated"] = _misdated(facts, first_received, found)
    for kind, flags in wrong.items():
        _record_finding(found, kind, facts.keys[flags])
    unknown = rows.strangers & rules.whole[stored["device"]]
    _record_unknown(found, stored[unknown])
    is_sent = facts.sends > 0
    return ReadingSums(
        sent=int(is_sent.sum()),
        accepted=int(accepted.sum()),
        stored=len(stored),
        lost=int(wrong["lost"].sum()),
        doubled=int(wrong["doubled"].sum()),
        reordered=int(wrong["reordered"].sum()),
        altered=int(altered.sum()),
        late=int(wrong["late"].sum()),
        unknown=int(wrong["unknown"].sum() + unknown.sum()),
        ambiguous=int((is_sent & ~accepted & ~refused).sum()),
        resent=int((facts.sends > 1).sum()),
        refused=int((refused & ~accepted).sum()),
        resent_ambiguous=int((facts.open_sends > 0).sum()),
        doubled_by_resend=int(((copies > 1) & (copies <= allowed)).sum()),
        unaccounted=int((rows.strangers & ~unknown).sum()),
        dated_by_service=int(dated),
        unordered=int((~ordered).sum()),
        misdated=int(wrong["misdated"].sum()) if rules.dated_when_made else 0,
    )


@dataclass(frozen=True, slots=True)
class ReadingFacts:
    """Readings by key (device << 32 | sequence), ascending; times in milliseconds since the run's begin.

    Attributes:
        has_sent: the record of its first sending is there, with digest, recorded and made.
        sends: how often it was sent.
        open_sends: how often of these again, while the service may have had it already.
        in_doubt: some sending was not answered.
    """

    keys: Ints
    has_sent: Flags
    digest: Ints
    recorded: Ints
    made: Ints
    sent_at: Ints
    sends: Ints
    open_sends: Ints
    accepted_at: Ints
    refused: Flags
    in_doubt: Flags

    @property
    def size(self) -> int:
        """How many readings were compared."""
        return len(self.keys)


@dataclass(frozen=True, slots=True)
class _Rows:
    """What came back of known readings: index of the fact for each, and what it is now.

    Attributes:
        strangers: of all rows, those that belong to no fact.
    """

    fact: Ints
    digest: Ints
    recorded: Ints
    received: Ints
    strangers: Flags


def facts_of(records: Records) -> ReadingFacts:
    """Everything that the ledgers hold about each reading."""
    runs = {kind: _run_out(records[records["kind"] == kind]) for kind in ReadingKind}
    keys = np.unique(np.concatenate([found for found, _ in runs.values()]))
    size = len(keys)
    sent = records[records["kind"] == ReadingKind.SENT]
    known, first = np.unique(_keys(sent), return_index=True)
    sent = sent[first]
    at = np.searchsorted(keys, known)

    def placed(name: str, missing: int) -> Ints:
        values = np.full(size, missing, dtype=np.int64)
        values[at] = sent[name]
        return values

    has_sent = np.zeros(size, dtype=np.bool_)
    has_sent[at] = True
    sends = _count(np.searchsorted(keys, runs[ReadingKind.SENT][0]), size)
    open_sends = _count(np.searchsorted(keys, runs[ReadingKind.RESENT][0]), size)
    sends += open_sends + _count(np.searchsorted(keys, runs[ReadingKind.RESENT_AFTER_REFUSAL][0]), size)
    accepted_at = np.full(size, NEVER, dtype=np.int64)
    accepted, times = runs[ReadingKind.ACCEPTED]
    np.minimum.at(accepted_at, np.searchsorted(keys, accepted), times)
    return ReadingFacts(
        keys=keys,
        has_sent=has_sent,
        digest=placed("digest", 0),
        recorded=placed("recorded", NO_TIME),
        made=placed("made", 0),
        sent_at=placed("time", 0),
        sends=sends,
        open_sends=open_sends,
        accepted_at=accepted_at,
        refused=_flags(keys, runs[ReadingKind.REFUSED][0]),
        in_doubt=_flags(keys, runs[ReadingKind.UNANSWERED][0]),
    )


def _rows_of(stored: Records, facts: ReadingFacts, rules: ReadingRules) -> _Rows:
    if rules.by_sequence:
        keys, order = facts.keys, np.arange(facts.size)
        wanted = _keys(stored)
    else:
        # Device and millisecond in one number; the order of the facts is another one then.
        devices = facts.keys >> SEQUENCE_BITS
        keys = _timed(devices, facts.recorded, missing=-1)
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
        wanted = _timed(stored["device"].astype(np.int64), stored["recorded"].astype(np.int64), missing=-2)
    if not len(keys):
        nothing = np.zeros(0, dtype=np.int64)
        return _Rows(nothing, nothing, nothing, nothing, np.ones(len(stored), dtype=np.bool_))
    place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    known = keys[place] == wanted
    rows = stored[known]
    return _Rows(
        fact=order[place[known]],
        digest=rows["digest"].astype(np.int64),
        recorded=rows["recorded"].astype(np.int64),
        received=rows["received"].astype(np.int64),
        strangers=~known,
    )


def _altered(rows: _Rows, facts: ReadingFacts, *, keeps_times: bool) -> tuple[Flags, int]:
    """Which facts came back as something else, and how many rows have the time of arrival instead of their own."""
    known = facts.has_sent[rows.fact]
    carried = facts.recorded[rows.fact]
    both = known & (carried != NO_TIME) & (rows.recorded != NO_TIME)
    apart = np.where(both, np.abs(rows.recorded - np.where(both, carried, 0)), 0)
    # A service may keep whole seconds of all times, or its own time of arrival (the specification has no recorded_at).
    keeps_seconds = not (rows.recorded[both] % _SECOND_MS).any()
    retimed = both & (apart > _ROUNDED_MS) & ~(keeps_seconds & (apart < _SECOND_MS))
    by_service = retimed & (np.abs(rows.recorded - rows.received) <= _ROUNDED_MS) & (not keeps_times)
    wrong = (known & (rows.digest != facts.digest[rows.fact])) | (retimed & ~by_service)
    altered = np.zeros(facts.size, dtype=np.bool_)
    altered[rows.fact[wrong]] = True
    return altered, int(by_service.sum())


def _misdated(facts: ReadingFacts, received: Ints, found: Findings) -> Flags:
    """Which readings carry another time than theirs; none while no time of arrival is known."""
    dated = facts.has_sent & (facts.recorded != NO_TIME)
    there = facts.has_sent & (received < NEVER)
    misdated = np.zeros(facts.size, dtype=np.bool_)
    if not dated.any() or not there.any():
        return misdated
    # The service's clock minus the run's: nothing is received before it is sent, and some at once.
    apart_ms = np.quantile(received[there] - facts.sent_at[there], _QUICKEST)
    off_s = (facts.recorded[dated] - facts.made[dated] - apart_ms) / 1000
    found.early_s, found.late_s = max(found.early_s, float(-off_s.min())), max(found.late_s, float(off_s.max()))
    misdated[dated] = np.abs(off_s) > OFF_S
    return misdated


def _reordered(facts: ReadingFacts, received: Ints) -> Flags:
    """Accepted before another one of the device was first sent, and received after it."""
    there = np.flatnonzero((received < NEVER) & facts.has_sent)
    reordered = np.zeros(facts.size, dtype=np.bool_)
    if not len(there):
        return reordered
    # The device as the high part of each number keeps devices apart: a later device's least is above all of this one.
    device = (facts.keys[there] >> SEQUENCE_BITS) - int(facts.keys[there[0]] >> SEQUENCE_BITS)
    base = int(received[there].min())
    arrival = (device << _TIME_BITS) + np.minimum(received[there] - base, 2**_TIME_BITS - 1)
    sent = (device << _TIME_BITS) + facts.sent_at[there]
    order = np.argsort(sent, kind="stable")
    least = np.minimum.accumulate(arrival[order][::-1])[::-1]
    accepted_at = facts.accepted_at[there]
    judged = accepted_at < NEVER
    later = np.searchsorted(sent[order], (device << _TIME_BITS) + np.where(judged, accepted_at, 0), side="right")
    least = np.append(least, NEVER)
    reordered[there] = judged & (least[later] < arrival)
    return reordered


def _run_out(records: Records) -> tuple[Ints, Ints]:
    """Key and time of each reading that records of runs speak of."""
    counts = records["count"].astype(np.int64)
    keys = np.repeat(_keys(records), counts)
    begins = np.repeat(np.cumsum(counts) - counts, counts)
    return keys + np.arange(len(keys)) - begins, np.repeat(records["time"].astype(np.int64), counts)


def _keys(records: Records) -> Ints:
    keys: Ints = (records["device"].astype(np.int64) << SEQUENCE_BITS) | records["sequence"].astype(np.int64)
    return keys


def _timed(devices: Ints, recorded: Ints, *, missing: int) -> Ints:
    """Device and millisecond as one number; ``missing`` for those without a time."""
    keys: Ints = (devices << _TIME_BITS) + recorded
    return np.where(recorded == NO_TIME, missing, keys)


def _count(places: Ints, size: int) -> Ints:
    return np.bincount(places, minlength=size).astype(np.int64)


def _flags(keys: Ints, named: Ints) -> Flags:
    flags = np.zeros(len(keys), dtype=np.bool_)
    flags[np.searchsorted(keys, named)] = True
    return flags


def _record_finding(found: Findings, kind: str, keys: Ints) -> None:
    devices, begins, counts = np.unique(keys >> SEQUENCE_BITS, return_index=True, return_counts=True)
    for device, begin, count in _ints(devices, begins, counts):
        few = keys[begin : begin + min(count, found.keys_kept)] & _SEQUENCE_MASK
        found.add(kind, device, count, [str(sequence) for sequence in few.tolist()])


def _record_unknown(found: Findings, rows: Records) -> None:
    rows = rows[np.argsort(rows["device"], kind="stable")]
    devices, begins, counts = np.unique(rows["device"], return_index=True, return_counts=True)
    for device, begin, count in _ints(devices, begins, counts):
        few = rows[begin : begin + min(count, found.keys_kept)]
        found.add("unknown", device, count, [_name(row) for row in few])


def _name(row: Any) -> str:
    sequence = int(row["sequence"])
    return str(sequence) if sequence else f"recorded {int(row['recorded'])}"


def _ints(*columns: npt.NDArray[Any]) -> list[tuple[int, ...]]:
    return list(zip(*(column.tolist() for column in columns), strict=True))
