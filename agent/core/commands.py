"""The life of a command on the device: which moves are legal, and what to do with a listed one.

Rules for the table :data:`MOVES`, and how it works:

1. A state is what the journal holds and nothing else: there are no states in memory.
2. All legal moves are in the table. Applying an event is a look-up, and a missing entry *is* the error
   :class:`IllegalMove`: no code asks "is this allowed?" beside it.

Handled here: new or known, history or work, expired, too large, nameless, unknown, invalid, one too many, taken back;
which lane; what the journal keeps of a command that is over.

Never handled here: what a crash means (:mod:`agent.core.recovery`), how long a run may take
(:mod:`agent.core.outcomes`), committing, running, reporting, waiting.

Therefore the I/O layer must

- give the journal ``Triage.entries`` before it acknowledges the list to the transport, and do so at first
  contact even when there are no entries: only then is the journal no longer empty, and the first command that is ever
  sent to this device is work, not history;
- ask :func:`refuse_at_start` again when a lane comes to a command, which may have waited long.

First contact is the first answer that this journal ever sees, on whichever way: a list, or a connection over which
commands are pushed. Its moment stays in the journal (:mod:`agent.core.first_contact`): what was sent before it is
history for ever, also when it comes later or on another way. A service that states ``queued``, ``delivered`` or
``in_progress`` says itself that a command is open, with an expiry that the sender chose: it is work also when it was
sent while the device was off for its very first time; which servers are taken at their word about that is in
:mod:`agent.core.listed_states`. A plain server lists everything for ever and cannot be told from
a log, so ``skip-history`` (the default) runs none of it: a command that was sent before a device's first contact with
a plain server is not run, since the other way round a new device would open the door for last week's command.

``in_progress`` of a command that the journal does not know means that a life it does not remember began it (a wiped
state directory, a second agent with the same id): only an idempotent handler runs then, one with a verify hook is
asked (:attr:`TriageVerdict.VERIFY`), any other command ends as ``indeterminate``. The same holds for every open command
after an unreadable journal was replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from agent.core.admission import AdmissionLimit, waited_s
from agent.core.first_contact import SETTING as FIRST_CONTACT
from agent.core.first_contact import Contact, look_at_contact
from agent.core.listed_states import FINAL_STATUSES, OPEN_STATUSES
from agent.core.outcomes import expiry, faulty, indeterminate, rejected
from agent.core.values import (
    Command,
    CommandState,
    Contract,
    JournalEntry,
    JsonObject,
    Moment,
    Outcome,
    OutcomeStatus,
)
from agent.errors import AgentError
from agent.frozen import dataclass
from agent.wire.limits import SIGNED_MEMBER

if TYPE_CHECKING:
    from agent.core.signed import SignaturePolicy, VerifiedCommands

ATTEMPTS_MAX: Final = 3
"""A handler that takes the agent down with it is not started more often than this, unless its rule says otherwise."""

WAITING_MAX: Final = 1000
"""So many commands wait for their lanes at most."""

WAITING_PER_LANE_MAX: Final = 200
"""So many commands wait for one lane at most."""

HISTORY_LOST: Final = "history_lost"
"""Name of the journal setting that is present after an unreadable journal was replaced: until the next ``admit``."""

_BEGUN: Final = "in_progress"
_CANCELED: Final = frozenset({"canceled", "cancelled"})


class CommandEvent(StrEnum):
    """What happens to a command."""

    ADMIT = "admit"
    SKIP = "skip"
    START = "start"
    FINISH = "finish"
    REPORT = "report"
    PUT_ASIDE = "put_aside"
    OFFER_AGAIN = "offer_again"
    GIVE_UP = "give_up"


class IllegalMove(AgentError):
    """An event that has no entry in :data:`MOVES` for the command's state: a fault of the program, not of the data."""

    def __init__(self, state: CommandState | None, event: CommandEvent) -> None:
        self.state = state
        self.event = event
        super().__init__(f"a command that is {state or 'not in the journal'} cannot {event}: report this as a bug")


