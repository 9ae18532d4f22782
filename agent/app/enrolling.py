"""A device enrolls at a gateway with a code: it gets its id, its token and a configuration.

Nothing is changed on the device before the gateway has answered: what can be known before, such as a folder that cannot
be written, ends it first. The first contact goes by the code's fingerprint of the gateway's certificate alone, so it
needs no trust store and no clock that is right.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

import yaml

from agent.app.enroll_request import Exchange, certificate_fault, exchange_with_gateway
from agent.app.gateway_configuration import AUTHORITY, CONFIGURATION, TOKEN, gateway_configuration
from agent.error_text import bounded
from agent.errors import (
    ConfigurationError,
    Forbidden,
    InvalidMessage,
    NotFound,
    RateLimited,
    Refused,
    ServerFault,
    UnexpectedAnswer,
)
from agent.files import give_to, replace_file
from agent.wire.enrollment import (
    EnrollmentAnswer,
    EnrollmentCode,
    parse_code,
)
from agent.wire.json_text import parse_json

_USER: Final = "device-agent"
_SERIAL_FILES: Final = ("/proc/device-tree/serial-number", "/sys/class/dmi/id/product_serial", "/etc/machine-id")
_NO_SERIALS: Final = frozenset({"", "0", "none", "not specified", "to be filled by o.e.m.", "default string"})
_CREATED: Final = 201


@dataclass(frozen=True, slots=True)
class EnrollmentPlan:
    """An enrollment that has been checked as far as this device can.

    Attributes:
        url: of the gateway, with the code checked.
        code: of the gateway's operator.
        device_identifier: the same each time for one device.
        device_name: for people; None leaves it to the gateway.
        directory: of the configuration.
    """

    url: SplitResult
    code: EnrollmentCode
    device_identifier: str
    device_name: str | None
    directory: Path


@dataclass(frozen=True, slots=True)
class Enrolled:
    """Result of an enrollment.

    Attributes:
        device_id: of this device at the service.
        lines: one sentence for each file.
    """

    device_id: str
    lines: tuple[str, ...]


def plan_enrollment(
    url: str, code: str, *, identifier: str | None, name: str | None, directory: Path
) -> EnrollmentPlan:
    """Check what was given, and that the folder can be written.

    Raises:
        ConfigurationError: every fault that is known before the gateway is asked.
    """
    faults: list[str] = []
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.username:
        faults.append(f"{url!r} is no address of a gateway: write https://HOST:PORT")
    parsed: EnrollmentCode | None = None
    try:
        parsed = parse_code(code)
    except InvalidMessage as error:
        faults.append(str(error))
    if parsed is not None and not faults:
        faults += _scheme_faults(parts, parsed)
    found = identifier or own_serial()
    if not found:
        faults.append("this device has no serial number that can be read: give --identifier")
    try:
        _try_to_write(directory)
    except OSError as error:
        faults.append(_cannot_write(directory, error))
    if faults or parsed is None or found is None:
        raise ConfigurationError(faults, "enroll")
    return EnrollmentPlan(parts, parsed, found, name, directory)


def own_serial(root: Path = Path("/")) -> str | None:
    """The serial number of the board, or the machine id; None where there is neither."""
    for path in _SERIAL_FILES:
        try:
            text = (root / path.lstrip("/")).read_text(encoding="utf-8", errors="replace").strip("\0 \n\t")
        except OSError:
            continue
        if text.lower() not in _NO_SERIALS and text.isprintable():
            return text
    return None


def enroll(plan: EnrollmentPlan, exchange: Exchange | None = None) -> Enrolled:
    """Ask the gateway, then write token, authority and configuration, the configuration last.

    A device that has a configuration already keeps it: it gets a new token, and its id and state stay.

    Args:
        plan: of :func:`plan_enrollment`.
        exchange: replaces the network, for tests.

    Raises:
        ServiceError: the gateway cannot be reached, or refused.
        ConfigurationError: the code is for another gateway, the agent would refuse its certificate, this device is
            enrolled as another one, or a file cannot be written.
    """
    body: dict[str, Any] = {"secret": plan.code.secret, "device_identifier": plan.device_identifier}
    if plan.device_name is not None:
        body["device_name"] = plan.device_name
    status, raw = (exchange or exchange_with_gateway)(plan.url, plan.code, body)
    answer = _read(status, raw)
    if exchange is None and answer.url is not None and answer.url.startswith("https:"):
        fault = certificate_fault(answer.url, answer.authority)
        if fault is not None:
            text = f"{fault}; nothing was changed here, and the code is good for this device again"
            raise ConfigurationError([text], "enroll")
    return _write(plan, answer)


def _scheme_faults(url: SplitResult, code: EnrollmentCode) -> list[str]:
    if code.is_plain and url.scheme == "https":
        return ["this code is for an address without TLS: write http://, or ask for a code for the https address"]
    if not code.is_plain and url.scheme == "http":
        return ["this code is for an address with TLS: write https://"]
    return []


def _read(status: int, raw: bytes) -> EnrollmentAnswer:
    try:
        value = parse_json(raw)
    except InvalidMessage:
        value = None
    if status == _CREATED:
        try:
            return EnrollmentAnswer.receive(value)
        except InvalidMessage as error:
            text = f"the gateway's answer cannot be read: {error}; is it older than this agent?"
            raise UnexpectedAnswer(text, status) from None
    body = value if isinstance(value, dict) else {}
    code, message = (bounded(str(body.get(name, ""))) for name in ("error", "message"))
    kind = _KINDS.get(status, ServerFault if status >= _SERVER_FAULT else Refused)
    raise kind(status, code, message or f"it answered {status} as no gateway of this version does: compare the address")


_KINDS: Final = {403: Forbidden, 404: NotFound, 429: RateLimited}
_SERVER_FAULT: Final = 500


def _write(plan: EnrollmentPlan, answer: EnrollmentAnswer) -> Enrolled:
    directory = plan.directory
    path = directory / CONFIGURATION
    present = _configured_id(path)
    if present is not None and present != answer.device_id:
        fault = (
            f"{path} is of the device {present}, and the code gave {answer.device_id}: move the file away to make this "
            f"device another one; nothing was changed, and the code is good for the same device again"
        )
        raise ConfigurationError([fault], "enroll")
    text = gateway_configuration(answer, directory)
    lines = []
    try:
        directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        replace_file(directory / TOKEN, answer.token.reveal() + "\n", 0o600, durable=True)
        give_to(directory / TOKEN, _USER)  # it is read again whenever it changes; systemd's copy is of the start
        lines.append(f"wrote {directory / TOKEN} (mode 600)")
        if answer.authority is not None:
            replace_file(directory / AUTHORITY, answer.authority, 0o644, durable=True)
            lines.append(f"wrote {directory / AUTHORITY}")
        if present is None:
            replace_file(path, text, 0o644, durable=True)
            lines.append(f"wrote {path}")
        else:
            lines.append(f"kept {path}: it is of this device; only its token is new")
    except OSError as error:
        raise ConfigurationError([_cannot_write(directory, error)], "enroll") from None
    return Enrolled(answer.device_id, tuple(lines))


def _configured_id(path: Path) -> str | None:
    """The device of a configuration that is there already; None without one."""
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
        return str(found["device"]["device_id"])
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError, yaml.YAMLError, KeyError, TypeError):
        fault = f"{path} is there and cannot be read as a configuration: mend it or move it away, then enroll again"
        raise ConfigurationError([fault], "enroll") from None


def _try_to_write(directory: Path) -> None:
    """Raises what writing there would raise; leaves nothing behind.

    Raises:
        OSError: it cannot be written.
    """
    there = directory
    while not there.exists():
        there = there.parent
    # One name: what a run that was killed has left goes with the next.
    probe = there / f".{_USER}-enroll"
    fd = os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    os.close(fd)
    probe.unlink()


def _cannot_write(directory: Path, error: OSError) -> str:
    reason = error.strerror or str(error)
    if re.search("read-only", reason, re.IGNORECASE):
        return f"{directory} is on a read-only file system: mount it writable (mount -o remount,rw /), or give --dir"
    fix = "run this as root, or give --dir" if os.geteuid() else "make room there, or give --dir"
    return f"{directory} cannot be written: {reason}; {fix}"
