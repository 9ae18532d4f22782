"""A device enrolls at a gateway with a code: it gets its id, its token and a configuration.

Nothing is changed on the device before the gateway has answered: what can be known before, such as a folder that cannot
be written, ends it first. The first contact goes by the code's fingerprint of the gateway's certificate alone, so it
needs no trust store and no clock that is right.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import ssl
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

import yaml
from pydantic import BaseModel, ValidationError

from agent import errors
from agent.config import AgentConfig
from agent.config.faults import sentences
from agent.doctor import CheckStatus
from agent.doctor.checks import Endpoint, judge_connection
from agent.errors import ConfigurationError, InvalidMessage
from agent.files import give_to, replace_file
from agent.text import bounded
from agent.wire.encoding import parse_json
from agent.wire.enrollment import PATH, EnrollmentAnswer, EnrollmentCode, fingerprint_of, parse_code
from agent.wire.network import connect, host_and_port, read_url, trust_store

CONFIGURATION: Final = "config.yaml"
TOKEN: Final = "token"  # noqa: S105 - a file's name
AUTHORITY: Final = "ca.pem"
USER: Final = "device-agent"
"""As whom the unit runs the agent."""

_TIMEOUT_S: Final = 30.0
_ANSWER_BYTES: Final = 256 * 1024
_SERIAL_FILES: Final = ("/proc/device-tree/serial-number", "/sys/class/dmi/id/product_serial", "/etc/machine-id")
_NO_SERIALS: Final = frozenset({"", "0", "none", "not specified", "to be filled by o.e.m.", "default string"})
_CREATED: Final = 201
_KINDS: Final = {
    403: errors.Forbidden,
    404: errors.NotFound,
    429: errors.RateLimited,
}
_SERVER_FAULT: Final = 500


def enroll(url: str, code: str, identifier: str | None, directory: Path) -> tuple[str, list[str]]:
    """Check what was given, ask the gateway, then write token, authority and configuration, the configuration last.

    A device that has a configuration already keeps it: it gets a new token, and its id and state stay.

    Args:
        url: of the gateway.
        code: of the gateway's operator.
        identifier: the same each time for one device; None takes :func:`own_serial`.
        directory: of the configuration.

    Returns:
        The device's id at the service, and one sentence for each file.

    Raises:
        ServiceError: the gateway cannot be reached, or refused.
        ConfigurationError: what was given is wrong, the code is for another gateway, the agent would refuse its
            certificate, this device is enrolled as another one, or a file cannot be written.
    """
    faults: list[str] = []
    parts, parsed = urlsplit(""), EnrollmentCode("", "")
    try:
        parts = read_url(url)
    except ValueError as error:
        faults.append(f"{url!r} is no address of a gateway, such as https://HOST:PORT: {error}")
    try:
        parsed = parse_code(code)
    except InvalidMessage as error:
        faults.append(str(error))
    if not faults and parsed.is_plain and parts.scheme == "https":
        faults.append("this code is for an address without TLS: write http://, or ask for a code for the https address")
    if not faults and not parsed.is_plain and parts.scheme == "http":
        faults.append("this code is for an address with TLS: write https://")
    found = identifier or own_serial()
    if not found:
        faults.append("this device has no serial number that can be read: give --identifier")
    try:
        _try_to_write(directory)
    except OSError as error:
        faults.append(_cannot_write(directory, error))
    if faults:
        raise ConfigurationError(faults, "enroll")
    body = {"secret": parsed.secret, "device_identifier": found}
    answer = _read(*_exchange(parts, parsed, json.dumps(body).encode()))
    fault = None if answer.url is None else certificate_fault(answer.url, answer.authority)
    if fault is not None:
        text = f"{fault}; nothing was changed here, and the code is good for this device again"
        raise ConfigurationError([text], "enroll")
    return answer.device_id, _write(directory, answer)


def own_serial() -> str:
    """The serial number of the board, or the machine id; empty where there is neither."""
    for path in _SERIAL_FILES:
        try:
            text = Path(path).read_text(encoding="utf-8", errors="replace").strip("\0 \n\t")
        except OSError:
            continue
        if text.lower() not in _NO_SERIALS and text.isprintable():
            return text
    return ""


def _exchange(url: SplitResult, code: EnrollmentCode, body: bytes) -> tuple[int, bytes]:
    """Post the body once the server has shown the certificate that the code names: status and body of the answer.

    Raises:
        TransportError: no answer.
        ConfigurationError: another certificate; the code was not sent.
    """
    host = url.hostname or ""
    connection = http.client.HTTPConnection(host, url.port or (443 if url.scheme == "https" else 80))
    try:
        connection.sock = connect(host, connection.port, _TIMEOUT_S)
        if url.scheme == "https":
            # The code says which certificate it must be, to the bit; names, authorities and times say less.
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
            connection.sock = secured = context.wrap_socket(connection.sock, server_hostname=host)
            if fingerprint_of(secured.getpeercert(binary_form=True) or b"") != code.fingerprint:
                fault = (
                    f"{url.netloc} shows another certificate than the one that this code is for, so the code was not "
                    "sent: compare the address, or ask for a new code if the gateway's certificate was renewed"
                )
                raise ConfigurationError([fault], "enroll")
        connection.request("POST", f"{url.path.rstrip('/')}{PATH}", body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        return answer.status, answer.read(_ANSWER_BYTES)
    except (OSError, http.client.HTTPException) as error:
        raise errors.TransportError(_no_answer(url.netloc, error)) from None
    finally:
        connection.close()


def _no_answer(where: str, error: Exception) -> str:
    if isinstance(error, socket.gaierror):
        return f"{where}: this name has no address; compare it, or mend this device's network (name server)"
    if isinstance(error, ssl.SSLError):
        return f"{where} does not speak TLS as it should ({error.reason or error}); compare the address and its port"
    reason = getattr(error, "strerror", "") or str(error) or type(error).__name__
    return f"{where} cannot be reached ({reason}); is the network up, and does the gateway run at this address?"


def certificate_fault(url: str, authority: str | None) -> str | None:
    """One sentence on why the agent would refuse the certificate at an address; None when it would not.

    A server that does not answer is no such fault: the agent asks it again.

    Args:
        url: of the gateway.
        authority: PEM text of the authority that alone is trusted; None for the system's.
    """
    parts = urlsplit(url)
    if parts.scheme != "https":
        return None
    trust = lambda: trust_store(authority=authority)  # noqa: E731 - with its only use
    gateway = Endpoint(
        "gateway", parts.hostname or "", parts.port or 443, trust, "the address", "--ca of the invitation"
    )
    found = judge_connection(gateway, time.time())
    is_fault = found.verdict is CheckStatus.FAILED and not found.is_unreachable
    return f"{found.seen}: {found.cause}" if is_fault else None


def _read(status: int, raw: bytes) -> EnrollmentAnswer:
    try:
        value = parse_json(raw)
        if status == _CREATED:
            return EnrollmentAnswer.receive(value)
    except InvalidMessage as error:
        if status == _CREATED:
            text = f"the gateway's answer cannot be read: {error}; is it older than this agent?"
            raise errors.UnexpectedAnswer(text, status) from None
        value = None
    body = value if isinstance(value, dict) else {}
    code, message = (bounded(str(body.get(name, ""))) for name in ("error", "message"))
    kind = _KINDS.get(status, errors.ServerFault if status >= _SERVER_FAULT else errors.Refused)
    raise kind(status, code, message or f"it answered {status} as no gateway of this version does: compare the address")


def _write(directory: Path, answer: EnrollmentAnswer) -> list[str]:
    path = directory / CONFIGURATION
    present = _configured_id(path)
    if present is not None and present != answer.device_id:
        fault = (
            f"{path} is of the device {present}, and the code gave {answer.device_id}: move the file away to make this "
            f"device another one; nothing was changed, and the code is good for the same device again"
        )
        raise ConfigurationError([fault], "enroll")
    text = gateway_configuration(answer, directory)
    try:
        directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        replace_file(directory / TOKEN, answer.token.reveal() + "\n", 0o600, durable=True)
        give_to(directory / TOKEN, USER)  # it is read again whenever it changes; systemd's copy is of the start
        lines = [f"wrote {directory / TOKEN} (mode 600)"]
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
    return lines


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
    there = next(each for each in (directory, *directory.parents) if each.exists())
    probe = there / f".{USER}-enroll"
    replace_file(probe, "", 0o600)
    probe.unlink()


def _cannot_write(directory: Path, error: OSError) -> str:
    fix = "run this as root, or give --dir" if os.geteuid() else "make the disk writable, or give --dir"
    return f"{directory} cannot be written: {error.strerror or error}; {fix}"


# --- the configuration that a new device or gateway begins with -------------------------------------------------------


def gateway_configuration(handed: EnrollmentAnswer, device_dir: Path) -> str:
    """The text of ``config.yaml`` for a device that a gateway has handed this.

    Args:
        handed: what the gateway gave it.
        device_dir: where the token's and the authority's files lie on the device.

    Raises:
        ConfigurationError: the addresses do not make one.
    """
    source = "the device's configuration"
    authority = {} if handed.authority is None else {"ca_file": str(device_dir / AUTHORITY)}
    service: dict[str, Any] | None = None
    mqtt: dict[str, Any] | None = None
    if handed.url is not None:
        is_plain = handed.url.startswith("http:")
        service = {"base_url": handed.url, **({"allow_plain_http": True} if is_plain and handed.plain else {})}
        service |= {} if is_plain else authority
    if handed.broker is not None:
        try:
            host, port = host_and_port(handed.broker)
        except ValueError as error:
            raise ConfigurationError([f"--broker: {error}"], source) from None
        mqtt = {"host": host, **({} if port is None else {"port": port})}
        mqtt |= {"tls": False, "allow_plain_mqtt": True} if handed.plain else {"tls": True, **authority}
    values = {
        "device": {"device_id": handed.device_id, **({"product_id": handed.product_id} if handed.product_id else {})},
        "auth": {"mode": "bearer", "token_file": str(device_dir / TOKEN)},
        "sensors": [{"name": "board", "type": "system", "interval_s": 60}],
        "service": service,
        "mqtt": mqtt,
    }
    given = {name: value for name, value in values.items() if value is not None}
    return checked_file(AgentConfig, "device-agent", given, source)


def checked_file(model: type[BaseModel], program: str, values: Mapping[str, Any], source: str) -> str:
    """A configuration file with these values, that its program takes.

    Args:
        model: of the whole configuration.
        program: ``device-agent`` or ``device-gateway``.
        values: nested like the file; every other key has its default.
        source: what an error is about.

    Raises:
        ConfigurationError: the program would not take it.
    """
    try:
        model.model_validate(values)
    except ValidationError as error:
        raise ConfigurationError(sentences(error, model), source) from None
    head = (
        f"# Configuration of {program}. What is not here has its default; every key with its meaning is in configs/\n"
        f"# of the repository, and in /usr/share/doc/{program}/examples/ of the package. Secrets are never here, but\n"
        f"# in files of mode 600. Check it with: {program} check --config THIS_FILE\n\n"
    )
    return head + yaml.safe_dump(dict(values), sort_keys=False, allow_unicode=True)
