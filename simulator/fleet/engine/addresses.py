"""Where a fleet connects to and from: the target's address and its authorities, and the addresses of this machine.

A pair of addresses and a target port have 28,000 ports for the other end, and no more. Source: ip(7),
``IP_BIND_ADDRESS_NO_PORT``: the port is chosen at connect time, so that one port serves as many connections as there
are targets; without it, binding alone uses ports up.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import os
import socket
import ssl
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import urlsplit

from agent.errors import ConfigurationError
from agent.wire.network import connect, trust_store

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

    def message(
        self, method: str, target: str, headers: Mapping[str, str] = MappingProxyType({}), body: bytes | None = None
    ) -> bytes:
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


# --- where connections come from, and how they are made ---------------------------------------------------------------

# Linux's number (include/uapi/linux/in.h); the socket module has the name from Python 3.12 on.
_IP_BIND_ADDRESS_NO_PORT: Final = getattr(socket, "IP_BIND_ADDRESS_NO_PORT", 24)
_ANY_PORT: Final = 9
_REACH_S: Final = 10.0
"""An address of several that does not answer for so long is given up."""
_FIXES: Final = {
    errno.ECONNREFUSED: "nobody listens there: is it running, is the port right?",
    errno.EADDRNOTAVAIL: "no free port from this source address: list more in target.source_addresses",
    errno.EMFILE: "no free file descriptor: raise the limit (ulimit -n), or use more workers",
    errno.ENFILE: "the host has no free file descriptor: raise fs.file-max",
    errno.ENOBUFS: "the host has no memory for sockets left",
}


def own_addresses(listed: Iterable[str]) -> tuple[str, ...]:
    """Those of the listed IPv4 addresses that this machine has; a network such as 10.0.0.0/24 lists all of its own."""
    hosts = (str(host) for each in listed for host in ipaddress.IPv4Network(each))
    return tuple(host for host in dict.fromkeys(hosts) if not _why_no_way(host, host, _ANY_PORT))


def why_unreachable(source: str, target: str) -> str:
    """Why no connection from an IPv4 address can be made to a target; empty where there is a way. Nothing is sent.

    Args:
        source: an address of this machine.
        target: as a URL.
    """
    url = urlsplit(target)
    try:
        found = socket.getaddrinfo(url.hostname, url.port or _ANY_PORT, socket.AF_INET, socket.SOCK_DGRAM)
    except OSError:
        return "the target has no IPv4 address"
    return _why_no_way(source, *found[0][4][:2])


def _why_no_way(source: str, host: str, port: int) -> str:
    """A datagram's socket finds its way without sending anything; a broadcast address or somebody else's has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((source, 0))
            probe.connect((host, port))
        except OSError as error:
            return os.strerror(error.errno) if error.errno else str(error)
    return ""


class TargetAddress:
    """The address behind a target's name, looked up once: all connections go to the same one.

    Args:
        host: the name.
        port: of the target.
        sources: addresses that connections come from, each good for some 28,000 of them; all are IPv4, and so is the
            target's address then. Empty lets the system choose.
        tls: one context for all connections; None for connections in the clear.
    """

    def __init__(self, host: str, port: int, sources: Sequence[str] = (), tls: ssl.SSLContext | None = None) -> None:
        self.host = host
        self.port = port
        self._sources = sources
        self.tls = tls
        self._family = socket.AF_INET if sources else socket.AF_UNSPEC
        self._lookup: asyncio.Task[tuple[int, Any]] | None = None

    async def get(self) -> tuple[int, Any]:
        """Family and address; of several addresses one that answers.

        Raises:
            OSError: there is none, or none of several answers.
            UnicodeError: the host cannot be a name.
        """
        lookup = self._lookup = self._lookup or asyncio.get_running_loop().create_task(self._find())
        try:
            return await asyncio.shield(lookup)
        except (OSError, UnicodeError):
            if self._lookup is lookup:
                self._lookup = None  # asked again with the next connection
            raise

    async def connect(self, protocol: asyncio.Protocol, turn: int) -> None:
        """Connect for a protocol; who has the same turn has the same source address.

        Raises:
            OSError: it cannot be reached, there is no descriptor left, or a source is not of this machine.
            UnicodeError: the host cannot be a name.
        """
        loop = asyncio.get_running_loop()
        family, address = await self.get()
        sock = self._open_socket(family, turn)
        try:
            await loop.sock_connect(sock, address)
            name = self.host if self.tls else None
            await loop.create_connection(lambda: protocol, sock=sock, ssl=self.tls, server_hostname=name)
        except BaseException:
            sock.close()
            raise

    def close(self) -> None:
        """Ask no more."""
        if self._lookup is not None:
            self._lookup.cancel()

    async def _find(self) -> tuple[int, Any]:
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(self.host, self.port, family=self._family, type=socket.SOCK_STREAM)
        if len(found) == 1 or self._family == socket.AF_INET:
            return found[0][0], found[0][4]
        with await asyncio.to_thread(connect, self.host, self.port, _REACH_S) as sock:
            return sock.family, sock.getpeername()

    def _open_socket(self, family: int, turn: int) -> socket.socket:
        """A TCP socket, not blocking and without Nagle's delay."""
        made = socket.socket(family, socket.SOCK_STREAM)
        try:
            made.setblocking(False)
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._sources:
                if sys.platform == "linux":
                    made.setsockopt(socket.IPPROTO_IP, _IP_BIND_ADDRESS_NO_PORT, 1)
                made.bind((self._sources[turn % len(self._sources)], 0))
        except OSError:
            made.close()
            raise
        return made


def explain(error: Exception) -> str:
    """Why there is no connection, with the fix where there is one."""
    if isinstance(error, ssl.SSLError):
        return f"TLS: {getattr(error, 'verify_message', '') or error.reason or error}"
    if not isinstance(error, OSError) or error.errno is None or isinstance(error, socket.gaierror):
        return str(error) or type(error).__name__
    # asyncio puts the address in the place of the system's text.
    return _FIXES.get(error.errno) or os.strerror(error.errno)
