"""The audit of commands: what operators and devices wrote down against what the service lists. Pure.

*Lost*: the service took it and does not list it; or it took the result and still lists it as open or as timed out; or
it succeeded and never had an effect. *Doubled*: its effect began more often than the handler's contract allows, or it
is listed twice. ``once`` may begin once. The other contracts may begin again when the power went in the middle, each
time as a further attempt; a second first attempt is a double. *Altered*: the service has a result that the device
never gave, or of another one. *Unknown*: it came to a device, or is listed as made during the run, and nobody ordered
it. *Reordered*: a device got it before another one that the service had made earlier. *Late*: finished long after it
was ordered. A command that was made before the run is of an earlier run of the same devices, and never unknown.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from agent.core.values import Contract, OutcomeStatus
from agent.wire.command_states import RESULT_STATES, CommandStatus
from simulator.fleet.audit.findings import Findings, StreamSums
from simulator.fleet.audit.ledger_format import CommandEvent, CommandKind

_NOT_TAKEN: Final = frozenset(CommandStatus) - RESULT_STATES


@dataclass(frozen=True, slots=True)
class CommandRules:
    """What the judgement goes by.

    Attributes:
        ordered_here: whether operators of this run wrote down what they ordered; else any command may be somebody's.
        results_listed: the service's lists have results; a plain service takes them elsewhere.
        ended_ms: the last thing that this run wrote down; what the service made later is another run's.
        late_after_ms: from ordered to finished.
        read: indices of the devices whose commands were read back.
        partial: indices of devices whose ledger is not whole, or everybody's when the operator's is not.
        lists_read: the service's lists were to be read; otherwise what came to its device is judged by the ledgers, and
            of the rest nobody can say.
    """

    ordered_here: bool
    results_listed: bool
    ended_ms: int
    late_after_ms: int
    read: frozenset[int]
    partial: frozenset[int]
    lists_read: bool = True


@dataclass(frozen=True, slots=True)
class CommandSums(StreamSums):
    """Counts over all commands; each command counts once in each kind.

    Attributes:
        effects: how often an effect began.
        again: effects that began again, as the contract allows after a power cut.
        undelivered: ordered, and never came to the device; not lost, the service still has them or says they expired.
        unjudged: of these, those whose list was not read.
        stateless: their result was taken, and the service lists them in no state that is known, where it should.
        foreign: of other runs with the same devices, which no other count has.
    """

    effects: int = 0
    again: int = 0
    undelivered: int = 0
    unjudged: int = 0
    stateless: int = 0
    foreign: int = 0


@dataclass(slots=True)
class _Command:
    """One command as all sides know it; times in milliseconds since the run's begin.

    Attributes:
        made_ms: by the service's clock; 0 where it does not say.
        is_older: it came to its device with a time before the run's begin.
    """

    ordered_ms: int | None = None
    received_ms: int | None = None
    contract: Contract | None = None
    attempts: list[int] = field(default_factory=list)
    finished_ms: int | None = None
    outcomes: list[OutcomeStatus] = field(default_factory=list)
    reported: bool = False
    listed: list[CommandStatus | None] = field(default_factory=list)
    made_ms: int = 0
    is_older: bool = False

    def take(self, event: CommandEvent) -> None:
        if event.kind is CommandKind.ORDERED:
            self.ordered_ms = event.at_ms
        elif event.kind is CommandKind.RECEIVED:
            self.received_ms = event.at_ms if self.received_ms is None else min(self.received_ms, event.at_ms)
            self.is_older = self.is_older or event.is_older
        elif event.kind is CommandKind.STARTED:
            self.contract = event.contract
            self.attempts.append(event.attempt)
        elif event.kind is CommandKind.FINISHED and event.status is not None:
            self.finished_ms = event.at_ms
            self.outcomes.append(event.status)
        elif event.kind is CommandKind.REPORTED:
            self.reported = True
        elif event.kind is CommandKind.LISTED:
            self.listed.append(event.state)
            self.made_ms = event.at_ms

    @property
    def is_doubled(self) -> bool:
        most = 1 if self.contract is Contract.ONCE else max(1, len(set(self.attempts)))
        return len(self.attempts) > most or len(self.listed) > 1

    def is_lost(self, *, results_listed: bool) -> bool:
        """Whether a command that was ordered, and whose device was read back, is lost."""
        if not self.listed:
            return True
        if results_listed and self.reported and self.listed[0] in _NOT_TAKEN:
            return True
        return OutcomeStatus.SUCCEEDED in self.outcomes and not self.attempts

    def is_of_another_run(self, run: _RunTimes) -> bool:
        """Whether nobody of this run ordered it, and it was made before the run began, or after it ended."""
        if self.ordered_ms is not None:
            return False
        if self.made_ms == 0:
            return self.received_ms is None or (self.is_older and run.ages_hold)
        return self.made_ms < run.begin_ms or (self.received_ms is None and self.made_ms > run.ended_ms)

    @property
    def is_altered(self) -> bool:
        state = self.listed[0] if self.listed else None
        return state in RESULT_STATES and str(state) not in map(str, self.outcomes)


@dataclass(frozen=True, slots=True)
class _RunTimes:
    """When a run was, by the clock that dates commands.

    Attributes:
        begin_ms: no command of the run was made before.
        ended_ms: see :class:`CommandRules`.
        ages_hold: commands that the run ordered came to devices, and none with a time before the run's begin; a clock
            that is slow, or one of whole seconds, would give them such.
    """

    begin_ms: int
    ended_ms: int
    ages_hold: bool

    @classmethod
    def of(cls, commands: Iterable[_Command], ended_ms: int) -> _RunTimes:
        """How far the service's clock is off is seen in what was ordered: it was made just before its answer came."""
        ordered = [each for each in commands if each.ordered_ms is not None]
        off_ms = [each.made_ms - each.ordered_ms for each in ordered if each.made_ms and each.ordered_ms is not None]
        came = [each.is_older for each in ordered if each.received_ms is not None]
        return cls(max(off_ms, default=0), ended_ms, bool(came) and not any(came))


