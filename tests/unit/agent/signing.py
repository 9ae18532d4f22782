"""Signed commands for tests: a sender with a key, and a device that takes what it signed."""

from __future__ import annotations

import base64
import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from agent.core.admission import CommandRules, Decisions, SignaturePolicy, Verdict, decide_commands
from agent.core.commands import HandlerRule
from agent.core.values import Command, Contract
from agent.wire.encoding import encode_json
from agent.wire.signed import PREFIX, SigningKey, TrustedKeys
from tests.support.factories import make_moment
from tests.support.fakes import START_WALL_S, StoreInMemory

DEVICE = "device-1"
PAYLOAD = {"command": "open_door", "door": 3, "why": "ümläut"}
_ids = itertools.count(1)


def sign(key: SigningKey, counter: int, *, device_id: str = DEVICE, lifetime_s: float = 3600, **payload: Any) -> Any:
    """A ``command_payload`` with an envelope, signed at the time at which every fake clock starts."""
    members = payload or PAYLOAD
    return key.sign(
        device_id=device_id,
        id=f"order-{counter}",
        counter=counter,
        expires_at=START_WALL_S + lifetime_s,
        payload=members,
    )


def signed_bytes(key_id: str, body: bytes) -> bytes:
    """What a signature is over, as docs/commands.md says it."""
    return PREFIX + key_id.encode() + b"\0" + body


def envelope(key_id: str, body: bytes, signature: bytes) -> dict[str, Any]:
    """A ``command_payload`` with any envelope."""
    text = base64.urlsafe_b64encode(signature).decode().rstrip("=")
    return {"signed_command": {"v": 1, "key_id": key_id, "body": body.decode(), "signature": text}}


def command_of(payload: dict[str, Any], command_id: str | None = None, **members: Any) -> Command:
    """The payload as a command that the service lists, under an id that was never used before."""
    return Command(command_id or f"c{next(_ids)}", payload, size_bytes=len(encode_json(payload)), **members)


def make_rules(*keys: SigningKey, required: bool = True, **signatures: Any) -> CommandRules:
    """Rules of a device that trusts these keys and has the handlers ``open_door`` and ``ping``."""
    trusted = TrustedKeys([key.public_key() for key in keys])
    values = {"required_for": frozenset(), **signatures}
    policy = SignaturePolicy(open=trusted.open, device_id=DEVICE, key_ids=trusted.key_ids, required=required, **values)
    return CommandRules(
        handlers={"open_door": HandlerRule(Contract.ONCE, "door"), "ping": HandlerRule(Contract.IDEMPOTENT, "ping")},
        signatures=policy,
    )


@dataclass
class Device:
    """Admission and journal of one device, which may restart.

    Attributes:
        now_s: what it knows of the service's clock; None when nobody can say.
        ran: the ids of the commands that it would run.
        told: command id -> how it was refused.
    """

    rules: CommandRules
    now_s: float | None = START_WALL_S
    ran: list[str] = field(default_factory=list)
    told: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.store = StoreInMemory()
        self.store.journal.admit([])  # no longer its first contact

    def restart(self) -> None:
        """Another boot, the clock at 1970."""
        self.store.clock.reboot("boot-2")
        self.store.clock.set_wall(10.0)

    def take(self, commands: Iterable[Command]) -> Decisions:
        """Decide and commit, as the agent does it."""
        listed = list(commands)
        journal = self.store.journal
        result = decide_commands(
            listed,
            journal.known([each.id for each in listed]),
            self.rules,
            received=make_moment(),
            service_now_s=self.now_s,
            first_contact=journal.is_empty(),
            settings=journal.settings(*self.rules.settings),
        )
        if result.entries:
            journal.admit(result.entries, result.settings)
        self.ran += [decision.command_id for decision in result.of(Verdict.ADMIT)]
        for decision in result.of(Verdict.REFUSE):
            assert decision.entry is not None
            assert decision.entry.outcome is not None
            self.told[decision.command_id] = decision.entry.outcome.error or ""
        return result

    def take_one(self, payload: dict[str, Any], command_id: str | None = None, **members: Any) -> str:
        """``ran``, or the code with which it was refused, or ``duplicate``."""
        command = command_of(payload, command_id, **members)
        (decision,) = self.take([command]).decisions
        if decision.verdict is not Verdict.REFUSE:
            return "ran" if decision.verdict is Verdict.ADMIT else str(decision.verdict)
        return self.told[command.id].split(":")[0]
