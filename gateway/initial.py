"""The files that a new gateway begins with."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import yaml
from pydantic import ValidationError

from agent.adapters.files import give_to, replace_file
from agent.app.initial import KEY_FILES, write_key
from agent.config.faults import sentences
from agent.errors import ConfigurationError
from agent.process.identity import as_owner_of, owner_of
from gateway.certificates import CertificateFiles, make_certificates
from gateway.config import GatewayConfig, gateway_file

OWNER: Final = "device-gateway"
"""As whom the unit runs the gateway."""
HTTPS_PORT: Final = 8443
MQTTS_PORT: Final = 8883
_LOOPBACK: Final = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class InitialGateway:
    """Values of a first configuration.

    Attributes:
        directory: of configuration and key files.
        base_url: of the service; empty becomes a placeholder.
        state_dir: of store and tokens.
        hosts: names under which devices reach this server; without any the front stays on loopback, without TLS.
        mqtt: whether a broker on this machine is used too.
    """

    directory: Path
    base_url: str
    state_dir: Path
    hosts: tuple[str, ...] = ()
    mqtt: bool = False


def write_initial_gateway(
    wanted: InitialGateway, keys: Mapping[str, str], now: datetime, *, force: bool
) -> tuple[str, ...]:
    """Write ``config.yaml``, the key files and, with names, certificates; make the state directory.

    A key file that is there already is kept, also with ``force``: it may hold the only copy of a key.

    Returns:
        One sentence for each file, and what to do next.

    Raises:
        ConfigurationError: a file is there already, a value is not usable, or a directory cannot be written.
    """
    path = wanted.directory / "config.yaml"
    if path.exists() and not force:
        raise ConfigurationError([f"{path} is there already; give --force to replace it, or another --dir"], "init")
    try:
        if not wanted.directory.exists():
            wanted.directory.mkdir(parents=True)
            wanted.directory.chmod(0o755)  # whatever the umask is: the gateway's user reads the configuration in it
        files = _certificates(wanted, now) if wanted.hosts else None
        text = gateway_file(_values(wanted, files))
        _check(text)
        replace_file(path, text, 0o644)
        lines = [f"wrote {path}", *(files.lines if files else ())]
        lines += [write_key(wanted.directory / name, keys.get(name, ""), OWNER) for name in KEY_FILES]
        if not wanted.state_dir.exists():
            as_owner_of(wanted.state_dir, lambda: wanted.state_dir.mkdir(mode=0o700, parents=True))
            if owner_of(wanted.state_dir) is None:
                give_to(wanted.state_dir, OWNER)
    except OSError as error:
        reason = f"{error.filename or path} cannot be written: {error.strerror}; choose another --dir or use sudo"
        raise ConfigurationError([reason], "init") from None
    return (*lines, *_next(wanted, path, keys))


def _certificates(wanted: InitialGateway, now: datetime) -> CertificateFiles:
    # The gateway itself reaches a broker on this machine by loopback.
    hosts = dict.fromkeys((*wanted.hosts, _LOOPBACK))
    return make_certificates(wanted.directory.absolute() / "tls", list(hosts), now, user=OWNER)


def _values(wanted: InitialGateway, files: CertificateFiles | None) -> dict[str, Any]:
    here = wanted.directory.absolute()
    values: dict[str, Any] = {
        "service": {"base_url": wanted.base_url or "https://PASTE-THE-ADDRESS-HERE"},
        "auth": {f"{name}_file": str(here / name) for name in KEY_FILES},
        "state_dir": str(wanted.state_dir.absolute()),
    }
    if files is not None:
        values["http"] = {
            # Devices come from other machines, by either kind of address; it speaks TLS there.
            "host": "::" if socket.has_dualstack_ipv6() else "0.0.0.0",  # noqa: S104
            "port": HTTPS_PORT,
            "certificate": str(files.certificate),
            "private_key": str(files.private_key),
        }
    if wanted.mqtt:
        values["mqtt"] = {
            "enabled": True,
            "host": _LOOPBACK,
            "port": MQTTS_PORT if files else 1883,
            "user_name": "gateway",
            "password_file": str(here / "mqtt_password"),
            "tls": files is not None,
        }
        if files is not None:
            values["mqtt"]["ca_file"] = str(files.authority)
    return values


def _check(text: str) -> None:
    try:
        GatewayConfig.model_validate(yaml.safe_load(text))
    except ValidationError as error:
        raise ConfigurationError(sentences(error, GatewayConfig), "init") from None


def _next(wanted: InitialGateway, path: Path, keys: Mapping[str, str]) -> list[str]:
    lines = []
    missing = [str(wanted.directory / name) for name in KEY_FILES if not keys.get(name)]
    if not wanted.base_url:
        missing.append(str(path))
    if missing:
        lines.append(f"next: replace what begins with PASTE, if it is still there, in {', '.join(missing)}")
    option = "" if path == Path("/etc/device-gateway/config.yaml") else f" --config {path}"
    if wanted.mqtt:
        words = ["device-gateway broker-config"]
        if option:  # not in the system's own places, so it is not the system's broker either
            own = wanted.directory
            words.append(f"--config {path} --conf {own / 'mosquitto.conf'} --dir {own / 'broker'} --standalone")
            words += [f"--tls-dir {own / 'tls'}"] if wanted.hosts else []
        words += [] if wanted.hosts else ["--no-tls"]
        lines.append(f"next: {' '.join(words)}")
    lines.append(f"next: device-gateway check{option} --online")
    lines.append(f"then: device-gateway run{option}, or systemctl enable --now device-gateway")
    return lines
