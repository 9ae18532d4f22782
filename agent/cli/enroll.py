"""``device-agent enroll``: from a code to a running agent."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import click

from agent.app.enrolling import enroll as enroll_at
from agent.app.enrolling import plan_enrollment
from agent.app.service_unit import foreign_unit_fault
from agent.cli.options import configuration_faults_end_it, is_root, json_option, print_json
from agent.error_text import bounded
from agent.errors import Advice, ConfigurationError, ErrorAnswer, InvalidMessage, ServiceError
from agent.exit_codes import EXIT_CHECK_FAILED, EXIT_UNREACHABLE
from agent.wire.enrollment import LABEL_PREFIX, parse_label

_UNIT: Final = "device-agent.service"
_START_S: Final = 90.0
_DEFAULT_DIR: Final = Path("/etc/device-agent")


@click.command()
@click.argument("url_or_label", metavar="ADDRESS")
@click.argument("code", required=False)
@click.option(
    "--code-file",
    type=click.Path(path_type=Path, dir_okay=False, allow_dash=True),
    envvar="DEVICE_AGENT_CODE_FILE",
    show_envvar=True,
    help="The file that holds the code; - is standard input. Other programs of this device can read a command line.",
)
@click.option(
    "--identifier",
    envvar="DEVICE_AGENT_IDENTIFIER",
    show_envvar=True,
    help="Of this device. Default: the board's serial number, else the machine id.",
)
@click.option("--name", envvar="DEVICE_AGENT_NAME", show_envvar=True, help="A name of this device for people.")
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path, file_okay=False),
    default=_DEFAULT_DIR,
    show_default=True,
    envvar="DEVICE_AGENT_DIR",
    show_envvar=True,
    help="Where to write config.yaml, token and ca.pem.",
)
@click.option(
    "--start/--no-start",
    default=True,
    envvar="DEVICE_AGENT_START",
    show_envvar=True,
    help="Start the service afterwards, where its unit is installed.",
)
@json_option
def enroll(
    *,
    url_or_label: str,
    code: str | None,
    code_file: Path | None,
    identifier: str | None,
    name: str | None,
    directory: Path,
    start: bool,
    as_json: bool,
) -> None:
    """Join the gateway at ADDRESS with the CODE that `device-gateway devices invite` printed.

    The text of its QR label holds both and may stand for them. Without a code it is asked for, unseen, on a terminal.

    It fetches this device's id, token and the authority to trust, writes a commented configuration and starts the
    service. A device that enrolls again keeps its id, its configuration and its state.

    Exit codes: 0 good, 1 refused or not started, 2 usage or a file, 5 the gateway cannot be reached.
    """
    url, code = _address_and_code(url_or_label, code, code_file)
    try:
        with configuration_faults_end_it():
            if start:
                _check_unit(directory)
            plan = plan_enrollment(url, code, identifier=identifier, name=name, directory=directory)
            enrolled = enroll_at(plan)
    except ServiceError as error:
        text = f"the gateway: {error.message}" if isinstance(error, ErrorAnswer) else str(error)
        click.echo(bounded(text), err=True)
        raise SystemExit(EXIT_UNREACHABLE if error.advice is Advice.RETRY else EXIT_CHECK_FAILED) from None
    started = _start(directory) if start else None
    if as_json:
        print_json({"device_id": enrolled.device_id, "done": enrolled.lines, "started": started})
    else:
        for line in enrolled.lines:
            click.echo(line)
        click.echo(f"this device is {enrolled.device_id}")
        if started is None:
            click.echo(f"next: device-agent check --config {directory / 'config.yaml'} --online")
            click.echo(f"then: device-agent run --config {directory / 'config.yaml'}")
        elif started:
            click.echo("the service runs: device-agent status")
    if started is False:
        click.echo("the service did not start: journalctl -u device-agent -n 30 says why", err=True)
        raise SystemExit(EXIT_CHECK_FAILED)


def _address_and_code(url_or_label: str, code: str | None, code_file: Path | None) -> tuple[str, str]:
    if code is not None and code_file is not None:
        raise click.UsageError("give the code once: on the command line, or with --code-file")
    if code is not None:
        return url_or_label, code
    if code_file is None and url_or_label.startswith(LABEL_PREFIX):
        try:
            return parse_label(url_or_label)
        except InvalidMessage as error:
            raise click.UsageError(str(error)) from None
    if code_file is None and sys.stdin.isatty():
        return url_or_label, click.prompt("CODE, unseen", hide_input=True)
    try:
        text = sys.stdin.readline() if code_file is None or str(code_file) == "-" else code_file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise click.UsageError(f"{code_file} cannot be read: {error}") from None
    if not text.strip():
        raise click.UsageError("the CODE is missing: device-agent enroll ADDRESS CODE, or --code-file FILE")
    return url_or_label, text.strip()


def _check_unit(directory: Path) -> None:
    """Refuse before anything is changed where the unit would start another installation.

    Raises:
        ConfigurationError: it would.
    """
    systemctl = _systemctl(directory)
    fault = None if systemctl is None else foreign_unit_fault(systemctl, Path(sys.argv[0]))
    if fault is not None:
        raise ConfigurationError([fault], "enroll")


def _systemctl(directory: Path) -> str | None:
    """The program, where the service is this command's to start."""
    systemctl = shutil.which("systemctl")
    if not is_root() or systemctl is None or directory != _DEFAULT_DIR or not os.path.isdir("/run/systemd/system"):
        return None
    there = subprocess.run((systemctl, "cat", _UNIT), capture_output=True, check=False).returncode == 0
    return systemctl if there else None


def _start(directory: Path) -> bool | None:
    """Whether the service runs now; None where it is not this command's to start."""
    systemctl = _systemctl(directory)
    if systemctl is None:
        return None
    enabled = subprocess.run((systemctl, "enable", _UNIT), capture_output=True, check=False).returncode == 0
    try:
        done = subprocess.run((systemctl, "restart", _UNIT), capture_output=True, check=False, timeout=_START_S)
    except subprocess.TimeoutExpired:
        return False
    return enabled and done.returncode == 0
