"""Names and addresses of machines, connections to them, of whose addresses some may be dead, and whom TLS trusts.

Nothing here needs an HTTP library: a device that speaks MQTT alone has none.
"""

from __future__ import annotations

import contextlib
import ipaddress
import itertools
import re
import socket
import ssl
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

from agent.errors import ConfigurationError

# --- as people write them ---------------------------------------------------------------------------------------------

_NAME: Final = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(?:\.[A-Za-z0-9_-]{1,63})*\.?")
_CHARACTERS: Final = 253
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


def read_host(text: str) -> str:
    """A host's name or IP address, alone; an IPv6 address may stand in brackets.

    Raises:
        ValueError: it is none; the text says what to write.
    """
    host = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        pass
    else:
        return host
    if "@" in text:
        raise ValueError("take user name and password out: they have keys of their own")
    if len(text) > _CHARACTERS or not _NAME.fullmatch(text.encode("idna").decode() if not text.isascii() else text):
        raise ValueError("write the name or address alone, such as gateway.example.com or ::1; a port has its own key")
    return text


def host_and_port(text: str) -> tuple[str, int | None]:
    """Host and port of HOST or HOST:PORT; no port where none is given. ``::1`` and ``[::1]:8883`` are read too.

    Raises:
        ValueError: it is no such address.
    """
    with contextlib.suppress(ValueError):
        return read_host(text), None
    advice = f"{text!r} is no address; write it as HOST or HOST:PORT, with IPv6 as [ADDRESS]:PORT"
    try:
        parts = urlsplit(f"//{text}")
        port = parts.port
    except ValueError:
        raise ValueError(advice) from None
    if not parts.hostname or parts.path or parts.query or parts.fragment or parts.username or port is None:
        raise ValueError(advice)
    return read_host(parts.hostname), port


def read_url(text: str) -> SplitResult:
    """The parts of an address of HTTP, without user, query and fragment.

    Raises:
        ValueError: it is no such address; the text says what to write.
    """
    advice = "write it as https://HOST or https://HOST/PATH"
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise ValueError(advice) from None
    if parts.scheme not in {"http", "https"} or not parts.hostname or "%" in parts.hostname or port == 0:
        raise ValueError(advice)
    if parts.username or parts.password:
        raise ValueError("take the user name and password out of the address; keys go into files (see auth)")
    if "?" in text or "#" in text:  # also with nothing behind it: a path that follows would not be one
        raise ValueError("take everything from '?' or '#' on out of the address")
    read_host(parts.hostname)
    return parts


def authority(host: str, port: int) -> str:
    """HOST:PORT as it stands in an address, with the brackets of IPv6."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_this_machine(host: str) -> bool:
    """True for names and addresses that never leave this machine."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def origin_of(url: Any) -> str:
    """Scheme, host and port (RFC 6454) of a URL of httpx, with the default port written out."""
    return f"{url.scheme}://{url.host.lower()}:{url.port or _DEFAULT_PORTS.get(url.scheme, 0)}"


# --- connections ------------------------------------------------------------------------------------------------------

DEAD_AFTER_S: Final = 1.0
"""An address that is not the last one has so long to answer."""


def attempts(host: str, port: int, timeout_s: float | None) -> Iterator[tuple[str, float | None]]:
    """The addresses of a name, each with how long it may take: a dead one that is not the last takes a second at most.

    The families come in turns, each in the system's order (RFC 8305, section 4).

    Raises:
        OSError: the name has no address.
    """
    deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
    by_family: dict[int, list[str]] = {}
    for family, _, _, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        by_family.setdefault(family, []).append(str(address[0]))
    turns = itertools.zip_longest(*by_family.values())
    found = [each for turn in turns for each in turn if each is not None]
    for count, each in enumerate(found, 1):
        limit_s = None if deadline_s is None else max(deadline_s - time.monotonic(), 0.01)
        if count < len(found):
            limit_s = DEAD_AFTER_S if limit_s is None else min(DEAD_AFTER_S, limit_s)
        yield each, limit_s


def connect(host: str, port: int, timeout_s: float | None) -> socket.socket:
    """Connect to the first address that answers. The socket's own timeout is then ``timeout_s``.

    Raises:
        OSError: the name has no address, or none of them answered; the error of the last one.
    """
    fault: OSError | None = None
    for address, limit_s in attempts(host, port, timeout_s):
        try:
            made = socket.create_connection((address, port), limit_s)
        except OSError as error:
            fault = error
        else:
            made.settimeout(timeout_s)
            return made
    raise fault or OSError(f"{host} has no address")


# --- TLS --------------------------------------------------------------------------------------------------------------


_OTHER_NAME: Final = "write a name that the certificate shows into {}, or have one issued for this name"
# OpenSSL's verify_code (x509_vfy.h) -> what to do.
_CERTIFICATE_FIXES: Final = {
    9: "set this machine's clock; if it is right, the server's certificate is not",
    10: "renew it on the server; if it is still good there, set this machine's clock",
    62: _OTHER_NAME,
    64: _OTHER_NAME,
}


def certificate_fault(error: ssl.SSLCertVerificationError, address_key: str, ca_key: str) -> str:
    """Why a server's certificate is refused, and what to do.

    Args:
        address_key: of the configuration, that holds the server's name.
        ca_key: that names the authorities' file.
    """
    unknown = f"nobody whom this machine trusts has signed it; name its authority's PEM file in {ca_key}"
    fix = _CERTIFICATE_FIXES.get(error.verify_code, unknown)
    return f"{error.verify_message.strip()}: {fix.format(address_key)}"


def trust_store(ca_file: Path | None = None, *, authority: str | None = None) -> ssl.SSLContext:
    """The authorities of the file and nobody else; without a file the system's, or where it has none, certifi's.

    OpenSSL's defaults would take ``SSL_CERT_FILE`` and ``SSL_CERT_DIR`` into account, for every connection of the
    process at once. So the system's places are named instead.

    Args:
        ca_file: PEM.
        authority: PEM as a text in place of a file.

    Raises:
        OSError: the file cannot be read, or holds no certificate (:class:`ssl.SSLError` is one).
    """
    if authority is not None:
        return ssl.create_default_context(cadata=authority)
    if ca_file is not None:
        return ssl.create_default_context(cafile=str(ca_file))
    if sys.platform == "win32":
        return ssl.create_default_context()  # the system's authorities are in no file
    places = ssl.get_default_verify_paths()
    cafile = places.openssl_cafile if Path(places.openssl_cafile).is_file() else None
    capath = places.openssl_capath if Path(places.openssl_capath).is_dir() else None
    if cafile is None and capath is None:
        import certifi  # only here: a system with a trust store never pays for it

        cafile = certifi.where()
    return ssl.create_default_context(cafile=cafile, capath=capath)


def service_trust(ca_file: Path | None) -> ssl.SSLContext:
    """:func:`trust_store` for the key ``service.ca_file``.

    Raises:
        ConfigurationError: the file cannot be used.
    """
    try:
        return trust_store(ca_file)
    except OSError as error:
        if ca_file is None:
            raise
        reason = "it holds no certificate" if isinstance(error, ssl.SSLError) else error.strerror
        fault = f"service.ca_file: {ca_file} cannot be used ({reason}); mend the path, its mode or the file"
        raise ConfigurationError([fault], "service") from None
