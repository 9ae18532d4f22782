"""``device-agent enroll`` and ``keys``: what prepares a device."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import click

from agent.app.enroll import CONFIGURATION, USER
from agent.app.enroll import enroll as enroll_at
from agent.errors import (
    EXIT_CHECK_FAILED,
    EXIT_UNREACHABLE,
    Advice,
    ConfigurationError,
    ErrorAnswer,
    InvalidMessage,
    ServiceError,
)
from agent.text import bounded
from agent.wire.enrollment import LABEL_PREFIX, parse_label

_UNIT: Final = "device-agent.service"
_START_S: Final = 90.0
_DEFAULT_DIR: Final = Path("/etc/device-agent")


@click.command()
@click.argument("url_or_label", metavar="ADDRESS")
@click.argument("code", required=False)
@click.option("--identifier", help="Of this device. Default: the board's serial number, else the machine id.")
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path, file_okay=False),
    default=_DEFAULT_DIR,
    show_default=True,
    help="Where to write config.yaml and the files beside it.",
)
@click.option("--start/--no-start", default=True, help="Start the service afterwards, where its unit is installed.")
def enroll(
    *,
    url_or_label: str,
    code: str | None,
    identifier: str | None,
    directory: Path,
    start: bool,
) -> None:
    """Join the gateway at ADDRESS with the CODE that `device-gateway devices invite` printed.

    The text of its QR label holds both and may stand for them. Without a code it is read from standard input, so that
    no other program of this device sees it on the command line; on a terminal it is asked for, unseen.

    It fetches this device's id, token and the authority to trust, writes a configuration and starts the service. A
    device that enrolls again keeps its id, its configuration and its state.

    Exit codes: 0 good, 1 refused or not started, 2 usage or a file, 5 the gateway cannot be reached.
    """
    url, code = _address_and_code(url_or_label, code)
    systemctl = _systemctl(directory) if start else None
    try:
        if systemctl is not None:
            _refuse_foreign_unit(systemctl, Path(sys.argv[0]))
        device_id, lines = enroll_at(url, code, identifier, directory)
    except ServiceError as error:
        text = f"the gateway: {error.message}" if isinstance(error, ErrorAnswer) else str(error)
        click.echo(bounded(text), err=True)
        raise SystemExit(EXIT_UNREACHABLE if error.advice is Advice.RETRY else EXIT_CHECK_FAILED) from None
    started = None if systemctl is None else _start(systemctl)
    lines.append(f"this device is {device_id}")
    if started:
        lines.append("the service runs: device-agent status")
    elif started is None:
        config = directory / CONFIGURATION
        lines.append(f"next: device-agent check --config {config} --online")
        lines.append(f"then: device-agent run --config {config}")
    click.echo("\n".join(lines))
    if started is False:
        click.echo("the service did not start: journalctl -u device-agent -n 30 says why", err=True)
        raise SystemExit(EXIT_CHECK_FAILED)


def _address_and_code(url_or_label: str, code: str | None) -> tuple[str, str]:
    if code is not None:
        return url_or_label, code
    if url_or_label.startswith(LABEL_PREFIX):
        try:
            return parse_label(url_or_label)
        except InvalidMessage as error:
            raise click.UsageError(str(error)) from None
    if sys.stdin.isatty():
        return url_or_label, click.prompt("CODE, unseen", hide_input=True)
    try:
        text = sys.stdin.readline().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise click.UsageError(f"the CODE cannot be read from standard input: {error}") from None
    if not text:
        raise click.UsageError("the CODE is missing: give it behind ADDRESS, or on standard input")
    return url_or_label, text


def _systemctl(directory: Path) -> str | None:
    """The program, where the service is this command's to start."""
    systemctl = shutil.which("systemctl")
    if os.geteuid() != 0 or systemctl is None or directory != _DEFAULT_DIR or not os.path.isdir("/run/systemd/system"):
        return None
    there = subprocess.run((systemctl, "cat", _UNIT), capture_output=True, check=False).returncode == 0
    return systemctl if there else None


def _refuse_foreign_unit(systemctl: str, own_program: Path) -> None:
    """An agent that was installed by pip has a unit of its own, which systemd prefers to the package's.

    Raises:
        ConfigurationError: the unit would start another installation than this one.
    """
    words = (systemctl, "show", "--property=ExecStart,FragmentPath", _UNIT)
    shown = subprocess.run(words, capture_output=True, text=True, check=False).stdout
    program = re.search(r"path=(\S+)", shown)
    place = re.search(r"(?m)^FragmentPath=(.*)$", shown)
    if program is None or own_program.name != USER or Path(program[1]).resolve() == own_program.resolve():
        return
    unit = place[1] if place else _UNIT
    fault = (
        f"{unit} starts another agent, {program[1]}, than this one, {own_program}: take it away first (systemctl stop "
        f"device-agent; rm {unit}; systemctl daemon-reload), docs/install.md"
    )
    raise ConfigurationError([fault], "enroll")


def _start(systemctl: str) -> bool:
    enabled = subprocess.run((systemctl, "enable", _UNIT), capture_output=True, check=False).returncode == 0
    try:
        done = subprocess.run((systemctl, "restart", _UNIT), capture_output=True, check=False, timeout=_START_S)
    except subprocess.TimeoutExpired:
        return False
    return enabled and done.returncode == 0


@click.command()
@click.argument("name", type=click.Path(path_type=Path))
def keys(name: Path) -> None:
    """Make a key pair for signed commands or releases: NAME.key, mode 600, for the sender, NAME.pub for the devices.

    The private key stays with whoever sends commands; devices get the public key and name its file in
    commands.signing.trusted_keys. A file that is there already is left alone, and nothing is written then. Needs the
    extra: pip install '.[device]' in a clone of device-agent.
    """
    from agent.wire.signed import make_key_pair  # cryptography

    key_id, private_path, public_path = make_key_pair(name)
    click.echo(f"key id       {key_id}")
    click.echo(f"private key  {private_path}  (mode 600: keep it with the sender, and a copy in a safe place)")
    click.echo(f"public key   {public_path}  (for the devices: commands.signing.trusted_keys)")
