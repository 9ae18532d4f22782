"""Decides about the commands of a list: which are new, which are history and do not run, which are refused and why.

The caller must commit ``Decisions.entries`` and ``Decisions.settings``, in one transaction, before it acknowledges the
list to the transport. At first contact there are settings even without entries: only then is the journal no longer
empty, and the first command that is ever sent to this device is work, not history.

First contact is the first answer that this journal ever sees, on whichever way: a list, or a connection over which
commands are pushed. Its time is on the service's clock and is kept in the journal (setting :data:`FIRST_CONTACT`),
committed with the first admission: what was sent before it is history for ever, also when it comes later, on another
way or after a restart. A journal that was wiped has its first contact again. The service's clock may not be known at
that moment, as over MQTT before the gateway's notice. Then the device's own monotonic clock is kept, and the time is
computed as soon as it is known. After a reboot in between nobody can say how long ago it was: then the first contact
counts from the moment at which the time became known, since a command that is not run is better than last week's
command run today.

A service that states ``queued``, ``delivered`` or ``in_progress`` says itself that a command is open, with an expiry
that the sender chose: it is work also when it was sent while the device was off for its very first time. Which servers
are believed about that is in :func:`agent.core.commands.listed_state`. The list of a plain server, which lists
everything for ever, is no different from a log, so ``skip-history`` (the default of ``commands.first_contact``) runs
none of it: a command that was sent before a device's first contact with a plain server is not run. Else a new device
would open the door for last week's command.

``in_progress`` of a command that the journal does not know means that another process began it, whose journal is gone
(a wiped state directory, a second agent with the same id). Then an idempotent handler runs, one with a verify hook is
asked (:attr:`Verdict.VERIFY`), and any other command ends as ``indeterminate``. After an unreadable journal was
replaced, every open command is treated so.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from agent.core.commands import (
    FINAL_STATUSES,
    OPEN_STATUSES,
    HandlerRule,
    expiry,
    indeterminate,
    rejected,
    start_entry,
    without_payload,
)
from agent.core.values import Command, CommandState, Contract, JournalEntry, JsonObject, Moment, Outcome, OutcomeStatus
from agent.errors import InvalidSignature
from agent.wire.limits import SIGNED_MEMBER

WAITING_MAX: Final = 1000
"""So many commands wait for their lanes at most; a lane in which none waits always takes one."""

WAITING_PER_LANE_MAX: Final = 200
"""So many commands wait for one lane at most."""

FIRST_CONTACT: Final = "first_contact"
"""Name of the journal's setting that holds when this device's first contact was."""

RESOLUTION_S: Final = 2.0
"""A command that is older than the first contact by less than this counts as sent after it: the time in ``Date`` and
often ``created_at`` have whole seconds."""

_MINUTE_S: Final = 60.0
# The first contact may be so far ahead of the service's clock before that clock counts as set back.
_AHEAD_S: Final = 5.0
_BEGUN: Final = "in_progress"
_CANCELED: Final = frozenset({"canceled", "cancelled"})


# --- first contact ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Contact:
    """When the first contact was.

    Attributes:
        at_s: seconds since the epoch on the service's clock; None while nobody can say.
        mono: the device's monotonic clock then, while ``at_s`` is not known.
        boot: which boot that belongs to.
    """

    at_s: float | None = None
    mono: float = 0.0
    boot: str = ""

    @classmethod
    def from_json(cls, text: str | None) -> Contact | None:
        """Out of the journal's setting; None where there was no first contact."""
        if text is None:
            return None
        try:
            members = json.loads(text)
            return cls(members.get("at"), members.get("mono", 0.0), members.get("boot", ""))
        except (ValueError, AttributeError):
            return cls()

    def to_json(self) -> str:
        """For the journal's setting."""
        return json.dumps({"at": self.at_s, "mono": self.mono, "boot": self.boot})

    def dated(self, now: Moment, service_now_s: float | None) -> Contact:
        """As it has to be kept from now on; ``service_now_s`` is None while nobody knows the service's time."""
        if service_now_s is None:
            return self
        if self.at_s is None:
            is_measured = self.boot == now.boot_id and self.mono <= now.monotonic_s
            return Contact(service_now_s - (now.monotonic_s - self.mono if is_measured else 0.0))
        # The service's clock was ahead and was set back: nothing new would run until it is there again.
        return Contact(service_now_s) if self.at_s > service_now_s + _AHEAD_S else self

    def is_later_than(self, command: Command) -> bool:
        """Whether this contact came after the command was sent or first listed; False where nobody can say."""
        contact_s = self.at_s
        if contact_s is None:
            return False
        times = (command.created_at, command.listed_at)
        return any(at is not None and at < contact_s - _resolution_s(at) for at in times)


