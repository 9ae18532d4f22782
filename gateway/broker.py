"""A mosquitto configuration for the gateway: who may connect, to which topics, over TLS, and what may wait.

mosquitto binds a device to its topics by its user name: ``pattern`` rules put it in place of ``%u``. The user name is
the device id as one topic level (:func:`agent.wire.topics.user_name`), so rule and topic are the same text for each id.
``use_username_as_clientid`` makes the client id of a connection its user name, too: no device can push another one off
the broker by taking its client id. mosquitto has one password for each user, so the newest token of a device counts:
over MQTT there is no overlap when a token is rotated.

Source: mosquitto.conf(5), mosquitto_passwd(1), mosquitto 2.0.
"""

from __future__ import annotations

import base64
import contextlib
import hmac
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from agent.errors import ConfigurationError
from agent.files import give_to, replace_file
from agent.identity import as_owner_of, owner_of
from agent.wire import topics
from agent.wire.limits import BODY_BYTES
from agent.wire.secret import Secret
from agent.wire.topics import GATEWAY_STATUS, ROOT, TopicKind
from gateway.certificates import CertificateFiles
from gateway.tokens import mosquitto_password, with_tokens

PASSWORDS: Final = "passwords"
RULES: Final = "acl"
_COPIES: Final = ("ca.pem", "server.pem", "server.key")
_PASSWORD_BYTES: Final = 24
_USER: Final = "user "

_TO_DEVICE: Final = (f"{TopicKind.COMMAND}/+", TopicKind.RECEIPTS, TopicKind.NOTICE)
_FROM_DEVICE: Final = (f"{TopicKind.COMMAND}/+/{TopicKind.RESULT}", TopicKind.SENSOR_DATA, TopicKind.STATUS)
_PACKET_BYTES: Final = BODY_BYTES + 4096  # a topic and properties around the largest payload
LIMITS: Final = (
    "# A device that runs wild fills its own queue and nothing else. The gateway's queue holds what a fleet sends at",
    "# once: what does not fit is dropped, without a word to whoever sent it.",
    f"max_packet_size {_PACKET_BYTES}",
    "max_queued_messages 20000",
    "max_queued_bytes 67108864",
    "# Of the gateway above all: so many of its messages wait for the service.",
    "max_inflight_messages 1000",
    "max_inflight_bytes 33554432",
    "# Retained messages have no other bound.",
    "memory_limit 536870912",
    "# Commands and receipts are small, and the next one must not wait for the acknowledgement of the one before.",
    "set_tcp_nodelay true",
)
"""Limits of the whole broker, as lines of its configuration."""

_HEAD: Final = "# Written by device-gateway broker-config: run it again instead of editing this file.\n"


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """Settings of the files that ``broker-config`` writes for mosquitto.

    Attributes:
        configuration: the file for mosquitto, usually in ``/etc/mosquitto/conf.d``.
        directory: where passwords, rules and a copy of the certificate go. Root's, when root writes them: the broker's
            user reads them by its group.
        host: the address to listen on; None listens on all.
        tls: the server's certificate; None is for loopback and closed test networks.
        standalone: mosquitto reads no other file; else its main file says where state and log go.
        user: as whom mosquitto runs; used only by root, and where there is such a user.
    """

    configuration: Path
    directory: Path
    port: int = 8883
    host: str | None = None
    tls: CertificateFiles | None = None
    standalone: bool = False
    user: str = "mosquitto"


def device_passwords(state_dir: Path) -> dict[str, str]:
    """User name -> password entry of each device with a valid token, of the gateway with this state directory.

    Raises:
        ConfigurationError: its file of tokens cannot be used.
    """
    passwords = with_tokens(state_dir, lambda tokens: tokens.passwords())
    return {topics.user_name(device_id): password for device_id, password in passwords.items()}


def write_broker_config(settings: BrokerSettings, devices: Mapping[str, str], gateway: str, password: Secret) -> str:
    """Write configuration, passwords and rules; what is there already and the same is left alone.

    Args:
        settings: where and how.
        devices: user name -> password entry, see :func:`device_passwords`.
        gateway: the gateway's user name.
        password: its password.

    Returns:
        What mosquitto needs to take it over: ``restart``, ``reload``, or nothing.

    Raises:
        ConfigurationError: the gateway's name is a device's, or a file cannot be written.
    """
    if gateway in devices:
        fault = f"the gateway's user name {gateway!r} is a device's id, too: set another mqtt.user_name"
        raise ConfigurationError([fault], "broker-config")
    _refuse_foreign_folders(settings.directory, settings.configuration.parent)
    directory, state = settings.directory, settings.directory / "state"
    try:
        directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        settings.configuration.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        entry = _entry(password, _read_passwords(directory).get(gateway))
        texts = {PASSWORDS: _password_file({gateway: entry, **devices}), RULES: rules(gateway)}
        if settings.tls is not None:
            files = (settings.tls.authority, settings.tls.certificate, settings.tls.private_key)
            for name, path in zip(_COPIES, files, strict=True):
                texts[name] = as_owner_of(path, partial(path.read_text, "utf-8"))
        changed = [_put(directory / name, text, 0o600, settings.user) for name, text in texts.items()]
        if settings.standalone:
            state.mkdir(mode=0o700, exist_ok=True)
            give_to(state, settings.user)  # mosquitto writes there
        if _put(settings.configuration, configuration(settings), 0o644, settings.user):
            return "restart"
    except OSError as error:
        fault = f"{error.filename or directory} cannot be used: {error.strerror}; use sudo, or name others"
        raise ConfigurationError([fault], "broker-config") from None
    return "reload" if any(changed) else ""