MOVES: Final[Mapping[CommandState | None, Mapping[CommandEvent, CommandState]]] = {
    None: {
        CommandEvent.ADMIT: CommandState.RECEIVED,
        CommandEvent.SKIP: CommandState.SKIPPED,
        CommandEvent.FINISH: CommandState.FINISHED,  # refused at triage: it has an outcome and no run
    },
    CommandState.RECEIVED: {
        CommandEvent.START: CommandState.STARTED,
        CommandEvent.FINISH: CommandState.FINISHED,  # refused at the start
    },
    CommandState.STARTED: {
        CommandEvent.START: CommandState.STARTED,  # again, after a crash
        CommandEvent.FINISH: CommandState.FINISHED,
    },
    CommandState.FINISHED: {
        CommandEvent.REPORT: CommandState.REPORTED,
        CommandEvent.PUT_ASIDE: CommandState.PUT_ASIDE,  # the service has no place for its result
    },
    CommandState.PUT_ASIDE: {
        CommandEvent.OFFER_AGAIN: CommandState.FINISHED,
        CommandEvent.GIVE_UP: CommandState.GIVEN_UP,
    },
    CommandState.REPORTED: {},
    CommandState.SKIPPED: {},
    CommandState.GIVEN_UP: {},
}
"""State -> event -> next state. ``None`` is a command that the journal does not know."""

OPEN_STATES: Final = (CommandState.RECEIVED, CommandState.STARTED, CommandState.FINISHED)
OVER_STATES: Final = (CommandState.REPORTED, CommandState.SKIPPED, CommandState.GIVEN_UP)
"""Nothing is left to do, so an entry may be forgotten when the service no longer lists its command."""


def advance(state: CommandState | None, event: CommandEvent) -> CommandState:
    """The state after ``event``.

    Raises:
        IllegalMove: the table has no such move.
    """
    try:
        return MOVES[state][event]
    except KeyError:
        raise IllegalMove(state, event) from None


# --- what the journal keeps -------------------------------------------------------------------------------------------


def start_entry(entry: JournalEntry, at: Moment) -> JournalEntry:
    """The entry once its handler is about to run: ``started``, one attempt more."""
    state = advance(entry.state, CommandEvent.START)
    return replace(entry, state=state, attempts=entry.attempts + 1, started=at)


def finish_entry(entry: JournalEntry, outcome: Outcome, at: Moment) -> JournalEntry:
    """The entry once its outcome stands. The payload has done its duty and goes."""
    state = advance(entry.state, CommandEvent.FINISH)
    return replace(entry, state=state, command=_without_payload(entry.command), outcome=outcome, finished=at)


def report_entry(entry: JournalEntry) -> JournalEntry:
    """The entry once the service has the result: it stays for de-duplication, without payload and result.

    A plain server lists commands for ever, so the journal keeps them as long, and 64 KiB each would fill a flash card.
    """
    state = advance(entry.state, CommandEvent.REPORT)
    outcome = None if entry.outcome is None else replace(entry.outcome, result=None)
    return replace(entry, state=state, outcome=outcome)


def _without_payload(command: Command) -> Command:
    return replace(command, payload={}) if command.payload else command


# --- triage -----------------------------------------------------------------------------------------------------------


class FirstContact(StrEnum):
    """What to do with the history that a plain server lists at first contact."""

    SKIP_HISTORY = "skip-history"
    LATEST = "latest"
    ALL = "all"


class TriageVerdict(StrEnum):
    """What triage says of one listed command."""

    ADMIT = "admit"
    REFUSE = "refuse"
    SKIP = "skip"
    VERIFY = "verify"
    """Another life may have run it: admitted as ``started``, and its handler is asked how it ended."""
    CANCEL = "cancel"
    """It waits or runs here, and the service lists it as canceled."""
    DUPLICATE = "duplicate"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class HandlerRule:
    """What triage knows of one usable handler.

    Attributes:
        contract: what it promises.
        lane: commands of one lane run one after the other.
        start_timeout_s: how long a command may wait for its lane, seconds; None for as long as it likes.
        max_attempts: how often it may be started for one command, its verify hook included.
        verifies: it can tell after a crash how a command ended.
    """

    contract: Contract
    lane: str
    start_timeout_s: float | None = None
    max_attempts: int = ATTEMPTS_MAX
    verifies: bool = False


