"""What ``device-agent keys`` does: key pairs in files, and the trusted keys of a device with their counters."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent.app.signing import read_trusted_keys
from agent.app.status import read_agent_status
from agent.config import AgentConfig
from agent.core.signed import setting_of
from agent.errors import ConfigurationError, StorageError
from agent.wire.signed_keys import (
    PRIVATE_ENDING,
    PUBLIC_ENDING,
    SigningKey,
    is_private_key,
    key_id_of,
    public_pem,
    read_public_key,
    read_signing_key,
    write_public_key,
)


@dataclass(frozen=True, slots=True)
class SigningKeyPair:
    """A key pair that was just made."""

    key_id: str
    private_path: Path
    public_path: Path

    def as_json(self) -> dict[str, Any]:
        """The members that ``--json`` prints."""
        return {
            "key_id": self.key_id,
            "private_key_file": str(self.private_path),
            "public_key_file": str(self.public_path),
        }


def make_pair(name: Path) -> SigningKeyPair:
    """Make a key pair in ``NAME.key`` and ``NAME.pub``.

    Raises:
        ConfigurationError: one of them is there already, or the directory cannot be written; nothing is left behind.
    """
    private_path, public_path = (name.with_name(name.name + each) for each in (PRIVATE_ENDING, PUBLIC_ENDING))
    for path in (private_path, public_path):
        if path.exists() or path.is_symlink():
            raise ConfigurationError([f"{path} is there already and is never replaced; choose another name"], "keys")
    key = SigningKey.make()
    try:
        key.write(private_path)
        try:
            write_public_key(public_path, key.public_key())
        except OSError:
            private_path.unlink()
            raise
    except OSError as error:
        fault = f"{name}: the keys cannot be written: {error.strerror}; make room there, or name another folder"
        raise ConfigurationError([fault], "keys") from None
    return SigningKeyPair(key.key_id, private_path, public_path)


@dataclass(frozen=True, slots=True)
class KeyFile:
    """The key in a file.

    Attributes:
        kind: ``private`` or ``public``.
        public_pem: the public key, also of a private one.
    """

    key_id: str
    kind: str
    public_pem: str

    def as_json(self) -> dict[str, Any]:
        """The members that ``--json`` prints."""
        return {"key_id": self.key_id, "kind": self.kind, "public_key": self.public_pem}


def inspect_key_file(path: Path) -> KeyFile:
    """Read a key file of either kind.

    Raises:
        ConfigurationError: it cannot be read, or holds no key of ours.
    """
    if is_private_key(path):
        key = read_signing_key(path)
        return KeyFile(key.key_id, "private", public_pem(key.public_key()))
    public = read_public_key(path)
    return KeyFile(key_id_of(public), "public", public_pem(public))


@dataclass(frozen=True, slots=True)
class TrustedKey:
    """A key that a device trusts.

    Attributes:
        counter: the highest that the device has seen of it; None before its first command.
    """

    key_id: str
    path: Path
    counter: int | None

    def as_json(self) -> dict[str, Any]:
        """The members that ``--json`` prints."""
        return {"key_id": self.key_id, "file": str(self.path), "counter": self.counter}


@dataclass(frozen=True, slots=True)
class Trusted:
    """A device's configuration of signed commands."""

    mode: str
    keys: tuple[TrustedKey, ...]


def inspect_trusted_keys(config: AgentConfig) -> Trusted:
    """The trusted keys, in the order of the configuration, also while the agent runs.

    Raises:
        ConfigurationError: a key file or the journal cannot be read.
    """
    paths = config.commands.signing.trusted_keys
    ids = read_trusted_keys(paths).key_ids
    try:
        counters = _counters(config, ids)
    except StorageError as error:
        raise ConfigurationError([str(error)], "keys") from None
    found = (TrustedKey(key_id, path, counters.get(key_id)) for key_id, path in zip(ids, paths, strict=True))
    return Trusted(config.commands.signing.mode, tuple(found))


def _counters(config: AgentConfig, key_ids: tuple[str, ...]) -> dict[str, int]:
    status = read_agent_status(config, os.environ)
    if status.store_fault:
        raise StorageError(status.store_fault)
    settings = {} if status.store is None else status.store.settings
    values = {key_id: settings.get(setting_of(key_id)) for key_id in key_ids}
    return {key_id: int(value) for key_id, value in values.items() if value is not None and value.isdecimal()}
