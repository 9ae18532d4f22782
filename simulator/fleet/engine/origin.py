"""The address of a target, the authorities that are trusted there, and the head that its requests share."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from agent.errors import ConfigurationError
from agent.wire.network import trust_store

_USER_AGENT: Final = "fleet-simulator"


@dataclass(frozen=True, slots=True)
class Origin:
    """Scheme, host and port, and a path in front of every request's path.

    Attributes:
        host: a name or an address, without brackets.
        authority: as it goes into ``Host``.
        prefix: empty, or ``/something`` without a slash at its end.
        tls: shared by all connections; None is plain HTTP.
    """

    host: str
    port: int
    authority: str
    prefix: str
    tls: ssl.SSLContext | None = field(repr=False)


def read_origin(base_url: str, ca_file: Path | None = None) -> Origin:
    """The origin in a base address.

    Args:
        base_url: ``http://host:port`` or ``https://...``, with an optional path.
        ca_file: PEM; whom to trust, and nobody else. None trusts the system's authorities.

    Raises:
        ConfigurationError: it is not such an address, or the file holds no certificate.
    """
    parts = urlsplit(base_url)
    try:
        port = parts.port
    except ValueError:
        port = -1
    bad = parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.username
    if bad or port == -1 or any(ord(character) <= ord(" ") for character in base_url):
        raise ConfigurationError([f"base_url {base_url!r}: write it as http://host:port"], "fleet")
    tls = _context(ca_file) if parts.scheme == "https" else None
    default = 80 if tls is None else 443
    return Origin(parts.hostname or "", port or default, parts.netloc, parts.path.rstrip("/"), tls)


def _context(ca_file: Path | None) -> ssl.SSLContext:
    try:
        context = trust_store(ca_file)
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError([f"ca_file {ca_file}: not a PEM file with certificates ({error})"], "fleet") from None
    context.set_alpn_protocols(["http/1.1"])
    return context


class RequestHead:
    """What all requests with one credential to one address share: the prefix of the path and the fixed headers.

    Args:
        origin: the address.
        headers: sent with every request, such as the two keys.

    Raises:
        ConfigurationError: a header cannot be sent.
    """

    __slots__ = ("_fixed", "_prefix")

    def __init__(self, origin: Origin, headers: Mapping[str, str]) -> None:
        self._prefix = origin.prefix
        fixed = {"host": origin.authority, "accept-encoding": "identity", "user-agent": _USER_AGENT}
        self._fixed = header_lines({**fixed, **headers})

    def message(self, method: str, target: str, headers: Mapping[str, str], body: bytes | None) -> bytes:
        """The whole request, ready for the wire (RFC 9112); ``headers`` are not checked."""
        head = f"{method} {self._prefix}{target} HTTP/1.1\r\n{self._fixed}"
        for name, value in headers.items():
            head += f"{name}: {value}\r\n"
        if body is None:
            return f"{head}\r\n".encode()
        return f"{head}content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body


def header_lines(headers: Mapping[str, str]) -> str:
    """Headers as they go out.

    Raises:
        ConfigurationError: one cannot be sent.
    """
    for name, value in headers.items():
        if any(character in name + value for character in "\r\n\0") or not (name + value).isascii():
            raise ConfigurationError(
                [f"header {name}: a line break, NUL or what is not ASCII is not allowed in it"], "fleet"
            )
    return "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
