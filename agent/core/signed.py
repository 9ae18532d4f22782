"""Checks signed commands: signed by a trusted key, for this device, and not run before.

Whether a command must be signed, that it was signed for this device, its counter and its expiry are checked here; the
format, the signature and the keys in :mod:`agent.wire.signed`.

Every key has a counter that only grows: a command counts once its counter is above the highest that this device has
seen of that key, and from then on neither it nor one that was signed before it counts again. The counter is used up by
every command whose signature holds, also by one that is refused (expired, unknown to this device, history at first
contact): else whoever keeps a refused command could have it run later, under better circumstances.

The counter needs no clock. The expiry is compared with the service's clock where that is known; while it is not, as
with a device that starts in 1970 and has not heard from the service yet, the counter decides alone.

The journal must commit the settings of an opened command in the same transaction as its entry: a crash may then
neither lose a command nor let it in twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from agent.core.commands import rejected
from agent.core.values import Command, JsonObject, Outcome
from agent.errors import InvalidSignature
from agent.wire.limits import SIGNED_MEMBER

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

    @property
    def signer(self) -> str:
        """Key, name and counter, for the log."""
        return f"key={self.key_id} id={self.id!r} counter={self.counter}"


@dataclass(frozen=True, slots=True)
class OpenedCommand:
    """A command without its envelope.

    Attributes:
        command: with the payload that was signed; one that is not signed as it was.
        refusal: why it must not run; None when it may.
        signed: what was signed; None where no signature holds.
        settings: what the journal has to remember.
    """

    command: Command
    refusal: Outcome | None = None
    signed: SignedCommand | None = None
    settings: Mapping[str, str] = field(default_factory=dict)


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
        """The journal's settings that :meth:`open_command` has to be given."""
        return tuple(setting_of(key_id) for key_id in self.key_ids)

    def open_command(self, command: Command, settings: Mapping[str, str], service_now_s: float | None) -> OpenedCommand:
        """Open the envelope of a command that the journal does not know.

        Args:
            command: the oldest of its list that was not opened yet.
            settings: the journal's, of the names in :attr:`settings`, with those of the commands opened before it.
            service_now_s: the service's clock, epoch seconds; None when nobody can say.
        """
        if SIGNED_MEMBER not in command.payload:
            return OpenedCommand(command, self._unsigned_refusal(command.payload))
        try:
            signed = self.open(command.payload)
        except InvalidSignature as error:
            return OpenedCommand(command, rejected(error.reason, str(error)))
        if signed.device_id != self.device_id:
            other = rejected("signature_other_device", f"it was signed for device {signed.device_id[:80]!r}")
            return OpenedCommand(command, other, signed)
        name = setting_of(signed.key_id)
        highest = settings.get(name, "0")
        # A stored value that is no number, which nobody here writes, lets nothing through.
        if signed.counter <= (int(highest) if highest.isascii() and highest.isdecimal() else _NO_NUMBER):
            sentence = (
                f"its counter {signed.counter} is not above {highest}, the highest that this device has seen of key "
                f"{signed.key_id}: it was here before, or a later one came first; sign it anew to have it run"
            )
            return OpenedCommand(command, rejected("signature_replayed", sentence), signed)
        refusal = None if service_now_s is None else _time_refusal(signed.expires_at - service_now_s)
        opened = replace(command, payload=signed.payload) if refusal is None else command
        return OpenedCommand(opened, refusal, signed, {name: str(signed.counter)})

    def _unsigned_refusal(self, payload: JsonObject) -> Outcome | None:
        handler = payload.get(self.handler_key)
        if not self.required and not (isinstance(handler, str) and handler in self.required_for):
            return None
        what = "commands" if self.required else f"commands for {handler!r}"
        sentence = f"this device takes signed {what} only; sign it with a key that the device trusts"
        return rejected("signature_required", sentence)


def _time_refusal(left_s: float) -> Outcome | None:
    """Why a signature that holds for so much longer does not let the command run."""
    if left_s <= 0:
        return rejected("signature_expired", f"its signature expired {-left_s:.0f} s before it came")
    if left_s > _MAX_LIFETIME_S + _CLOCKS_DIFFER_S:
        sentence = f"its signature holds for {left_s:.0f} s, and this device allows {_MAX_LIFETIME_S:.0f} s"
        return rejected("signature_lifetime", f"{sentence}; sign it for a shorter time, or check the clocks")
    return None
