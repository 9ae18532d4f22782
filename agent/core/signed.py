"""Checks signed commands: signed by a trusted key, for this device, and not run before.

Handled here: whether a command must be signed; that it was signed for this device; its counter and its expiry.

Never handled here: the format, the signature and the keys (:mod:`agent.wire.signed`).

Every key has a counter that only grows: a command counts once its counter is above the highest that this device has
seen of that key, and from then on neither it nor one that was signed before it counts again. The counter is used up by
every command whose signature holds, also by one that is refused (expired, unknown to this device, history at first
contact): else whoever keeps a refused command could have it run later, under better circumstances.

The counter needs no clock. The expiry is judged by the service's clock where that is known; while it is not, as with a
device that starts in 1970 and has not heard from the service yet, the counter decides alone.

Therefore the I/O layer must commit ``VerifiedCommands.settings`` in the same transaction as the entries that were
decided with them: a crash may then neither lose a command nor let it in twice.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from agent.core.listed import FINAL_STATUSES
from agent.core.values import Command, JsonObject, Outcome, OutcomeStatus
from agent.errors import InvalidSignature
from agent.wire.limits import SIGNED_MEMBER

_MAX_LIFETIME_S: Final = 172_800.0
"""One that expires later than this from now is rejected: bounds how long a command that was held back can run."""
# How far the sender's clock may be ahead when the lifetime is compared.
_CLOCKS_DIFFER_S: Final = 60.0
_SETTING: Final = "signed_counter:"


def setting_of(key_id: str) -> str:
    """The name of the journal's setting that holds the highest counter of a key."""
    return _SETTING + key_id


@dataclass(frozen=True, slots=True)
class SignedCommand:
    """What the sender has signed.

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
class VerifiedCommands:
    """A list of commands with their envelopes opened.

    Attributes:
        commands: in the list's order; a signed one has the payload that was signed in place of its envelope.
        refusals: command id -> its outcome, for those that must not run.
        settings: what the journal has to remember, in the same commit.
        signers: command id -> key, name and counter, for the log.
    """

    commands: list[Command] = field(default_factory=list)
    refusals: dict[str, Outcome] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)
    signers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SignaturePolicy:
    """The rules by which a device accepts signed commands.

    Attributes:
        open: what an envelope says, once its signature holds; raises :class:`~agent.errors.InvalidSignature`.
        device_id: this device.
        key_ids: the trusted keys.
        required: an unsigned command is refused.
        required_for: handlers whose commands must be signed even where others need not be.
        handler_key: the payload's member that names the handler.
    """

    open: Callable[[JsonObject], SignedCommand]
    device_id: str
    key_ids: tuple[str, ...]
    required: bool
    required_for: frozenset[str]
    handler_key: str

    @property
    def settings(self) -> tuple[str, ...]:
        """The journal's settings that :meth:`unseal` has to be given."""
        return tuple(setting_of(key_id) for key_id in self.key_ids)

    def unseal(
        self,
        commands: Sequence[Command],
        known: Container[str],
        settings: Mapping[str, str],
        *,
        max_bytes: int,
        service_now_s: float | None,
    ) -> VerifiedCommands:
        """Open the envelopes of a list, oldest first.

        Args:
            commands: the list.
            known: ids that the journal knows; neither they nor what is over is looked at.
            settings: the journal's, of the names in :attr:`settings`.
            max_bytes: what is larger is not looked at either; it is refused for that.
            service_now_s: the service's clock, epoch seconds; None when nobody can say.
        """
        result = VerifiedCommands(settings={})
        seen: set[str] = set()
        for command in commands:
            is_over = (command.status or "").lower() in FINAL_STATUSES
            is_new = not is_over and command.id not in seen and command.id not in known
            seen.add(command.id)
            is_ours = is_new and command.size_bytes <= max_bytes
            result.commands.append(self._unseal(command, settings, service_now_s, result) if is_ours else command)
        return result

    def _unseal(
        self, command: Command, settings: Mapping[str, str], service_now_s: float | None, result: VerifiedCommands
    ) -> Command:
        if SIGNED_MEMBER not in command.payload:
            outcome = self._judge_unsigned(command.payload)
            if outcome is not None:
                result.refusals[command.id] = outcome
            return command
        try:
            signed = self.open(command.payload)
        except InvalidSignature as error:
            result.refusals[command.id] = _rejected(error.reason, str(error))
            return command
        result.signers[command.id] = f"key={signed.key_id} id={signed.id!r} counter={signed.counter}"
        outcome = self._judge(signed, {**settings, **result.settings}, service_now_s, result.settings)
        if outcome is not None:
            result.refusals[command.id] = outcome
            return command
        return replace(command, payload=signed.payload)

    def _judge_unsigned(self, payload: JsonObject) -> Outcome | None:
        handler = payload.get(self.handler_key)
        if not self.required and not (isinstance(handler, str) and handler in self.required_for):
            return None
        what = "commands" if self.required else f"commands for {handler!r}"
        sentence = f"this device takes signed {what} only; sign it with a key that the device trusts"
        return _rejected("signature_required", sentence)

    def _judge(
        self, signed: SignedCommand, settings: Mapping[str, str], service_now_s: float | None, used: dict[str, str]
    ) -> Outcome | None:
        if signed.device_id != self.device_id:
            return _rejected("signature_other_device", f"it was signed for device {signed.device_id[:80]!r}")
        name = setting_of(signed.key_id)
        highest = _number(settings.get(name))
        if signed.counter <= highest:
            sentence = (
                f"its counter {signed.counter} is not above {highest}, the highest that this device has seen of key "
                f"{signed.key_id}: it was here before, or a later one came first; sign it anew to have it run"
            )
            return _rejected("signature_replayed", sentence)
        used[name] = str(signed.counter)
        return self._judge_time(signed.expires_at, service_now_s)

    def _judge_time(self, expires_at: float, service_now_s: float | None) -> Outcome | None:
        if service_now_s is None:
            return None
        left_s = expires_at - service_now_s
        if left_s <= 0:
            return _rejected("signature_expired", f"its signature expired {-left_s:.0f} s before it came")
        if left_s > _MAX_LIFETIME_S + _CLOCKS_DIFFER_S:
            sentence = f"its signature holds for {left_s:.0f} s, and this device allows {_MAX_LIFETIME_S:.0f} s"
            return _rejected("signature_lifetime", f"{sentence}; sign it for a shorter time, or check the clocks")
        return None


def _number(text: str | None) -> int:
    """The stored counter; a value that is none, which nobody here writes, lets nothing through."""
    if text is None:
        return 0
    return int(text) if text.isascii() and text.isdecimal() else 2**63


def _rejected(code: str, sentence: str) -> Outcome:
    return Outcome(OutcomeStatus.REJECTED, error=f"{code}: {sentence}")
