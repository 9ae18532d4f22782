"""Unit files as ``systemctl cat`` prints them, read by systemd's own rules.

``systemctl show`` prints ``[unprintable]`` for credentials (seen with systemd 252 and 257), so they are read here.
Sources: systemd.syntax(7), and systemd.exec(5), "Credentials".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

_DIRECTORIES: Final = {"%E": "/etc", "%S": "/var/lib", "%C": "/var/cache", "%L": "/var/log", "%t": "/run", "%%": "%"}
_STORES: Final = ("/etc/credstore", "/run/credstore", "/usr/local/lib/credstore", "/usr/lib/credstore")


@dataclass(frozen=True, slots=True)
class UnitCredential:
    """One credential that a unit hands over.

    Attributes:
        name: what the service finds it by.
        paths: where systemd looks for it, in this order; empty when the unit itself holds the value.
        is_optional: systemd starts the unit without it.
        is_encrypted: only systemd can read it.
    """

    name: str
    paths: tuple[str, ...]
    is_optional: bool = False
    is_encrypted: bool = False


def read_credentials_of_unit(text: str) -> tuple[UnitCredential, ...]:
    """The credentials of a unit with its drop-ins, in the order of their names.

    Args:
        text: what ``systemctl cat`` prints.
    """
    loaded: dict[str, UnitCredential] = {}
    defaults: set[str] = set()
    for section, key, value in assignments(text):
        if section != "Service":
            continue
        if key in {"LoadCredential", "LoadCredentialEncrypted"}:
            if not value:  # both keys fill one list, and either empties it
                loaded.clear()
                continue
            name, _, path = _expanded(value).partition(":")
            loaded[name] = _loaded(name, path or name, is_encrypted=key == "LoadCredentialEncrypted")
        elif key in {"SetCredential", "SetCredentialEncrypted"}:
            if not value:
                defaults.clear()
            else:
                defaults.add(value.partition(":")[0])
    found = {name: UnitCredential(name, (), is_optional=True) for name in defaults}
    for name, credential in loaded.items():
        optional = credential.is_optional or name in defaults
        found[name] = UnitCredential(name, credential.paths, optional, credential.is_encrypted)
    return tuple(found[name] for name in sorted(found))


def assignments(text: str) -> Iterator[tuple[str, str, str]]:
    """Section, key and value of each assignment, in order; values with their lines joined."""
    section, kept = "", ""
    for raw in text.splitlines():
        line = raw.strip()
        if line.startswith(("#", ";")) or (not line and not kept):
            continue  # also between two lines that belong together
        if line.endswith("\\"):
            kept += f"{line[:-1]} "
            continue
        line, kept = f"{kept}{line}".strip(), ""
        if line.startswith("[") and line.endswith("]"):
            section = line[1:-1]
        elif "=" in line:
            key, _, value = line.partition("=")
            yield section, key.strip(), value.strip()


def _loaded(name: str, path: str, *, is_encrypted: bool) -> UnitCredential:
    if path.startswith("/"):
        return UnitCredential(name, (path,), is_encrypted=is_encrypted)
    # A name alone is looked for in the stores of credentials, and it is no fault when it is nowhere.
    stores = [f"{store}.encrypted" for store in _STORES] + list(_STORES) if is_encrypted else list(_STORES)
    return UnitCredential(name, tuple(f"{store}/{path}" for store in stores), True, is_encrypted)


def _expanded(value: str) -> str:
    for specifier, meaning in _DIRECTORIES.items():
        value = value.replace(specifier, meaning)
    return value
