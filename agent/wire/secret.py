"""Secrets: a value that never prints, the files that hold them, and how a request proves by them who sends it."""

from __future__ import annotations

import hmac
import logging
import os
import re
import stat
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from agent.errors import ConfigurationError

_log = logging.getLogger(__name__)

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


# --- how a request proves who sends it --------------------------------------------------------------------------------

_VISIBLE_ASCII: Final = re.compile(r"[\x21-\x7e]+")


class Credential(ABC):
    """Headers that prove who sends a request (specification, "Authentication"), for one service and nobody else."""

    @abstractmethod
    def headers(self) -> dict[str, str]:
        """The headers as they are now; for :class:`~agent.wire.client.Connection`, which asks one origin only."""


class KeyPair(Credential):
    """``x-api-key`` and ``x-secret-key`` on every request (specification, "Manufacturer API: key pair").

    Raises:
        ConfigurationError: a key is empty, has spaces, line ends or characters beyond ASCII, or the two are swapped.
    """

    def __init__(self, api_key: str, secret_key: Secret) -> None:
        faults = [*_faults("api_key", api_key), *_faults("secret_key", secret_key.reveal())]
        if api_key.startswith("msk_"):
            faults.append("api_key: this is a secret key (it begins with msk_): swap api_key and secret_key")
        if faults:
            raise ConfigurationError(faults, "key pair")
        never_show(secret_key.reveal())
        self._api_key = api_key
        self._secret_key = secret_key

    def __repr__(self) -> str:
        return f"KeyPair({self._api_key[:6]}..., {self._secret_key!r})"

    def headers(self) -> dict[str, str]:
        """Both keys."""
        return {"x-api-key": self._api_key, "x-secret-key": self._secret_key.reveal()}


class BearerToken(Credential):
    """``Authorization: Bearer`` on every request (specification, "Step 3: call the API").

    Args:
        token: the token, or what gives it anew for each request.

    Raises:
        ConfigurationError: the token is empty, has spaces, line ends or characters beyond ASCII.
    """

    def __init__(self, token: Secret | Callable[[], Secret]) -> None:
        self._current = token if callable(token) else lambda: token
        now = self._current().reveal()
        faults = _faults("token", now)
        if faults:
            raise ConfigurationError(faults, "bearer token")
        never_show(now)

    def headers(self) -> dict[str, str]:
        """The token as it is now."""
        return {"Authorization": f"Bearer {self._current().reveal()}"}


def _faults(name: str, value: str) -> list[str]:
    if not value:
        return [f"{name}: it is empty: give the key that the service issued"]
    if not _VISIBLE_ASCII.fullmatch(value):
        return [
            f"{name}: it contains a space, a line end or a character beyond ASCII: copy the key again, nothing else"
        ]
    return []


# --- files of secrets -------------------------------------------------------------------------------------------------

KEY_FILE_BYTES: Final = 4096


def write_new(path: Path, content: bytes, mode: int) -> None:
    """Write a key's file where no file is yet; it is on the disk on return.

    Raises:
        FileExistsError: there is one; it is left alone.
        OSError: it cannot be written.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        path.unlink(missing_ok=True)  # half a key would be in the way of the next attempt
        raise


def read_key_file(path: Path, *, others_may_not: int = 0) -> bytes:
    """What a key's file holds.

    Args:
        path: the file.
        others_may_not: mode bits that it must not have.

    Raises:
        ConfigurationError: it cannot be read, is no file or too large, or has one of those bits.
    """
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise key_fault(path, "is no regular file; name the file itself")
            if status.st_mode & others_may_not:
                what, fix = ("write", "644") if others_may_not == stat.S_IWOTH else ("open", "600")
                mode = stat.S_IMODE(status.st_mode)
                raise key_fault(path, f"others on this machine can {what} it (mode {mode:o}); run chmod {fix} on it")
            raw = file.read(KEY_FILE_BYTES + 1)
    except OSError as error:
        raise key_fault(path, f"cannot be read: {error.strerror}") from None
    if len(raw) > KEY_FILE_BYTES:
        raise key_fault(path, "is too large for a key; name the key's own file")
    return raw


def key_fault(path: Path, sentence: str) -> ConfigurationError:
    """The error that names the file; ``sentence`` never repeats what the file holds."""
    return ConfigurationError([f"{path}: {sentence}"], "keys")


class RenewedToken:
    """A token that another program renews in its file (``auth.token_file``): what the file holds now, or the last token
    while it cannot be read or holds no token alone.

    Args:
        path: the file, read anew for each use.
        token: what it held at the start.
    """

    def __init__(self, path: Path, token: Secret) -> None:
        self._path = path
        self._token = token
        self._fault = ""

    def current(self) -> Secret:
        """The token as it is now."""
        fault = ""
        try:
            text = self._path.read_text("ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            fault = f"cannot be read: {error}"
        else:
            if not text or not text.isprintable() or " " in text or text.startswith("{"):
                fault = "holds no token alone"
            elif text != self._token.reveal():
                never_show(text)
                self._token = Secret(text)
        if fault and fault != self._fault:
            _log.warning("auth=stale token_file %s %s; the last token stays", self._path, fault)
        self._fault = fault
        return self._token