def _resolution_s(at_s: float) -> float:
    """How much later than a time its command may have been sent: some servers write times without seconds."""
    return RESOLUTION_S + (_MINUTE_S if at_s % _MINUTE_S == 0 else 0.0)


# --- signed commands --------------------------------------------------------------------------------------------------
# Whether a command must be signed, that it was signed for this device, its counter and its expiry are checked here; the
# format, the signature and the keys in agent.wire.signed.
#
# Every key has a counter that only grows: a command counts once its counter is above the highest that this device has
# seen of that key, and from then on neither it nor one that was signed before it counts again. The counter is used up
# by every command whose signature holds, also by one that is refused (expired, unknown to this device, history at first
# contact): else whoever keeps a refused command could have it run later, under better circumstances.
#
# The counter needs no clock. The expiry is compared with the service's clock where that is known; while it is not, as
# with a device that starts in 1970 and has not heard from the service yet, the counter decides alone.

_MAX_LIFETIME_S: Final = 172_800.0
"""One that expires later than this from now is rejected: bounds how long a command that was held back can run."""
# How far the sender's clock may be ahead when the lifetime is compared.
_CLOCKS_DIFFER_S: Final = 60.0
_NO_NUMBER: Final = 2**63


def setting_of(key_id: str) -> str:
    """The name of the journal's setting that holds the highest counter of a key."""
    return f"signed_counter:{key_id}"


@dataclass(frozen=True, slots=True)
class SignedCommand:
    """The members of a signed command, whose signature holds.

    Attributes:
        key_id: by which key.
        device_id: the one device that it is for.
        id: the sender's own name for it.
        counter: grows from each command of this key to the next.
        expires_at: not to be run from then on, seconds since the epoch.
        payload: the ``command_payload`` that is meant.
    """

    key_id: str
    device_id: str
    id: str
    counter: int
    expires_at: float
    payload: JsonObject


@dataclass(frozen=True, slots=True)
class SignaturePolicy:
    """The rules by which a device accepts signed commands.

    Attributes:
        open: what an envelope says, once its signature holds; raises :class:`~agent.errors.InvalidSignature`.
        device_id: this device.
        key_ids: the trusted keys.
        required: an unsigned command is refused.
        required_for: handlers whose commands must be signed even where others need not be.
    """

    open: Callable[[JsonObject], SignedCommand]
    device_id: str
    key_ids: tuple[str, ...]
    required: bool
    required_for: frozenset[str]


def _time_refusal(left_s: float) -> Outcome | None:
    """Why a signature that holds for so much longer does not let the command run."""
    if left_s <= 0:
        return rejected("signature_expired", f"its signature expired {-left_s:.0f} s before it came")
    if left_s > _MAX_LIFETIME_S + _CLOCKS_DIFFER_S:
        sentence = f"its signature holds for {left_s:.0f} s, and this device allows {_MAX_LIFETIME_S:.0f} s"
        return rejected("signature_lifetime", f"{sentence}; sign it for a shorter time, or check the clocks")
    return None


# --- rules and decisions ----------------------------------------------------------------------------------------------


