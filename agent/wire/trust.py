"""Whom a connection over TLS trusts: the authorities of its own setting, whatever the environment says."""

from __future__ import annotations

import ssl
import sys
from enum import IntEnum
from pathlib import Path
from typing import Final

from agent.errors import ConfigurationError


class CertificateFault(IntEnum):
    """Why a server's certificate is refused, as OpenSSL numbers it (``verify_code``, x509_vfy.h)."""

    NOT_YET_VALID = 9
    EXPIRED = 10
    OTHER_NAME = 62
    OTHER_ADDRESS = 64


OTHER_NAME: Final = frozenset({CertificateFault.OTHER_NAME, CertificateFault.OTHER_ADDRESS})
"""The certificate is another server's."""


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
