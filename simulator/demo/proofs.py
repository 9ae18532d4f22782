"""The proofs: the records of every party against what the service gives back at the end.

Pure: ledgers and the read-back in, a list of :class:`Proof` out. Nothing here knows how the story was made.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any, Final

from simulator.exit_codes import ExitCode
from simulator.fleet.audit.readings import DeviceReadings, audit_readings

_DETAILS_SHOWN: Final = 20
# How long a busy machine may take from the sensor's program to the committed group.
_UNCOMMITTED_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Proof:
    """One claim and what became of it.

    Attributes:
        name: the claim, a sentence.
        held: whether it is true.
        expected, found: both sides in a few words, with numbers.
        details: one sentence for each thing that is wrong.
        lost: how many things were lost or changed; what makes the difference between exit code 1 and 4.
        inconclusive: it does not hold only because something was still on its way at the end, neither there nor lost;
            what makes the difference between exit code 1 and 3.
    """

    name: str
    held: bool
    expected: str
    found: str
    details: tuple[str, ...] = ()
    lost: int = 0
    inconclusive: bool = False


@dataclass(frozen=True, slots=True)
class ExpectedCommand:
    """A command that was sent, and how it has to end.

    Attributes:
        id: as the service answered when it took the command.
        payload: as it was sent.
        device: the device's name for a person.
        device_id: the device it was sent to.
        title: what this command is about, for a person.
        status: the state it has to end in.
        error: the code with which ``result.error`` or the reason has to begin; None when it is not looked at.
        runs: how often its handler may have run, such as ``{1}``; ``{1, 2}`` for an idempotent one over a crash; None
            when nobody outside of the agent counts them.
    """

    id: str
    device: str
    device_id: str
    title: str
    status: str
    error: str | None = None
    runs: frozenset[int] | None = frozenset({1})
    payload: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StoredCommand:
    """A command as the service lists it in the end; times in seconds since the epoch."""

    id: str
    device_id: str
    status: str
    error: str = ""
    created_at: float | None = None
    delivered_at: float | None = None
    completed_at: float | None = None
    result: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class OutboxCounters:
    """The counters of the agent's outbox; see :class:`agent.core.values.OutboxStats`."""

    accepted: int
    delivered: int
    waiting: int
    set_aside: int
    dropped: int


@dataclass(frozen=True, slots=True)
class OutboxBalance(OutboxCounters):
    """The counters of the real agent's outbox beside what the service stores.

    Attributes:
        stored: how many readings of this device the service gives back.
        doubled: how many of these are there already, with the same time and values.
    """

    device: str
    stored: int
    doubled: int = 0


def prove_labels(made: Sequence[str], read_back: Sequence[str]) -> Proof:
    """Every label that was made reads back from its picture as it was meant."""
    missing = [text for text in made if text not in set(read_back)]
    foreign = [text for text in read_back if text not in set(made)]
    return Proof(
        name="Every label reads back from its PNG file",
        held=bool(made) and not missing and not foreign and len(read_back) == len(made),
        expected=f"{len(made)} texts",
        found=f"{len(read_back)} read, {len(missing)} missing, {len(foreign)} foreign",
        details=_details([f"not read: {text}" for text in missing] + [f"never made: {text}" for text in foreign]),
    )


def prove_onboarding(identifiers: Sequence[str], listed: Sequence[str]) -> Proof:
    """Each scanned device is listed for its user exactly once, and no other is."""
    count = Counter(listed)
    wrong = [f"{name}: listed {count[name]} times" for name in identifiers if count[name] != 1]
    wrong += [f"{name}: listed, but never registered" for name in count if name not in set(identifiers)]
    return Proof(
        name="Each scanned device is registered exactly once",
        held=bool(identifiers) and not wrong,
        expected=f"{len(identifiers)} devices",
        found=f"{len(listed)} listed, {len(wrong)} wrong",
        details=_details(wrong),
    )


def prove_command_states(expected: Sequence[ExpectedCommand], stored: Sequence[StoredCommand]) -> Proof:
    """Each command that was sent is listed and ended in the state it had to."""
    by_id: dict[str, list[StoredCommand]] = {}
    for record in stored:
        by_id.setdefault(record.id, []).append(record)
    gone = [command for command in expected if command.id not in by_id]
    wrong = [f"{command.device}, {command.title}: the service does not list it" for command in gone]
    for command in expected:
        for record in by_id.get(command.id, []):
            wrong += _state_faults(command, record)
    right = sum(1 for command in expected if command.id in by_id) - (len(wrong) - len(gone))
    return Proof(
        name="Each command ended in the right state",
        held=bool(expected) and not wrong,
        expected=f"{len(expected)} commands",
        found=f"{max(right, 0)} as expected, {len(wrong)} not",
        details=_details(wrong),
        lost=len(gone),
    )


