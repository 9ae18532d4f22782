"""``device-gateway broker-config``: files for mosquitto: who may connect, to which topics, and what may wait.

mosquitto binds a device to its topics by its user name: ``pattern`` rules put it in place of ``%u``. The user name is
the device id as one topic level (:func:`agent.wire.topics.user_name`), so rule and topic are the same text for each id.
``use_username_as_clientid`` makes the client id of a connection its user name, too, so no device can disconnect another
one by using its client id. mosquitto has one password for each user, the newest token of a device: over MQTT the old
token ends at once when a token is rotated.

Source: mosquitto.conf(5), mosquitto_passwd(1), mosquitto 2.0.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import click

from agent.cli.program import acts_for_owners
from agent.errors import EXIT_CHECK_FAILED, ConfigurationError
from agent.files import give_to, replace_file
from agent.identity import as_owner_of, owner_of
from agent.wire import topics
from agent.wire.limits import BODY_BYTES
from agent.wire.secret import Secret
from agent.wire.topics import GATEWAY_STATUS, ROOT, TopicKind
from gateway.certificates import OWNER, CertificateFiles, files_in
from gateway.options import complain, files_in_use, gateway_config_option, load, path_option
from gateway.tokens import BROKER_MARK, mosquitto_password, with_tokens

PASSWORDS: Final = "passwords"
RULES: Final = "acl"
_PASSWORD_BYTES: Final = 24

_TO_DEVICE: Final = (f"{TopicKind.COMMAND}/+", TopicKind.RECEIPTS, TopicKind.NOTICE)
_FROM_DEVICE: Final = (f"{TopicKind.COMMAND}/+/{TopicKind.RESULT}", TopicKind.SENSOR_DATA, TopicKind.STATUS)
_PACKET_BYTES: Final = BODY_BYTES + 4096  # a topic and properties around the largest payload
_LIMITS: Final = (
    "# Each client has a queue of its own. The gateway's must hold what all devices send at the same time: mosquitto",
    "# drops what does not fit, and the sender is not told.",
    f"max_packet_size {_PACKET_BYTES}",
    "max_queued_messages 20000",
    "max_queued_bytes 67108864",
    "# Needed by the gateway: it acknowledges a message when the service has it, so many are open at the same time.",
    "max_inflight_messages 1000",
    "max_inflight_bytes 33554432",
    "# For all memory: nothing else bounds retained messages.",
    "memory_limit 536870912",
    "# Send each small message at once, before TCP has acknowledged the one before.",
    "set_tcp_nodelay true",
)

_HEAD: Final = "# Written by device-gateway broker-config: run it again instead of editing this file.\n"


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """Settings of the files that ``broker-config`` writes for mosquitto.

    Attributes:
        configuration: the file for mosquitto, usually in ``/etc/mosquitto/conf.d``.
        directory: where passwords, rules and a copy of the certificate go. Root's, when root writes them: the broker's
            user reads them by its group.
        tls: the server's certificate; without it mosquitto listens on loopback only.
        standalone: mosquitto reads no other file; else its main file says where state and log go.
        user: as whom mosquitto runs; used only by root, and where there is such a user.
    """

    configuration: Path
    directory: Path
    port: int = 8883
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
    """Write configuration, passwords and rules; a file that would not change is not touched.

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
    texts = {PASSWORDS: _password_file(devices, gateway, password), RULES: rules(gateway)}
    with files_in_use("certificates", "device-gateway certificates --host NAME makes it; or set mqtt.tls: false"):
        for path in settings.tls or ():
            texts[path.name] = as_owner_of(path, partial(path.read_text, "utf-8"))
    with files_in_use("broker-config", "use sudo, or name other places"):
        directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        settings.configuration.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        changed = [_put(directory / name, text, 0o600, settings.user) for name, text in texts.items()]
        if settings.standalone:
            state.mkdir(mode=0o700, exist_ok=True)
            give_to(state, settings.user)  # mosquitto writes there
        if _put(settings.configuration, configuration(settings), 0o644, settings.user):
            return "restart"
    return "reload" if any(changed) else ""


def _gateway_password(path: Path) -> Secret:
    """The gateway's own password at the broker, read from its file; a missing file is made, with mode 600.

    Raises:
        ConfigurationError: it cannot be read or written, or is empty.
    """

    def read() -> str:
        if not path.exists():
            replace_file(path, secrets.token_urlsafe(_PASSWORD_BYTES) + "\n", 0o600, group=OWNER)
        return path.read_text("utf-8").strip()

    with files_in_use("broker-config", "use sudo"):
        text = as_owner_of(path, read)
    if not text:
        fault = f"{path} is empty: put the gateway's password into it, or remove it to have one made"
        raise ConfigurationError([fault], "broker-config")
    return Secret(text)


def rules(gateway: str) -> str:
    """The ACL file: directions as docs/protocol.md gives them, everything else refused."""
    lines = ["# %u is the user name that was checked: its own topics, and in its own direction only."]
    lines += [f"pattern read {ROOT}/%u/{topic}" for topic in _TO_DEVICE]
    lines += [f"pattern write {ROOT}/%u/{topic}" for topic in _FROM_DEVICE]
    lines += [f"pattern read {GATEWAY_STATUS}", "", f"user {gateway}"]
    lines += [f"topic read {topic}" for topic in topics.GATEWAY_FILTERS]
    lines += [f"topic write {ROOT}/+/{topic}" for topic in _TO_DEVICE]
    lines += [f"topic write {GATEWAY_STATUS}"]
    return _HEAD + "\n".join(lines) + "\n"