def update_passwords(directory: Path, devices: Mapping[str, str], user: str) -> bool:
    """Write the passwords of the present devices; that of the gateway stays, as do rules, listener and certificate.

    Returns:
        Whether they have changed, so that mosquitto has to read them again.

    Raises:
        ConfigurationError: ``broker-config`` was not run before, or the file cannot be written.
    """
    _refuse_foreign_folders(directory)
    try:
        lines = (directory / RULES).read_text("utf-8").splitlines()
        gateways = {line.removeprefix(_USER) for line in lines if line.startswith(_USER)}
        kept = {name: entry for name, entry in _read_passwords(directory).items() if name in gateways}
        return _put(directory / PASSWORDS, _password_file(kept | dict(devices)), 0o600, user)
    except OSError as error:
        fix = "use sudo, or run device-gateway broker-config first, or give --dir"
        fault = f"{error.filename or directory} cannot be used: {error.strerror}; {fix}"
        raise ConfigurationError([fault], "broker-update") from None


def gateway_password(path: Path, make: Callable[[int], str], user: str) -> Secret:
    """The gateway's own password at the broker, out of its file; made where there is none.

    Args:
        path: the file, mode 600.
        make: text out of so many random bytes, such as :func:`secrets.token_urlsafe`.
        user: whose group may read it, when root makes it.

    Raises:
        ConfigurationError: it cannot be read or written, or is empty.
    """

    def read() -> str:
        if not path.exists():
            replace_file(path, make(_PASSWORD_BYTES) + "\n", 0o600, group=user)
        return path.read_text("utf-8").strip()

    try:
        text = as_owner_of(path, read)
    except OSError as error:
        fault = f"{path} cannot be read or written: {error.strerror}; use sudo"
        raise ConfigurationError([fault], "broker-config") from None
    if not text:
        fault = f"{path} is empty: put the gateway's password into it, or remove it to have one made"
        raise ConfigurationError([fault], "broker-config")
    return Secret(text)


def rules(gateway: str) -> str:
    """The ACL file: directions as docs/protocol.md gives them, everything else refused."""
    lines = ["# %u is the user name that was checked: its own topics, and in its own direction only."]
    lines += [f"pattern read {ROOT}/%u/{topic}" for topic in _TO_DEVICE]
    lines += [f"pattern write {ROOT}/%u/{topic}" for topic in _FROM_DEVICE]
    lines += [f"pattern read {GATEWAY_STATUS}", "", f"{_USER}{gateway}"]
    lines += [f"topic read {topic}" for topic in topics.GATEWAY_FILTERS]
    lines += [f"topic write {ROOT}/+/{topic}" for topic in _TO_DEVICE]
    lines += ["# To clear what a device has let the broker retain."]
    lines += [f"topic write {ROOT}/+/{topic}" for topic in _FROM_DEVICE if topic != TopicKind.STATUS]
    lines += [f"topic write {GATEWAY_STATUS}"]
    return _HEAD + "\n".join(lines) + "\n"


def configuration(settings: BrokerSettings) -> str:
    """The file for mosquitto."""
    lines = [f"listener {settings.port}" + (f" {settings.host}" if settings.host else "")]
    if settings.tls is not None:
        words = ("cafile", "certfile", "keyfile")
        lines += [f"{word} {settings.directory / name}" for word, name in zip(words, _COPIES, strict=True)]
        lines.append("tls_version tlsv1.2")
    lines += [
        "# A device cannot take another one's client id, which would push that one off.",
        "use_username_as_clientid true",
        "",
        "allow_anonymous false",
        f"password_file {settings.directory / PASSWORDS}",
        f"acl_file {settings.directory / RULES}",
        "",
        *LIMITS,
        "# Sessions of MQTT 3.1.1 that nobody comes back to; version 5 says itself how long.",
        "persistent_client_expiration 1h",
        "",
        "# What waits for the gateway outlives a restart of the broker.",
        "persistence true",
        "autosave_interval 60",
    ]
    if settings.standalone:
        lines += [f"persistence_location {settings.directory / 'state'}/", "log_dest stderr"]
    return _HEAD + "\n".join(lines) + "\n"


def _refuse_foreign_folders(*folders: Path) -> None:
    """Root writes the broker's files only where nobody else can put a link in their place.

    Raises:
        ConfigurationError: a folder is another user's.
    """
    faults = [
        f"{folder} belongs to {owner.name}, who could lead root to any file: chown -R root {folder}, or run this as "
        f"{owner.name}"
        for folder in folders
        if os.geteuid() == 0 and (owner := owner_of(folder)) is not None
    ]
    if faults:
        raise ConfigurationError(faults, "broker files")


def _read_passwords(directory: Path) -> dict[str, str]:
    try:
        lines = (directory / PASSWORDS).read_text("utf-8").splitlines()
    except FileNotFoundError:
        return {}
    return {name: entry for name, _, entry in (line.partition(":") for line in lines)}


def _password_file(entries: Mapping[str, str]) -> str:
    return "".join(f"{name}:{entry}\n" for name, entry in sorted(entries.items()))


def _entry(password: Secret, known: str | None) -> str:
    """The entry for this password; the one that is there stays when it is this password's."""
    with contextlib.suppress(ValueError, IndexError):  # a line that somebody else wrote
        salt = base64.b64decode((known or "").split("$")[3])
        if known is not None and hmac.compare_digest(mosquitto_password(password.reveal(), salt), known):
            return known
    return mosquitto_password(password.reveal(), os.urandom(12))


def _put(path: Path, text: str, mode: int, user: str) -> bool:
    """Write a file that differs; whether it did."""
    if path.exists() and path.read_text("utf-8") == text:
        return False
    replace_file(path, text, mode, durable=True, group=user)
    return True