def _state_faults(command: ExpectedCommand, record: StoredCommand) -> list[str]:
    about = f"{command.device}, {command.title}"
    if record.device_id != command.device_id:
        return [f"{about}: it is listed for another device"]
    if record.status != command.status:
        return [f"{about}: {record.status}, not {command.status}" + (f" ({record.error})" if record.error else "")]
    if command.error is not None and not record.error.startswith(command.error):
        return [f"{about}: {record.status} with {record.error!r}, not {command.error!r}"]
    if record.completed_at is None:
        return [f"{about}: {record.status}, but without a time of completion"]
    return []


def prove_command_list(expected: Sequence[ExpectedCommand], stored: Sequence[StoredCommand]) -> Proof:
    """The service lists each command once, and none that nobody sent."""
    sent = {command.id: command for command in expected}
    count = Counter(record.id for record in stored)
    wrong = [f"{sent[name].device}, {sent[name].title}: listed {n} times" for name, n in count.items()
             if name in sent and n > 1]  # fmt: skip
    wrong += [f"command {name}: listed, but nobody sent it" for name in count if name not in sent]
    return Proof(
        name="No command is listed twice, and none that nobody sent",
        held=bool(expected) and not wrong,
        expected=f"{len(sent)} ids",
        found=f"{len(count)} ids in {len(stored)} records",
        details=_details(wrong),
    )


def prove_effects(expected: Sequence[ExpectedCommand], runs: Mapping[str, int]) -> Proof:
    """Each command's handler ran as often as its contract allows, counted outside of service and agent.

    Args:
        expected: the commands that were sent.
        runs: command id -> how often a handler began its effect, by the devices' ledgers and the handlers' own file.
    """
    counted = [(command, command.runs) for command in expected if command.runs is not None]
    wrong = [
        f"{command.device}, {command.title}: ran {runs.get(command.id, 0)} times, not {_one_of(allowed)}"
        for command, allowed in counted
        if runs.get(command.id, 0) not in allowed
    ]
    known = {command.id for command in expected}
    wrong += [f"command {name}: ran {n} times, but nobody sent it" for name, n in runs.items() if name not in known]
    never = sum(1 for _, allowed in counted if allowed == {0})
    once = sum(1 for _, allowed in counted if allowed == {1})
    return Proof(
        name="Each command took effect exactly as often as promised",
        held=bool(counted) and not wrong,
        expected=f"{once} once, {never} never, {len(counted) - once - never} again after a crash",
        found=f"{sum(runs.values())} runs of {len(runs)} commands, {len(wrong)} wrong",
        details=_details(wrong),
    )


def prove_readings(name: str, devices: Iterable[DeviceReadings]) -> Proof:
    """Each reading that was sent was accepted and is stored exactly once and as it was; nothing else is stored.

    A service that refuses what it is sent loses nothing, and yet nothing is proved with it: that does not hold either.
    With readings that are still on their way, and nothing else wrong, it is inconclusive.
    """
    devices = tuple(devices)
    findings = [audit_readings(readings) for readings in devices]
    left_out = [sentence for readings in devices for sentence in _not_accepted(readings)]
    lost = sum(len(found.lost) for found in findings)
    doubled = sum(len(found.doubled) for found in findings)
    altered = sum(len(found.altered) for found in findings)
    unknown = sum(len(found.unknown) for found in findings)
    accepted = sum(found.accepted for found in findings)
    sound = not left_out and all(found.clean for found in findings)
    waiting = [
        f"{readings.device}: {_still_waiting(len(readings.waiting))}" for readings in devices if readings.waiting
    ]
    return Proof(
        name=name,
        held=accepted > 0 and sound and not waiting,
        expected=f"{accepted} accepted by {len(findings)} {'device' if len(findings) == 1 else 'devices'}",
        found=f"{sum(found.stored for found in findings)} stored: {lost} lost, {doubled} doubled, "
        f"{altered} altered, {unknown} unknown",
        details=_details([sentence for found in findings for sentence in found.sentences()] + left_out + waiting),
        lost=lost + altered,
        inconclusive=sound and bool(waiting),
    )


def _still_waiting(count: int) -> str:
    return f"{count} {'reading was' if count == 1 else 'readings were'} still in its outbox when the demo ended"


def _not_accepted(readings: DeviceReadings) -> list[str]:
    """What kept the service from having this device's readings, a sentence each."""
    wrong = []
    if readings.refused:
        wrong.append(f"{readings.device}: the service refused {readings.refused} readings for good")
    if readings.unanswered:
        wrong.append(f"{readings.device}: {readings.unanswered} readings were sent and got no good answer")
    if not readings.accepted:
        wrong.append(f"{readings.device}: the service accepted no reading")
    if readings.misdated:
        wrong.append(
            f"{readings.device}: {readings.misdated} readings carry another time than that at which they were made"
        )
    return wrong


