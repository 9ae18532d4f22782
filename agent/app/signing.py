"""Signed commands out of the configuration, and the key pairs for them; the extra ``device`` is asked for by name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from agent.config import AgentConfig
from agent.core.signed import SignaturePolicy
from agent.errors import ConfigurationError

if TYPE_CHECKING:
    from agent.wire.signed_keys import TrustedKeys

_MAX_LIFETIME_S: Final = 172_800.0
"""One that expires later than this from now is rejected: bounds how long a command that was held back can run."""
_KEYS: Final = "commands.signing.trusted_keys"


def make_signature_policy(config: AgentConfig) -> SignaturePolicy:
    """The rules by which this device accepts signed commands, as configured.

    Raises:
        ConfigurationError: a fault for each key file that cannot be used; or the extra is not installed.
    """
    signing, device_id = config.commands.signing, config.device.device_id
    keys = read_trusted_keys(signing.trusted_keys)
    return SignaturePolicy(
        open=keys.open,
        device_id=device_id,
        key_ids=keys.key_ids,
        required=signing.mode == "require",
        required_for=frozenset(signing.require_for),
        handler_key=config.commands.handler_key,
        max_lifetime_s=_MAX_LIFETIME_S,
    )


def read_trusted_keys(paths: tuple[Path, ...]) -> TrustedKeys:
    """The public keys in these files.

    Raises:
        ConfigurationError: as for :func:`make_signature_policy`.
    """
    try:
        from agent.wire.signed_keys import TrustedKeys, key_id_of, read_public_key
    except ModuleNotFoundError as error:
        raise _missing(error) from None
    faults: list[str] = []
    keys = {}
    for path in paths:
        try:
            key = read_public_key(path)
        except ConfigurationError as error:
            faults += [f"{_KEYS}: {fault}" for fault in error.faults]
            continue
        key_id = key_id_of(key)
        if key_id in keys:
            faults.append(f"{_KEYS}: {path}: holds the key {key_id} of another file in the list; take one out")
        keys[key_id] = key
    if faults:
        raise ConfigurationError(faults, "keys")
    return TrustedKeys(keys.values())


def make_pair(name: Path) -> tuple[str, Path, Path]:
    """Make a key pair: its id, ``NAME.key`` and ``NAME.pub``.

    Raises:
        ConfigurationError: one of them is there already, the directory cannot be written, or the extra is not
            installed; nothing is left behind.
    """
    try:
        from agent.wire.signed_keys import PRIVATE_ENDING, PUBLIC_ENDING, SigningKey, write_public_key
    except ModuleNotFoundError as error:
        raise _missing(error) from None
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
    return key.key_id, private_path, public_path


def _missing(error: ModuleNotFoundError) -> ConfigurationError:
    if (error.name or "").split(".")[0] != "cryptography":
        raise error
    sentence = "signed commands need the package 'cryptography': pip install '.[device]' in a clone of device-agent"
    return ConfigurationError([sentence], "keys")
