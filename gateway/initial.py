"""``device-gateway init``: the files that a new gateway begins with."""

from __future__ import annotations

import socket
import stat
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import click

from agent.app.enroll import checked_file
from agent.config.credentials import PLACEHOLDER
from agent.errors import ConfigurationError
from agent.files import give_to, replace_file
from agent.identity import as_owner_of, owner_of
from gateway.certificates import OWNER, CertificateFiles, make_certificates
from gateway.config import GatewayConfig
from gateway.options import DEFAULT_PATH, files_in_use, path_option

KEY_FILES: Final = {"api_key": f"mk_{PLACEHOLDER}_THE_API_KEY_HERE", "secret_key": f"msk_{PLACEHOLDER}_THE_SECRET_KEY"}
_LOOPBACK: Final = "127.0.0.1"


@click.command()
@path_option(
    "--dir", "Where to write config.yaml, the key files and the certificates.", DEFAULT_PATH.parent, is_folder=True
)
@click.option("--base-url", help="The service's address. Asked for when it is not given.")
@path_option("--state-dir", "Where device tokens and codes are kept.", Path("/var/lib/device-gateway"), is_folder=True)
@click.option(
    "--host",
    "hosts",
    multiple=True,
    help="A name or address under which devices reach this server; makes certificates for it and serves HTTPS on "
    "port 8443. Without it the gateway listens on loopback only, for a proxy in front.",
)
@click.option("--mqtt", is_flag=True, help="Also serve devices over MQTT, with a broker on this machine.")
@click.option("--force", is_flag=True, help="Replace config.yaml if it is there. Key files that hold a key are kept.")
def init(*, dir: Path, base_url: str | None, state_dir: Path, hosts: tuple[str, ...], mqtt: bool, force: bool) -> None:
    """Write a commented configuration, and files of mode 600 for the key pair.

    On a terminal it asks for what is not given; the keys are typed unseen and never appear on a command line.
    """
    path = dir / "config.yaml"
    if path.exists() and not force:
        raise ConfigurationError([f"{path} is there already; give --force to replace it, or another --dir"], "init")
    keys = dict.fromkeys(KEY_FILES, "")
    if sys.stdin.isatty():
        base_url = base_url or click.prompt("Address of the service (base_url)")
        for name, placeholder in KEY_FILES.items():
            text = f"{name} ({placeholder.partition('_')[0]}_..., unseen; empty to fill in the file later)"
            keys[name] = click.prompt(text, default="", show_default=False, hide_input=True).strip()
    with files_in_use("init", "choose another --dir or use sudo"):
        if not dir.exists():
            dir.mkdir(parents=True)
            dir.chmod(0o755)  # whatever the umask is: the gateway's user reads the configuration in it
        # The gateway itself reaches a broker on this machine by loopback.
        names = list(dict.fromkeys((*hosts, _LOOPBACK)))
        files = make_certificates(dir.absolute() / "tls", names, datetime.now(UTC)) if hosts else None
        values = _values(dir.absolute(), base_url, state_dir, files, mqtt=mqtt)
        replace_file(path, checked_file(GatewayConfig, "device-gateway", values, "init"), 0o644)
        lines = [
            f"wrote {path}",
            *(_write_key(dir / each, keys[each]) for each in keys),
        ]
        if not state_dir.exists():
            as_owner_of(state_dir, lambda: state_dir.mkdir(mode=0o700, parents=True))
            if owner_of(state_dir) is None:
                give_to(state_dir, OWNER)
    missing = [str(dir / name) for name in keys if not keys[name]] + ([] if base_url else [str(path)])
    if missing:
        lines.append(f"next: replace what begins with PASTE, if it is still there, in {', '.join(missing)}")
    option = "" if path == DEFAULT_PATH else f" --config {path}"
    if mqtt:
        # Not in the system's own places, so it is not the system's broker either.
        places = f" --conf {dir / 'mosquitto.conf'} --dir {dir / 'broker'} --standalone" if option else ""
        lines.append(f"next: device-gateway broker-config{option}{places}")
    lines.append(f"next: device-gateway check{option} --online")
    lines.append(f"then: device-gateway run{option}, or systemctl enable --now device-gateway")
    click.echo("\n".join(lines))


def _values(
    here: Path, base_url: str | None, state_dir: Path, files: CertificateFiles | None, *, mqtt: bool
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
            "port": 8443,
            "certificate": str(files.certificate),
            "private_key": str(files.private_key),
        }
    if mqtt:
        values["mqtt"] = {
            "enabled": True,
            "host": _LOOPBACK,
            "port": 1883 if files is None else 8883,
            "password_file": str(here / "mqtt_password"),
            "tls": files is not None,
            **({} if files is None else {"ca_file": str(files.authority)}),
        }
    return values


def _write_key(path: Path, key: str) -> str:
    """Write a key file, or its placeholder; one that is there is kept when no key is given: it may hold the only copy.

    Mode 600; what root writes stays root's and has mode 640, for the group of the gateway's user. Returns a sentence
    that says so.
    """
    if path.exists() and not key:
        return f"kept {path}, which was there already"
    replace_file(path, (key or KEY_FILES[path.name]) + "\n", 0o600, group=OWNER)
    mode = stat.S_IMODE(path.stat().st_mode)
    return f"wrote {path} (mode {mode:o})" + ("" if key else f"; replace its content by the {path.name}")
