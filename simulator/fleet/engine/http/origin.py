"""The address of a target, and the authorities that are trusted there."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from agent.errors import ConfigurationError
from agent.wire.network import trust_store


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