def judge_commands(events: Iterable[CommandEvent], rules: CommandRules, found: Findings) -> CommandSums:
    """Judge the commands of some devices.

    Args:
        events: what was written down and what is listed, in any order.
        rules: what to go by.
        found: gets what is wrong, by device.

    Returns:
        The sums of these devices.
    """
    unanswered: Counter[int] = Counter()
    devices: dict[int, dict[str, _Command]] = defaultdict(dict)
    for event in events:
        if event.kind is CommandKind.ORDER_UNANSWERED:
            unanswered[event.device] += 1
        else:
            devices[event.device].setdefault(event.command_id, _Command()).take(event)
    sums: Counter[str] = Counter(ambiguous=unanswered.total(), sent=unanswered.total())
    run = _RunTimes.of((each for commands in devices.values() for each in commands.values()), rules.ended_ms)
    for device, commands in devices.items():
        ours = {name: each for name, each in commands.items() if not each.is_of_another_run(run)}
        strangers = [name for name, each in ours.items() if each.ordered_ms is None]
        sums["foreign"] += len(commands) - len(ours)
        wrong = _wrong_of(device, commands, strangers, unanswered[device], rules)
        for kind, names in wrong.items():
            sums[kind] += len(names)
            if names:
                found.add(kind, device, len(names), names)
        sums += _counts(ours.values())
        if rules.results_listed:
            sums["stateless"] += sum(each.reported and None in each.listed for each in commands.values())
        if not rules.lists_read:
            missing = unanswered[device] + _undelivered(commands)
            sums["unjudged"] += max(0, missing - len(strangers))
    for device in unanswered.keys() - devices.keys():
        sums["unjudged"] += 0 if rules.lists_read else unanswered[device]
    return CommandSums(**sums)


def _wrong_of(
    device: int, commands: Mapping[str, _Command], strangers: list[str], unanswered: int, rules: CommandRules
) -> Mapping[str, Sequence[str]]:
    """Kind -> ids of one device's commands; ``strangers`` are of this run, and nobody wrote them down as ordered."""
    read, whole = device in rules.read, device not in rules.partial
    wrong: dict[str, list[str]] = {kind: [] for kind in ("lost", "doubled", "reordered", "altered", "late", "unknown")}
    if not rules.lists_read:
        # A service may give an order another id in its answer than in the list; as many as are missing may be those.
        unanswered += _undelivered(commands)
    if rules.ordered_here and whole:
        # As many as got no answer may be those; which ones, nobody knows.
        wrong["unknown"] = strangers[unanswered:]
    for name, each in commands.items():
        if each.is_doubled:
            wrong["doubled"].append(name)
        known = each.ordered_ms is not None or not rules.ordered_here
        if read and known and each.is_lost(results_listed=rules.results_listed):
            wrong["lost"].append(name)
        is_ours = each.ordered_ms is not None or each.received_ms is not None
        if read and whole and is_ours and each.is_altered:
            wrong["altered"].append(name)
        if (
            each.ordered_ms is not None
            and each.finished_ms is not None
            and each.finished_ms - each.ordered_ms > rules.late_after_ms
        ):
            wrong["late"].append(name)
    wrong["reordered"] = _reordered(commands)
    return wrong


def _undelivered(commands: Mapping[str, _Command]) -> int:
    return sum(each.ordered_ms is not None and each.received_ms is None for each in commands.values())


def _reordered(commands: Mapping[str, _Command]) -> list[str]:
    """Commands that reached their device before one that the service had made earlier; equal times have no order."""
    there = [
        (each.made_ms, each.received_ms, name)
        for name, each in commands.items()
        if each.made_ms != 0 and each.received_ms is not None
    ]
    there.sort()
    found, latest, latest_of_equals, equals_ms = [], -1, -1, -1
    for made_ms, received_ms, name in there:
        if made_ms != equals_ms:
            latest, equals_ms = max(latest, latest_of_equals), made_ms
        if received_ms < latest:
            found.append(name)
        latest_of_equals = max(latest_of_equals, received_ms)
    return found


def _counts(commands: Iterable[_Command]) -> Counter[str]:
    sums: Counter[str] = Counter()
    for each in commands:
        ordered = each.ordered_ms is not None
        sums["sent"] += ordered
        sums["accepted"] += ordered
        sums["stored"] += len(each.listed)
        sums["effects"] += len(each.attempts)
        sums["again"] += max(0, len(each.attempts) - 1)
        sums["undelivered"] += ordered and each.received_ms is None
    return sums