def cut_off(
    made: Sequence[tuple[int, float]], stored: AbstractSet[int], *, ended_s: float, restarted_s: float
) -> frozenset[int]:
    """The readings that the end of the agent's process may have caught on their way into the outbox.

    The outbox commits in order. So these are the last ones before the restart, up to the newest that is stored, and
    none from before the last seconds: one that is missing between two stored ones is lost.

    Args:
        made: key and epoch seconds of each reading, in the order in which they were made.
        stored: the keys that the service gives back.
        ended_s: when the process was ended, or asked to end, epoch seconds.
        restarted_s: when it was started again; infinite when it was not.
    """
    caught = set()
    for key, at_s in reversed(made):
        if at_s > restarted_s:
            continue
        if key in stored or at_s < ended_s - _UNCOMMITTED_S:
            break
        caught.add(key)
    return frozenset(caught)


def prove_outbox_balance(outbox: OutboxBalance) -> Proof:
    """What the real agent's outbox ever took in is what the service stored, and no more.

    While something waits there, and nothing else is wrong, it is inconclusive. What waits may be stored already: then
    the receipt has not come back.
    """
    wrong: list[str] = []
    leaving = outbox.delivered + outbox.waiting + outbox.set_aside + outbox.dropped
    if outbox.accepted != leaving:
        wrong.append(f"{outbox.device}: took in {outbox.accepted}, but accounts for {leaving}")
    if not outbox.delivered <= outbox.stored <= outbox.delivered + outbox.waiting:
        wrong.append(f"{outbox.device}: delivered {outbox.delivered}, but {outbox.stored} are stored")
    if outbox.doubled:
        wrong.append(f"{outbox.device}: {outbox.doubled} readings are stored more than once")
    if outbox.dropped:
        wrong.append(f"{outbox.device}: dropped {outbox.dropped} readings at a bound")
    if outbox.set_aside:
        wrong.append(f"{outbox.device}: the service refused {outbox.set_aside} readings for good")
    if not outbox.delivered:
        wrong.append(f"{outbox.device}: delivered no reading at all")
    waiting = [f"{outbox.device}: {_still_waiting(outbox.waiting)}"] if outbox.waiting else []
    there = outbox.stored - outbox.doubled
    lost = max(0, outbox.accepted - leaving) + max(0, outbox.delivered - there)
    return Proof(
        name="The real agent's counters agree with the service's",
        held=outbox.accepted > 0 and not wrong and not waiting,
        expected=f"{outbox.accepted} taken in, over a SIGKILL",
        found=f"{outbox.stored} stored, {outbox.waiting} waiting, {outbox.set_aside} refused, {outbox.dropped} dropped",
        details=_details(wrong + waiting),
        lost=lost + outbox.dropped,
        inconclusive=bool(waiting) and not wrong,
    )


def prove_removal(device: str, answers: Mapping[str, int], still_listed: bool) -> Proof:
    """A removed device is gone everywhere.

    Args:
        device: its name for a person.
        answers: what was asked about the device -> the status code that came.
        still_listed: whether its user's list still has it.
    """
    wrong = [f"{device}: {asked} answered {status}, not 404" for asked, status in answers.items() if status != 404]
    if still_listed:
        wrong.append(f"{device}: its user's list still has it")
    return Proof(
        name="The removed device is gone",
        held=bool(answers) and not wrong,
        expected="404 everywhere, not listed",
        found=", ".join(f"{asked}: {status}" for asked, status in answers.items()) or "nothing was asked",
        details=_details(wrong),
    )


def exit_code(proofs: Sequence[Proof]) -> ExitCode:
    """The verdict as an exit code: data lost or changed weighs most, then a proof that failed, then an open one."""
    if any(proof.lost for proof in proofs):
        return ExitCode.DATA_LOST
    if not proofs or not all(proof.held or proof.inconclusive for proof in proofs):
        return ExitCode.CHECK_FAILED
    if any(proof.inconclusive for proof in proofs):
        return ExitCode.INCONCLUSIVE
    return ExitCode.GOOD


def _details(sentences: Sequence[str]) -> tuple[str, ...]:
    shown = tuple(sentences[:_DETAILS_SHOWN])
    more = len(sentences) - len(shown)
    return (*shown, f"and {more} more") if more > 0 else shown


def _one_of(numbers: frozenset[int]) -> str:
    return " or ".join(map(str, sorted(numbers)))
