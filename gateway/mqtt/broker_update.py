"""The devices' passwords at the broker, brought up to date in the files that ``broker-config`` has written."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from agent.adapters.files import replace_file
from agent.errors import ConfigurationError
from gateway.mqtt.broker_config import PASSWORDS, RULES, read_passwords, refuse_foreign_folders

_USER = "user "


def update_passwords(directory: Path, devices: Mapping[str, str], user: str) -> bool:
    """Write the passwords of the present devices; that of the gateway stays, as do rules, listener and certificate.

    Args:
        directory: where ``broker-config`` has put its files.
        devices: user name -> password entry, see :func:`~gateway.mqtt.broker_config.device_passwords`.
        user: as whom the broker runs, whose group may read what root writes.

    Returns:
        Whether they have changed, so that mosquitto has to read them again.

    Raises:
        ConfigurationError: ``broker-config`` was not run before, or the file cannot be written.
    """
    refuse_foreign_folders("broker-update", directory)
    path = directory / PASSWORDS
    try:
        rules = (directory / RULES).read_text("utf-8").splitlines()
        text = path.read_text("utf-8")
        known = read_passwords(path)
        gateways = {line.removeprefix(_USER) for line in rules if line.startswith(_USER)}
        entries = {name: entry for name, entry in known.items() if name in gateways} | dict(devices)
        new = "".join(f"{name}:{entry}\n" for name, entry in sorted(entries.items()))
        if new == text:
            return False
        replace_file(path, new, 0o600, durable=True, group=user)
    except FileNotFoundError as error:
        fault = f"{error.filename} is not there: run device-gateway broker-config first, or give --dir"
        raise ConfigurationError([fault], "broker-update") from None
    except OSError as error:
        fault = f"{error.filename or path} cannot be used: {error.strerror}; use sudo, or give --dir"
        raise ConfigurationError([fault], "broker-update") from None
    return True
