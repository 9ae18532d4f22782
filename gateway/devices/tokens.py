"""What a device token is: how one is made, what is kept of it, and which device ids may have one.

A token is shown once, when it is issued. What is kept cannot be turned back into it: its SHA-256 for the gateway, and
the form in which mosquitto keeps passwords for the broker. A slow hash would protect a password that a person thought
up; 190 random bits cannot be guessed, and the gateway checks one with every request.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from agent.errors import InvalidMessage
from agent.wire import topics
from agent.wire.secret import Secret

PREFIX: Final = "dat_"
"""Shows a person, and a search for leaked secrets, what it is."""

_ALPHABET: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
_RANDOM_CHARACTERS: Final = 32  # of 62 different ones: 190 bits
_TOKEN: Final = re.compile(rf"{PREFIX}[A-Za-z0-9]{{{_RANDOM_CHARACTERS}}}")

# mosquitto's own defaults (mosquitto_passwd(1), $7$): PBKDF2 with SHA-512.
_ITERATIONS: Final = 101
_SALT_BYTES: Final = 12

Randomness = Callable[[int], bytes]
"""As :func:`secrets.token_bytes`: so many random bytes."""


@dataclass(frozen=True, slots=True)
class NewToken:
    """A token at the only moment when it is known.

    Attributes:
        token: for the device.
        digest: what the gateway knows it by, see :func:`digest_of`.
        password: a line's second half in mosquitto's password file.
    """

    token: Secret
    digest: bytes
    password: str


def make_token(randomness: Randomness) -> NewToken:
    """A new token out of at least 160 random bits."""
    text = PREFIX + "".join(_letters(randomness))
    return NewToken(Secret(text), digest_of(text), mosquitto_password(text, randomness(_SALT_BYTES)))


def digest_of(token: str) -> bytes:
    """The SHA-256 that a token is kept and found by, 32 bytes."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def looks_like_token(text: str) -> bool:
    """Whether this has a token's form at all."""
    return _TOKEN.fullmatch(text) is not None


def mosquitto_password(password: str, salt: bytes) -> str:
    """``$7$iterations$salt$hash`` as in mosquitto's password file (mosquitto 2.0, ``mosquitto_passwd``)."""
    key = hashlib.pbkdf2_hmac("sha512", password.encode(), salt, _ITERATIONS)
    return f"$7${_ITERATIONS}${base64.b64encode(salt).decode()}${base64.b64encode(key).decode()}"


def id_fault(device_id: str) -> str | None:
    """Why this device id must not have a token: one sentence, or None when it may."""
    try:
        topics.user_name(device_id)
    except InvalidMessage as error:
        return str(error)
    if not device_id.isprintable() or device_id != device_id.strip():
        return "a device id must not contain invisible characters, nor begin or end with a space"
    if device_id in {".", ".."}:
        return "a device id must not be a dot or two: a path would lose it"
    return None


def _letters(randomness: Randomness) -> list[str]:
    found: list[str] = []
    while len(found) < _RANDOM_CHARACTERS:
        # A byte above the last multiple of 62 is thrown away: each letter stays equally likely.
        found += [_ALPHABET[byte % 62] for byte in randomness(_RANDOM_CHARACTERS) if byte < 248]
    return found[:_RANDOM_CHARACTERS]
