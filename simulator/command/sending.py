"""One command on its way: signed if there is a key, sent, and waited for."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from agent.errors import ConfigurationError, InvalidMessage
from agent.wire.command_states import FINAL_STATES
from agent.wire.commands import CommandRecord
from agent.wire.extensions import COMMAND_TTL
from agent.wire.json_text import parse_object
from agent.wire.limits import COMMAND_PAYLOAD_BYTES
from agent.wire.sending import SendCommand
from simulator.announced import ask_offers
from simulator.command.counter import CounterFile
from simulator.wire.client import ServiceClient

_LOOK_EVERY_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class KeySigner:
    """Signs with a private key from a file.

    Attributes:
        key_file: as ``device-agent keys make`` writes it.
        counter: gives each command its counter.
        lifetime_s: how long the signature holds.
    """

    key_file: Path
    counter: CounterFile
    lifetime_s: float

    def sign(self, device_id: str, payload: dict[str, Any]) -> dict[str, Any]:
        """The ``command_payload`` with the envelope.

        Raises:
            ConfigurationError: key or counter cannot be used, or the extra ``device`` is not installed.
            InvalidMessage: no device would take this payload.
        """
        try:
            from agent.wire.signed_keys import read_signing_key  # cryptography, only to sign
        except ModuleNotFoundError as error:
            if (error.name or "").split(".")[0] != "cryptography":
                raise
            sentence = "the package 'cryptography' is missing: pip install '.[device]' in a clone of device-agent"
            raise ConfigurationError([sentence], "--sign") from None
        key = read_signing_key(self.key_file)
        signed: dict[str, Any] = key.sign(
            device_id=device_id,
            id=str(uuid.uuid4()),
            counter=self.counter.take(),
            expires_at=time.time() + self.lifetime_s,
            payload=payload,
        )
        return signed


def read_payload(text: str, read_file: Callable[[str], bytes]) -> dict[str, Any]:
    """The payload that the command line gives: JSON text, or ``@FILE``, or ``@-`` for standard input.

    Raises:
        ConfigurationError: it is no JSON object, or the file cannot be read.
    """
    try:
        raw = read_file(text[1:]) if text.startswith("@") else text.encode()
        return parse_object(raw, max_bytes=COMMAND_PAYLOAD_BYTES)
    except OSError as error:
        raise ConfigurationError([f"{text[1:]} cannot be read: {error.strerror}"], "--payload") from None
    except (InvalidMessage, UnicodeEncodeError) as error:
        sentence = f'{error}; give a JSON object such as \'{{"command":"ping"}}\', or @FILE'
        raise ConfigurationError([sentence], "--payload") from None


def send(
    client: ServiceClient,
    device_id: str,
    payload: dict[str, Any],
    *,
    signer: KeySigner | None,
    ttl_s: int | None,
) -> CommandRecord:
    """Send one command; the service's record of it.

    Raises:
        ServiceError, ConfigurationError, InvalidMessage: nothing was sent, or nobody knows. A time to live that the
            service does not announce is such a fault.
    """
    if ttl_s is not None and COMMAND_TTL not in ask_offers(client):
        sentence = (
            "--ttl: the service announces no command-ttl, so it would be sent a member that the specification does not "
            "have; leave --ttl out, or bound a signed command with --lifetime"
        )
        raise ConfigurationError([sentence], "--ttl")
    sent = payload if signer is None else signer.sign(device_id, payload)
    return client.send_command(SendCommand(device_id=device_id, command_payload=sent, ttl_seconds=ttl_s))


def wait_for_end(client: ServiceClient, device_id: str, command_id: str, within_s: float) -> CommandRecord | None:
    """The record once the command is over; None when it is not within that time.

    Raises:
        ServiceError: the service cannot be asked.
    """
    deadline_s = time.monotonic() + within_s
    while True:
        for record in client.device_commands(device_id).records:
            if record.id == command_id and record.status in FINAL_STATES:
                return record
        left_s = deadline_s - time.monotonic()
        if left_s <= 0:
            return None
        time.sleep(min(_LOOK_EVERY_S, left_s))