def configuration(settings: BrokerSettings) -> str:
    """The file for mosquitto."""
    lines = [f"listener {settings.port}" + ("" if settings.tls else " 127.0.0.1")]
    if settings.tls is not None:
        words = ("cafile", "certfile", "keyfile")
        files = zip(words, settings.tls, strict=True)
        lines += [f"{word} {settings.directory / path.name}" for word, path in files]
        lines.append("tls_version tlsv1.2")
    lines += [
        "# A device cannot use the client id of another one, which would disconnect that one.",
        "use_username_as_clientid true",
        "",
        "allow_anonymous false",
        f"password_file {settings.directory / PASSWORDS}",
        f"acl_file {settings.directory / RULES}",
        "",
        *_LIMITS,
        "# For abandoned sessions of MQTT 3.1.1; a client of version 5 names its own time.",
        "persistent_client_expiration 1h",
        "",
        "# Messages that wait for the gateway are kept when the broker restarts.",
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


def _password_file(devices: Mapping[str, str], gateway: str, password: Secret) -> str:
    """The gateway and the devices; the same passwords give the same text, so nothing is reloaded without need."""
    # The password is random itself, so the salt may follow from it, and is the same each time.
    salt = hashlib.sha256(f"salt {password.reveal()}".encode()).digest()[:12]
    entries = {gateway: mosquitto_password(password.reveal(), salt), **devices}
    return "".join(f"{name}:{entry}\n" for name, entry in sorted(entries.items()))


def _put(path: Path, text: str, mode: int, user: str) -> bool:
    """Write the file if its content changes; returns whether it did."""
    if path.exists() and path.read_text("utf-8") == text:
        return False
    replace_file(path, text, mode, durable=True, group=user)
    return True


# --- the command ------------------------------------------------------------------------------------------------------


@click.command("broker-config")
@gateway_config_option
@path_option("--conf", "The file for mosquitto.", Path("/etc/mosquitto/conf.d/device-gateway.conf"))
@path_option(
    "--dir",
    "Where passwords, rules and a copy of the certificate go.",
    Path("/etc/mosquitto/device-gateway"),
    is_folder=True,
)
@click.option("--standalone", is_flag=True, help="Write all that mosquitto needs, for mosquitto -c FILE.")
@click.option("--user", default="mosquitto", show_default=True, help="The broker's; its group reads what root writes.")
@click.option("--reload", is_flag=True, help="Bring files that are there up to date; systemd then reloads mosquitto.")
@acts_for_owners
def broker_config(*, config_path: Path, conf: Path, dir: Path, standalone: bool, user: str, reload: bool) -> None:
    """Write a mosquitto configuration: passwords of the present devices, rules, TLS, limits.

    The port, and whether it speaks TLS, are those of the section mqtt, by which the gateway itself connects; the
    certificate is that of the folder tls beside the configuration. Run it again when listener or certificate change:
    only what differs is written, and it says how mosquitto takes it over. device-gateway-broker.path runs it with
    --reload after each change of the tokens.

    Exit codes: 0 good, 1 the broker was not reloaded, 2 a file cannot be used.
    """
    if reload and not conf.exists():
        fault = f"{conf} is not there: run device-gateway broker-config without --reload first, or give --conf"
        raise ConfigurationError([fault], "broker-config")
    config = load(config_path)
    name, path = config.mqtt.user_name, config.mqtt.password_file or config_path.parent / "mqtt_password"
    settings = BrokerSettings(
        conf.absolute(),
        dir.absolute(),
        port=config.mqtt.port,
        tls=files_in(config_path.absolute().parent / "tls") if config.mqtt.tls else None,
        standalone=standalone,
        user=user,
    )
    password = _gateway_password(path)
    with files_in_use("broker-config", "use sudo"):
        # The mark goes before the tokens are read: a later change sets it again.
        as_owner_of(config.state_dir, lambda: (config.state_dir / BROKER_MARK).unlink(missing_ok=True))
    devices = device_passwords(config.state_dir)
    needs = write_broker_config(settings, devices, name, password)
    tls = "TLS" if config.mqtt.tls else "no TLS"
    click.echo(f"{len(devices)} device(s), port {settings.port}, {tls}: {conf}, {dir}")
    if reload and needs:
        _have_systemd(needs)
        return
    click.echo(f"the gateway's user name is {name}, its password is in {path}")
    click.echo(
        {
            "restart": f"next: {f'mosquitto -c {conf}' if standalone else 'systemctl restart mosquitto'}",
            "reload": "next: systemctl reload mosquitto (or SIGHUP): connections of revoked devices end, others stay",
            "": "nothing changed: mosquitto need not read it again",
        }[needs]
    )


def _have_systemd(needs: str) -> None:
    """Make mosquitto read the files again: ``reload`` or ``restart``."""
    systemctl = shutil.which("systemctl")
    done = systemctl and subprocess.run((systemctl, needs, "mosquitto"), capture_output=True, check=False)
    if not done or done.returncode != 0:
        why = done.stderr.decode(errors="replace").strip() if done else "there is no systemctl"
        complain(f"systemctl {needs} mosquitto failed: {why}")
        raise SystemExit(EXIT_CHECK_FAILED)
    click.echo(f"systemctl {needs} mosquitto: done")