class Verdict(StrEnum):
    """The decision about one listed command."""

    ADMIT = "admit"
    REFUSE = "refuse"
    SKIP = "skip"
    VERIFY = "verify"
    """Another process may have run it: admitted as ``started``, and its handler is asked how it ended."""
    CANCEL = "cancel"
    """It waits or runs here, and the service lists it as canceled."""
    DUPLICATE = "duplicate"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class CommandRules:
    """By what it is decided: handlers, limits and policies.

    Attributes:
        handlers: the usable handlers by name.
        judge: why this whole ``command_payload`` is not acceptable, as ``code: sentence``, or None. It is asked only
            for payloads within the size limit that name a handler, also one that is not in ``handlers``.
        handler_key: the payload's member that names the handler.
        max_payload_bytes: larger payloads are refused unread.
        runs_history: what a plain server lists at first contact is run, too.
        signatures: what signed commands have to be; None where none are taken.
    """

    handlers: Mapping[str, HandlerRule]
    judge: Callable[[JsonObject], str | None] = lambda _payload: None
    handler_key: str = "command"
    max_payload_bytes: int = 65_536
    runs_history: bool = False
    signatures: SignaturePolicy | None = None

    @property
    def settings(self) -> tuple[str, ...]:
        """The journal's settings that :func:`decide_commands` has to be given."""
        return (FIRST_CONTACT, *map(setting_of, () if self.signatures is None else self.signatures.key_ids))


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do with one listed command.

    Attributes:
        entry: what the journal shall hold, or holds; None for ``CLOSED``, which needs no entry.
        signer: key, name and counter of who signed it, for the log; empty where no signature holds.
    """

    command_id: str
    verdict: Verdict
    entry: JournalEntry | None = None
    signer: str = ""


@dataclass(frozen=True, slots=True)
class Decisions:
    """The decisions on one list, in its order.

    Attributes:
        settings: what the journal must store in the same transaction as ``entries``: a crash may then neither lose a
            signed command nor let it in twice.
    """

    decisions: tuple[Decision, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def entries(self) -> tuple[JournalEntry, ...]:
        """What the journal must commit, in this order."""
        new = (Verdict.ADMIT, Verdict.REFUSE, Verdict.SKIP, Verdict.VERIFY)
        return tuple(d.entry for d in self.decisions if d.verdict in new and d.entry is not None)

    def of(self, verdict: Verdict) -> tuple[Decision, ...]:
        """The decisions with this verdict."""
        return tuple(decision for decision in self.decisions if decision.verdict is verdict)


# --- the decision -----------------------------------------------------------------------------------------------------


def decide_commands(
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
) -> Decisions:
    """Decide on a list of commands, oldest first. One pass; 10,000 old commands take milliseconds.

    Args:
        commands: what the service lists.
        known: the journal's entries for these ids.
        rules: handlers, limits and policies.
        received: now, on the agent's clocks.
        service_now_s: now, on the service's clock; None when nobody can say, and then nothing counts as expired.
        first_contact: the journal is empty: it has never seen an answer.
        history_lost: the journal replaced an unreadable one: whether an open command has run is not known, so only
            idempotent ones run and the others end as ``indeterminate``.
        settings: the journal's, of the names in ``rules.settings``.
        waiting: lane -> how many commands are in it by now, the running one included.
    """
    settings = settings or {}
    is_first = first_contact or history_lost
    stored = Contact.from_json(settings.get(FIRST_CONTACT))
    contact = Contact(None, received.monotonic_s, received.boot_id) if is_first else stored
    if contact is not None:
        contact = contact.dated(received, service_now_s)
    admission = _Admission(
        rules, received, service_now_s, is_first, history_lost, contact, dict(waiting or {}), dict(settings)
    )
    seen: set[str] = set()
    decisions: list[Decision] = []
    for command in commands:
        entry = known.get(command.id)
        if entry is not None and _is_taken_back(command, entry):
            decisions.append(Decision(command.id, Verdict.CANCEL, entry))
        elif entry is not None or command.id in seen:
            decisions.append(Decision(command.id, Verdict.DUPLICATE, entry))
        else:
            decisions.append(admission.decide(command))
        seen.add(command.id)
    to_store = {name: value for name, value in admission.settings.items() if value != settings.get(name)}
    if contact is not None and (is_first or contact != stored):
        to_store[FIRST_CONTACT] = contact.to_json()
    return Decisions(tuple(decisions), to_store)


def _is_taken_back(command: Command, entry: JournalEntry) -> bool:
    is_open = entry.state in (CommandState.RECEIVED, CommandState.STARTED)
    return is_open and (command.status or "").lower() in _CANCELED


@dataclass(frozen=True, slots=True)
class _Admission:
    """Decides about the commands of one list, one after the other.

    With each command change: ``lanes`` counts those that are admitted, ``settings`` has the counters of signed ones.
    """

    rules: CommandRules
    received: Moment
    service_now_s: float | None
    first_contact: bool
    history_lost: bool
    contact: Contact | None
    lanes: dict[str, int]
    settings: dict[str, str]

    def decide(self, command: Command) -> Decision:
        """The decision on a command that the journal does not know."""
        status = (command.status or "").lower()
        if status in FINAL_STATUSES:
            return Decision(command.id, Verdict.CLOSED)
        command, refused, signer = self._opened(command)
        name = command.payload.get(self.rules.handler_key)
        handler = name if isinstance(name, str) else ""
        is_old = self.first_contact or (self.contact is not None and self.contact.is_later_than(command))
        if is_old and status not in OPEN_STATUSES and not self.rules.runs_history:
            entry = self._closed(command, handler, CommandState.SKIPPED, None)
            return Decision(command.id, Verdict.SKIP, entry, signer)
        outcome = self._refusal(command, handler, refused)
        doubt = None if outcome is not None else self._doubt(handler, status)
        rule = self.rules.handlers.get(handler)
        if rule is not None and outcome is None and (doubt is None or rule.verifies):
            outcome = self._take_place_in(rule.lane)
            if outcome is None:
                entry = JournalEntry(command, CommandState.RECEIVED, handler, self.received)
                if doubt is None:
                    return Decision(command.id, Verdict.ADMIT, entry, signer)
                # As if this process had begun it: should it end before the handler was asked, the next one asks again.
                return Decision(command.id, Verdict.VERIFY, start_entry(entry, self.received), signer)
        entry = self._closed(command, handler, CommandState.FINISHED, outcome or doubt)
        return Decision(command.id, Verdict.REFUSE, entry, signer)

    def _closed(self, command: Command, handler: str, state: CommandState, outcome: Outcome | None) -> JournalEntry:
        finished = self.received if outcome is not None else None
        # A name out of a refused payload may be anything; the journal and the status page show its beginning.
        return JournalEntry(
            without_payload(command), state, handler[:128], self.received, finished=finished, outcome=outcome
        )

    def _take_place_in(self, lane: str) -> Outcome | None:
        """Count one more in this lane; why it takes no more."""
        here, everywhere = self.lanes.get(lane, 0), sum(self.lanes.values())
        # Whatever else waits, an idle lane takes its command: what cancels the others must get through.
        if here and here >= WAITING_PER_LANE_MAX:
            return rejected("too_many_waiting", f"{here} commands are in lane {lane!r} already; send it again later")
        if here and everywhere >= WAITING_MAX:
            sentence = f"{everywhere} commands are under way on this device already; send it again later"
            return rejected("too_many_waiting", sentence)
        self.lanes[lane] = here + 1
        return None

    def _opened(self, command: Command) -> tuple[Command, Outcome | None, str]:
        """The command without its envelope, why its signature does not let it run, and who signed it."""
        policy = self.rules.signatures
        if policy is None or command.size_bytes > self.rules.max_payload_bytes:
            return command, None, ""
        if SIGNED_MEMBER not in command.payload:
            return command, self._unsigned_refusal(policy, command.payload), ""
        try:
            signed = policy.open(command.payload)
        except InvalidSignature as error:
            return command, rejected(error.reason, str(error)), ""
        signer = f"key={signed.key_id} id={signed.id!r} counter={signed.counter}"
        if signed.device_id != policy.device_id:
            other = rejected("signature_other_device", f"it was signed for device {signed.device_id[:80]!r}")
            return command, other, signer
        name = setting_of(signed.key_id)
        highest = self.settings.get(name, "0")
        # A stored value that is no number, which nobody here writes, lets nothing through.
        if signed.counter <= (int(highest) if highest.isascii() and highest.isdecimal() else _NO_NUMBER):
            sentence = (
                f"its counter {signed.counter} is not above {highest}, the highest that this device has seen of key "
                f"{signed.key_id}: it was here before, or a later one came first; sign it anew to have it run"
            )
            return command, rejected("signature_replayed", sentence), signer
        self.settings[name] = str(signed.counter)
        refusal = None if self.service_now_s is None else _time_refusal(signed.expires_at - self.service_now_s)
        return command if refusal else replace(command, payload=signed.payload), refusal, signer

    def _unsigned_refusal(self, policy: SignaturePolicy, payload: JsonObject) -> Outcome | None:
        handler = payload.get(self.rules.handler_key)
        if not policy.required and not (isinstance(handler, str) and handler in policy.required_for):
            return None
        what = "commands" if policy.required else f"commands for {handler!r}"
        sentence = f"this device takes signed {what} only; sign it with a key that the device trusts"
        return rejected("signature_required", sentence)

    def _refusal(self, command: Command, handler: str, refused: Outcome | None) -> Outcome | None:
        rules = self.rules
        if command.size_bytes > rules.max_payload_bytes:
            sizes = f"{command.size_bytes} bytes are more than this device's limit of {rules.max_payload_bytes}"
            return rejected("payload_too_large", f"a command_payload of {sizes}")
        if command.fault is not None:
            refused = Outcome(OutcomeStatus.REJECTED, error=command.fault)
        elif refused is None and SIGNED_MEMBER in command.payload:
            sentence = "this device takes no signed commands; set commands.signing.mode to accept, or send it unsigned"
            refused = rejected("signature_not_accepted", sentence)
        refused = refused or expiry(command, self.service_now_s)
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

    def _doubt(self, handler: str, status: str) -> Outcome | None:
        """The outcome of a command that may have run in a process that this journal does not remember."""
        if self.rules.handlers[handler].contract is Contract.IDEMPOTENT:
            return None
        if status == _BEGUN:
            return indeterminate("it was in progress already, and this device's journal does not know it")
        if self.history_lost:
            return indeterminate("this device's journal was lost, so whether it has run is not known")
        return None