def _accept_all(_payload: JsonObject) -> str | None:
    return None


@dataclass(frozen=True, slots=True)
class CommandRules:
    """What triage goes by.

    Attributes:
        handlers: the usable handlers by name.
        judge: why this whole ``command_payload`` is not acceptable, as ``code: sentence``, or None. It is asked only
            for payloads within the size limit that name a handler, also one that is not in ``handlers``.
        handler_key: the payload's member that names the handler.
        max_payload_bytes: larger payloads are refused unread.
        first_contact: the policy for history.
        signatures: what signed commands have to be; None where none are taken.
        max_waiting, max_waiting_per_lane: more commands may not wait; a lane in which none waits always takes one.
    """

    handlers: Mapping[str, HandlerRule]
    judge: Callable[[JsonObject], str | None] = _accept_all
    handler_key: str = "command"
    max_payload_bytes: int = 65_536
    first_contact: FirstContact = FirstContact.SKIP_HISTORY
    signatures: SignaturePolicy | None = None
    max_waiting: int = WAITING_MAX
    max_waiting_per_lane: int = WAITING_PER_LANE_MAX

    @property
    def settings(self) -> tuple[str, ...]:
        """The journal's settings that :func:`triage` has to be given."""
        return (FIRST_CONTACT,) if self.signatures is None else (FIRST_CONTACT, *self.signatures.settings)

    def handler_of(self, payload: JsonObject) -> str:
        """The name that the payload gives; empty when it gives none."""
        name = payload.get(self.handler_key)
        return name if isinstance(name, str) else ""


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do with one listed command.

    Attributes:
        entry: what the journal shall hold, or holds; None for ``CLOSED``, which needs no entry.
        lane: where it runs; None unless it is admitted or to be verified.
    """

    command_id: str
    verdict: TriageVerdict
    entry: JournalEntry | None = None
    lane: str | None = None


@dataclass(frozen=True, slots=True)
class Triage:
    """The decisions on one list, in its order.

    Attributes:
        first_contact: ``entries`` goes to the journal even when it is empty.
        settings: what the journal must store in the same transaction as ``entries``.
        signers: command id -> who signed it, for the log.
    """

    decisions: tuple[Decision, ...] = ()
    first_contact: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)
    signers: Mapping[str, str] = field(default_factory=dict)

    @property
    def must_be_stored(self) -> bool:
        """The journal has to be written: new entries, the first contact, or its moment, which is known only now."""
        return bool(self.entries) or self.first_contact or FIRST_CONTACT in self.settings

    @property
    def entries(self) -> tuple[JournalEntry, ...]:
        """What the journal must commit, in this order."""
        new = (TriageVerdict.ADMIT, TriageVerdict.REFUSE, TriageVerdict.SKIP, TriageVerdict.VERIFY)
        return tuple(d.entry for d in self.decisions if d.verdict in new and d.entry is not None)

    def of(self, verdict: TriageVerdict) -> tuple[Decision, ...]:
        """The decisions with this verdict."""
        return tuple(decision for decision in self.decisions if decision.verdict is verdict)


def triage(
    commands: Iterable[Command],
    known: Mapping[str, JournalEntry],
    rules: CommandRules,
    *,
    received: Moment,
    service_now_s: float | None,
    first_contact: bool = False,
    history_lost: bool = False,
    settings: Mapping[str, str] | None = None,
    waiting: Mapping[str, int] | None = None,
) -> Triage:
    """Decide on a list of commands, oldest first. One pass; 10,000 old commands take milliseconds.

    Args:
        commands: what the service lists.
        known: the journal's entries for these ids.
        rules: handlers, limits and policies.
        received: now, on the agent's clocks.
        service_now_s: now, on the service's clock; None when nobody can say, and then nothing counts as expired.
        first_contact: the journal is empty: it has never seen an answer.
        history_lost: the journal replaced an unreadable one (setting :data:`HISTORY_LOST`): whether an open command
            has run is not known, so only idempotent ones run and the others end as ``indeterminate``.
        settings: the journal's, of the names in ``rules.settings``.
        waiting: lane -> how many commands are in it by now, the running one included.
    """
    listed = list(commands)
    verified: VerifiedCommands | None = None
    if rules.signatures is not None:
        verified = rules.signatures.unseal(
            listed, known, settings or {}, max_bytes=rules.max_payload_bytes, service_now_s=service_now_s
        )
        listed = verified.commands
    refusals = {} if verified is None else verified.refusals
    limit = AdmissionLimit(rules.max_waiting, rules.max_waiting_per_lane, dict(waiting or {}))
    is_first = first_contact or history_lost
    stored = (settings or {}).get(FIRST_CONTACT)
    contact = look_at_contact(stored, received, service_now_s, is_first=is_first)
    pass_ = _Pass(rules, received, service_now_s, is_first, history_lost, refusals, limit, contact)
    newest = pass_.newest_of_each_handler(listed) if rules.first_contact is FirstContact.LATEST else frozenset()
    seen: set[str] = set()
    decisions: list[Decision] = []
    for command in listed:
        entry = known.get(command.id)
        if entry is not None and _is_taken_back(command, entry):
            decisions.append(Decision(command.id, TriageVerdict.CANCEL, entry))
        elif entry is not None or command.id in seen:
            decisions.append(Decision(command.id, TriageVerdict.DUPLICATE, entry))
        else:
            decisions.append(pass_.decide(command, is_newest=command.id in newest))
        seen.add(command.id)
    to_store = {} if verified is None else dict(verified.settings)
    if contact.text is not None and contact.text != stored:
        to_store[FIRST_CONTACT] = contact.text
    return Triage(tuple(decisions), is_first, to_store, {} if verified is None else verified.signers)


def refuse_at_start(
    entry: JournalEntry,
    service_now_s: float | None,
    now: Moment | None = None,
    start_timeout_s: float | None = None,
) -> Outcome | None:
    """The outcome of a command that waited too long for its lane; None when it may start.

    Args:
        entry: as the journal has it.
        service_now_s: now, on the service's clock; None when nobody can say, and then nothing counts as expired.
        now: this instant; only the start timeout asks for it.
        start_timeout_s: its handler's. A command that was started before has kept it once and for all.
    """
    expired = expiry(entry.command, service_now_s)
    if expired is not None:
        return expired
    if start_timeout_s is None or now is None or entry.state is not CommandState.RECEIVED:
        return None
    so_far_s = waited_s(entry.received, now)
    if so_far_s <= start_timeout_s:
        return None
    text = f"it waited {so_far_s:.0f} s for its lane, and its handler allows {start_timeout_s:g} s"
    return rejected("not_started_in_time", text)


def _is_taken_back(command: Command, entry: JournalEntry) -> bool:
    is_open = entry.state in (CommandState.RECEIVED, CommandState.STARTED)
    return is_open and (command.status or "").lower() in _CANCELED


@dataclass(frozen=True, slots=True)
class _Pass:
    """One triage: what holds for all commands of the list."""

    rules: CommandRules
    received: Moment
    service_now_s: float | None
    first_contact: bool
    history_lost: bool
    refusals: Mapping[str, Outcome]
    limit: AdmissionLimit
    contact: Contact

    def decide(self, command: Command, *, is_newest: bool) -> Decision:
        """The decision on a command that the journal does not know."""
        status = (command.status or "").lower()
        if status in FINAL_STATUSES:
            return Decision(command.id, TriageVerdict.CLOSED)
        handler = self.rules.handler_of(command.payload)
        is_history = status not in OPEN_STATUSES and (self.first_contact or self.contact.is_after(command))
        if is_history and not self._is_wanted(is_newest=is_newest):
            return self._put_away(command, handler, CommandEvent.SKIP, TriageVerdict.SKIP, None)
        outcome = self._refusal(command, handler)
        doubt = None if outcome is not None else self._doubt(handler, status)
        rule = self.rules.handlers.get(handler)
        if rule is not None and outcome is None and (doubt is None or rule.verifies):
            outcome = self.limit.refuse(rule.lane)
            if outcome is None:
                return self._take(command, handler, rule, is_begun=doubt is not None)
        return self._put_away(command, handler, CommandEvent.FINISH, TriageVerdict.REFUSE, outcome or doubt)

    def _take(self, command: Command, handler: str, rule: HandlerRule, *, is_begun: bool) -> Decision:
        entry = JournalEntry(command, advance(None, CommandEvent.ADMIT), handler, self.received)
        if not is_begun:
            return Decision(command.id, TriageVerdict.ADMIT, entry, rule.lane)
        # As if this life had begun it: should it end before the handler was asked, the next one asks again.
        return Decision(command.id, TriageVerdict.VERIFY, start_entry(entry, self.received), rule.lane)

    def newest_of_each_handler(self, commands: Iterable[Command]) -> frozenset[str]:
        """The ids of the last command in the list for each handler, among those that are not over."""
        newest: dict[str, str] = {}
        for command in commands:
            if (command.status or "").lower() not in FINAL_STATUSES:
                newest[self.rules.handler_of(command.payload)] = command.id
        return frozenset(newest.values())

    def _is_wanted(self, *, is_newest: bool) -> bool:
        policy = self.rules.first_contact
        # The latest of each handler is chosen among what came at first contact; what comes later and is older is none.
        return policy is FirstContact.ALL or (policy is FirstContact.LATEST and is_newest and self.first_contact)

    def _put_away(
        self, command: Command, handler: str, event: CommandEvent, verdict: TriageVerdict, outcome: Outcome | None
    ) -> Decision:
        finished = self.received if outcome is not None else None
        state = advance(None, event)
        # A name out of a refused payload may be anything; the journal and the status page show its beginning.
        entry = JournalEntry(
            _without_payload(command), state, handler[:128], self.received, finished=finished, outcome=outcome
        )
        return Decision(command.id, verdict, entry)

    def _refusal(self, command: Command, handler: str) -> Outcome | None:
        rules = self.rules
        if command.size_bytes > rules.max_payload_bytes:
            sizes = f"{command.size_bytes} bytes are more than this device's limit of {rules.max_payload_bytes}"
            return rejected("payload_too_large", f"a command_payload of {sizes}")
        refused = faulty(command) or self._seal_refusal(command) or expiry(command, self.service_now_s)
        if refused is not None:
            return refused
        if not handler:
            where = f"the command_payload has no text member {rules.handler_key!r} that names a handler"
            return rejected("missing_command_name", where)
        fault = rules.judge(command.payload)
        if fault is not None:
            return Outcome(OutcomeStatus.REJECTED, error=fault)
        if handler not in rules.handlers:
            return rejected("unknown_command", f"this device has no handler {handler[:80]!r}")
        return None

    def _seal_refusal(self, command: Command) -> Outcome | None:
        """Why the signature, its absence, or an envelope that is still closed forbids the command."""
        if command.id not in self.refusals and SIGNED_MEMBER in command.payload:
            sentence = "this device takes no signed commands; set commands.signing.mode to accept, or send it unsigned"
            return rejected("signature_not_accepted", sentence)
        return self.refusals.get(command.id)

    def _doubt(self, handler: str, status: str) -> Outcome | None:
        """The outcome of a command that may have run in a life that this journal does not remember."""
        if self.rules.handlers[handler].contract is Contract.IDEMPOTENT:
            return None
        if status == _BEGUN:
            return indeterminate("it was in progress already, and this device's journal does not know it")
        if self.history_lost:
            return indeterminate("this device's journal was lost, so whether it has run is not known")
        return None
