"""How a label is written and signed: options of a label command."""

from __future__ import annotations

from pathlib import Path

from agent.errors import ConfigurationError
from simulator.labels.errors import LabelError
from simulator.labels.payload import Payload, open_payload
from simulator.wire.qr.keys import read_label_signer


def open_profile(profile: str, link_host: str, sign_key_file: Path | None) -> Payload:
    """The profile that the options ask for.

    Raises:
        LabelError: there is none, or the key cannot be read.
    """
    try:
        signer = read_label_signer(sign_key_file) if sign_key_file else None
    except ConfigurationError as problem:
        raise LabelError(problem.in_one_line) from None
    return open_payload(profile, host=link_host, signer=signer)


def words_of(text: str) -> list[str]:
    """The words of an option whose words are separated by commas, in lower case."""
    return [word.strip().lower() for word in text.split(",") if word.strip()]
