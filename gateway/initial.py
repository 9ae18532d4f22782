"""The files that a new gateway begins with."""

from __future__ import annotations

import socket
import stat
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from agent.app.enroll import checked_file
from agent.config.credentials import PLACEHOLDER
from agent.errors import ConfigurationError
from agent.files import give_to, replace_file
from agent.identity import as_owner_of, owner_of
from gateway.certificates import CertificateFiles, make_certificates
from gateway.config import GatewayConfig

OWNER: Final = "device-gateway"
"""As whom the unit runs the gateway."""
KEY_FILES: Final = {"api_key": f"mk_{PLACEHOLDER}_THE_API_KEY_HERE", "secret_key": f"msk_{PLACEHOLDER}_THE_SECRET_KEY"}
HTTPS_PORT: Final = 8443
MQTTS_PORT: Final = 8883
_LOOPBACK: Final = "127.0.0.1"
_USUAL: Final = Path("/etc/device-gateway/config.yaml")


def write_initial_gateway(
    directory: Path,
    base_url: str,
    state_dir: Path,
    *,
    hosts: Sequence[str],
    mqtt: bool,
    keys: Mapping[str, str],
    now: datetime,
    force: bool,
) -> list[str]:
    """Write ``config.yaml``, the key files and, with names, certificates; make the state directory.

    A key file that is there already is kept, also with ``force``: it may hold the only copy of a key.

    Args:
        directory: of configuration and key files.
        base_url: of the service; empty becomes a placeholder.
        state_dir: of tokens and codes.
        hosts: names under which devices reach this server; without any the front stays on loopback, without TLS.
        mqtt: whether a broker on this machine is used too.
        keys: what is known of the key pair, by the name of its file.
        now: the time, with its zone.
        force: replace a configuration that is there.

    Returns:
        One sentence for each file, and what to do next.

    Raises:
        ConfigurationError: a file is there already, a value is not usable, or a directory cannot be written.
    """
    path = directory / "config.yaml"
    if path.exists() and not force:
        raise ConfigurationError([f"{path} is there already; give --force to replace it, or another --dir"], "init")
    try:
        if not directory.exists():
            directory.mkdir(parents=True)
            directory.chmod(0o755)  # whatever the umask is: the gateway's user reads the configuration in it
        # The gateway itself reaches a broker on this machine by loopback.
        names = list(dict.fromkeys((*hosts, _LOOPBACK)))
        files = make_certificates(directory.absolute() / "tls", names, now, user=OWNER) if hosts else None
        values = _values(directory.absolute(), base_url, state_dir, files, mqtt=mqtt)
        text = checked_file(GatewayConfig, "device-gateway", values, "init")
        replace_file(path, text, 0o644)
        lines = [f"wrote {path}", *(files.lines if files else ())]
        lines += [_write_key(directory / name, keys.get(name, "")) for name in KEY_FILES]
        if not state_dir.exists():
            as_owner_of(state_dir, lambda: state_dir.mkdir(mode=0o700, parents=True))
            if owner_of(state_dir) is None:
                give_to(state_dir, OWNER)
    except OSError as error:
        reason = f"{error.filename or path} cannot be written: {error.strerror}; choose another --dir or use sudo"
        raise ConfigurationError([reason], "init") from None
    missing = [str(directory / name) for name in KEY_FILES if not keys.get(name)] + ([] if base_url else [str(path)])
    if missing:
        lines.append(f"next: replace what begins with PASTE, if it is still there, in {', '.join(missing)}")
    option = "" if path == _USUAL else f" --config {path}"
    if mqtt:
        # Not in the system's own places, so it is not the system's broker either.
        places = f" --conf {directory / 'mosquitto.conf'} --dir {directory / 'broker'} --standalone" if option else ""
        tls = f" --tls-dir {directory / 'tls'}" if option and hosts else "" if hosts else " --no-tls"
        lines.append(f"next: device-gateway broker-config{option}{places}{tls}")
    lines.append(f"next: device-gateway check{option} --online")
    lines.append(f"then: device-gateway run{option}, or systemctl enable --now device-gateway")
    return lines


def _values(
    here: Path, base_url: str, state_dir: Path, files: CertificateFiles | None, *, mqtt: bool
) -> dict[str, Any]:
    values: dict[str, Any] = {
        "service": {"base_url": base_url or "https://PASTE-THE-ADDRESS-HERE"},
        "auth": {f"{name}_file": str(here / name) for name in KEY_FILES},
        "state_dir": str(state_dir.absolute()),
    }
    if files is not None:
        values["http"] = {
            # Devices come from other machines, by either kind of address; it speaks TLS there.
            "host": "::" if socket.has_dualstack_ipv6() else "0.0.0.0",  # noqa: S104
            "port": HTTPS_PORT,
            "certificate": str(files.certificate),
            "private_key": str(files.private_key),
        }
    if mqtt:
        values["mqtt"] = {
            "enabled": True,
            "host": _LOOPBACK,
            "port": MQTTS_PORT if files else 1883,
            "user_name": "gateway",
            "password_file": str(here / "mqtt_password"),
            "tls": files is not None,
            **({} if files is None else {"ca_file": str(files.authority)}),
        }
    return values


def _write_key(path: Path, key: str) -> str:
    """Write a key file, or keep the one that is there when no key is given; a sentence that says so.

    Mode 600; what root writes stays root's and has mode 640, for the group of the gateway's user.

    Args:
        path: its name says what it holds.
        key: what to write; empty writes the placeholder.

    Raises:
        OSError: it could not be written.
    """
    if path.exists() and not key:
        return f"kept {path}, which was there already"
    replace_file(path, (key or KEY_FILES[path.name]) + "\n", 0o600, group=OWNER)
    mode = stat.S_IMODE(path.stat().st_mode)
    return f"wrote {path} (mode {mode:o})" + ("" if key else f"; replace its content by the {path.name}")
