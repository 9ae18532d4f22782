"""A TCP connection to a name with several addresses, some of which may be dead; and whom TLS trusts.

Nothing here needs an HTTP library: a device that speaks MQTT alone has none.
"""

from __future__ import annotations

import itertools
import socket
import ssl
import sys
import time
from collections.abc import Iterable, Iterator
from enum import IntEnum
from pathlib import Path
from typing import Any, Final

from agent.errors import ConfigurationError

_EACH_S: Final = 1.0
"""An address that is not the last one has so long to answer."""

Found = tuple[int, int, int, str, Any]
"""An address as :func:`socket.getaddrinfo` gives it: family, type, protocol, canonical name, address."""


def in_turns(found: Iterable[Found]) -> list[Found]:
    """The addresses with the families in turns, each in the system's order (RFC 8305, section 4)."""
    by_family: dict[int, list[Found]] = {}
    for each in found:
        by_family.setdefault(each[0], []).append(each)
    return [each for turn in itertools.zip_longest(*by_family.values()) for each in turn if each is not None]


def attempts(host: str, port: int, timeout_s: float | None) -> Iterator[tuple[str, float | None]]:
    """The addresses of a name, each with how long it may take: a dead one that is not the last takes a second at most.

    Raises:
        OSError: the name has no address.
    """
    deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
    found = in_turns(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
    for count, (_, _, _, _, address) in enumerate(found, 1):
        limit_s = None if deadline_s is None else max(deadline_s - time.monotonic(), 0.01)
        if count < len(found):
            limit_s = _EACH_S if limit_s is None else min(_EACH_S, limit_s)
        yield address[0], limit_s


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


class CertificateFault(IntEnum):
    """Why a server's certificate is refused, as OpenSSL numbers it (``verify_code``, x509_vfy.h)."""

    NOT_YET_VALID = 9
    EXPIRED = 10
    OTHER_NAME = 62
    OTHER_ADDRESS = 64


OTHER_NAME: Final = frozenset({CertificateFault.OTHER_NAME, CertificateFault.OTHER_ADDRESS})
"""The certificate is another server's."""


def certificate_fault(error: ssl.SSLCertVerificationError, address_key: str, ca_key: str) -> str:
    """Why a server's certificate is refused, and what to do.

    Args:
        address_key: of the configuration, that holds the server's name.
        ca_key: that names the authorities' file.
    """
    reason = error.verify_message.strip()
    if error.verify_code == CertificateFault.EXPIRED:
        return f"{reason}: renew it on the server; if it is still good there, set this machine's clock"
    if error.verify_code == CertificateFault.NOT_YET_VALID:
        return f"{reason}: set this machine's clock; if it is right, the server's certificate is not"
    if error.verify_code in OTHER_NAME:
        return f"{reason}: write a name that the certificate shows into {address_key}, or have one issued for this name"
    return f"{reason}: nobody whom this machine trusts has signed it; name its authority's PEM file in {ca_key}"


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
