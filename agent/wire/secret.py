"""A secret that never prints."""

from __future__ import annotations

import hmac
import re
from typing import Any, Final

MASK: Final = "**********"
"""What stands where a secret was."""

# Also what was mistaken for another key, or belongs to somebody else, is not repeated.
_LOOKS_SECRET: Final = re.compile(
    r"(?:msk|dat)_[\w.~+/=-]+|(?:(?<=[Bb]earer )|(?<=[Bb]asic ))[\w.~+/=-]+"
    r"|(?<=x-secret-key: )\S+"
)
_API_KEY: Final = re.compile(r"\bmk_[\w~+/=-]{4,}")
# Of this process: a device has a handful, and each renewal makes two more.
_KNOWN_MAX: Final = 32
_KNOWN_CHARACTERS: Final = 8
_known: list[str] = []


class Secret:
    """A secret value: a key, a token, a password.

    ``str``, ``repr``, ``format`` and pickling never show it; only :meth:`reveal` does, so a search for
    ``reveal(`` lists every place where a secret leaves this type.
    """

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """The value itself. Call it only where it goes onto the wire."""
        return self._value

    def __bool__(self) -> bool:
        return bool(self._value)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(self._value.encode(), other._value.encode())

    def __hash__(self) -> int:
        return hash((Secret, self._value))

    def __str__(self) -> str:
        return MASK

    def __repr__(self) -> str:
        return f"Secret({MASK})"

    def __format__(self, spec: str) -> str:
        return format(MASK, spec)

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("a Secret is not pickled: hand it over by file or credential")


def never_show(value: str) -> None:
    """Make :func:`redact` take this value out of every text from now on, whatever it looks like.

    For the credentials that this process holds. The last 32 are remembered; what is shorter than 8 characters is not,
    since it would take words out of every sentence.
    """
    if len(value) >= _KNOWN_CHARACTERS and value not in _known:
        _known.append(value)
        del _known[:-_KNOWN_MAX]


def redact(text: str) -> str:
    """The text without this process's credentials and without anything that looks like a key or a bearer token."""
    for value in sorted(_known, key=len, reverse=True):  # one may be the beginning of another
        text = text.replace(value, MASK)
    return _LOOKS_SECRET.sub(MASK, text)


def mask(text: str) -> str:
    """As :func:`redact`, and without API keys: for the log, and for what programs of others say of a command.

    An API key is half of a pair and no secret, so error texts may name it; what leaves the device need not hold it.
    """
    return _API_KEY.sub(MASK, redact(text))


def mask_json(value: Any) -> Any:
    """A JSON value with :func:`mask` in all of its texts, the names of members included; itself if nothing changes."""
    if isinstance(value, str):
        return mask(value)
    if isinstance(value, dict):
        changed = {mask_json(name): mask_json(member) for name, member in value.items()}
        return changed if changed != value else value
    if isinstance(value, list | tuple):
        items = [mask_json(item) for item in value]
        return items if items != list(value) else value
    return value
