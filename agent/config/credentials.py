"""Secrets, read from files that only the agent can read, or from systemd's credentials."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from agent.config.model import AuthConfig
from agent.errors import ConfigurationError
from agent.wire.secret import Secret, never_show

MAX_SECRET_BYTES: Final = 8192
PLACEHOLDER: Final = "PASTE"
NO_CREDENTIAL: Final = "none"
"""The content of a credential without a file: the default that the unit sets with ``SetCredential=``."""
_PREFIXES: Final = {"api_key": "mk_", "secret_key": "msk_"}


@dataclass(frozen=True, slots=True)
class Credentials:
    """The key pair or token of the agent.

    Attributes:
        api_key: the public key, empty with a bearer token.
        secret: the secret key or the token.
        token_path: where the token was read, to read it again when it changes; None with a key pair.
    """

    api_key: str
    secret: Secret
    token_path: Path | None = None


def read_credentials(auth: AuthConfig, environ: Mapping[str, str]) -> Credentials:
    """Read systemd's credentials ``api_key``, ``secret_key`` and ``token``; where there is none, the file of ``auth``.

    Raises:
        ConfigurationError: one sentence for each file that is missing, unreadable, readable by everybody, or not what
            it should hold. No sentence repeats what a file holds.
    """
    faults: list[str] = []
    if auth.mode == "bearer":
        path = _path(auth.token_file, "token", environ)
        credentials = Credentials("", Secret(_read("token", path, faults)), path)
    else:
        api_key = _read("api_key", _path(auth.api_key_file, "api_key", environ), faults)
        secret_key = _read("secret_key", _path(auth.secret_key_file, "secret_key", environ), faults)
        if api_key.startswith("msk_") and secret_key.startswith("mk_"):
            faults[:] = ["auth: api_key_file holds the secret key and secret_key_file the API key; swap the two"]
        credentials = Credentials(api_key, Secret(secret_key))
    if faults:
        raise ConfigurationError(faults, "credentials")
    return credentials


INLINE_KEY_REFUSAL: Final = (
    "a secret never goes into the configuration; put it alone into a file of mode 600, name that file in "
    "auth.secret_key_file (or use LoadCredential=secret_key:FILE in the unit), and replace the key if others saw it"
)


def find_secrets(values: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Where the raw configuration holds a secret key itself."""
    if isinstance(values, str):
        if "msk_" in values:
            yield path
    elif isinstance(values, dict | list):
        for step, value in values.items() if isinstance(values, dict) else enumerate(values):
            yield from find_secrets(value, (*path, step))


def _path(configured: Path | None, name: str, environ: Mapping[str, str]) -> Path | None:
    """The file to read: the one that the configuration names where this user may, else systemd's credential.

    In this order since systemd's copy is of the start, and the file may have been renewed.
    """
    given = Path(environ.get("CREDENTIALS_DIRECTORY", ""), name)
    if (configured is not None and os.access(configured, os.R_OK)) or "CREDENTIALS_DIRECTORY" not in environ:
        return configured
    try:
        is_default = given.read_text("utf-8").strip() == NO_CREDENTIAL
    except FileNotFoundError:
        return configured
    except (OSError, UnicodeDecodeError):  # what is wrong with it is said when it is read as a key
        is_default = False
    return configured if is_default else given


def _read(name: str, path: Path | None, faults: list[str]) -> str:
    """The credential ``name`` from its file; what is wrong with it goes into ``faults``."""
    key = f"auth.{name}_file"
    if path is None:
        faults.append(f"{key} is missing; name the file that holds it (mode 600), or use LoadCredential={name}:FILE")
        return ""
    text = ""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            fault = "is no regular file; name the file itself"
        elif status.st_mode & stat.S_IRWXO:
            mode = stat.S_IMODE(status.st_mode)
            fault = f"everybody on this machine can open it (mode {mode:o}); run chmod 600 on it"
        elif status.st_size > MAX_SECRET_BYTES:
            fault = "is too large for a key; put the key alone into it"
        else:
            text = path.read_text("utf-8").strip()
            never_show(text)
            fault = _fault_of_text(text, name)
    except FileNotFoundError:
        fault = "there is no such file; create it with mode 600 and put the key alone into it"
    except PermissionError:
        fault = "may not be read by this user; let the program's user read it (chgrp, and chmod 640)"
    except OSError as error:
        fault = f"could not be read: {error.strerror}"
    except UnicodeDecodeError:
        fault = "is not text; put the key alone into it"
    if fault:
        faults.append(f"{key}: {path}: {fault}")
    return text


def _fault_of_text(text: str, name: str) -> str:
    prefix = _PREFIXES.get(name, "")
    if not text:
        return "is empty; put the key alone into it"
    if PLACEHOLDER in text:
        return "still holds the template; replace it with the key"
    if text.startswith("{"):
        return (
            "holds tokens of an application, which renew themselves; a device takes a token alone, which another "
            "program may renew in its file"
        )
    if not text.isascii() or not text.isprintable() or " " in text:
        return "holds more than one word; put the key alone into it, on one line"
    return "" if text.startswith(prefix) else f"does not begin with {prefix}; is it the right key?"
