"""The service's side of TLS: its certificate and key out of their files."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Final

from agent.errors import ConfigurationError

CERTIFICATE_OPTION: Final = "--tls-certificate"
KEY_OPTION: Final = "--tls-key"
_MAKE: Final = "make one with 'device-gateway certificates', or mend the path"


def server_context(certificate: Path, key: Path | None) -> ssl.SSLContext:
    """What a listening socket speaks TLS by.

    Args:
        certificate: PEM file with the server's certificate and those above it.
        key: PEM file with its key; None when it is in the same file.

    Raises:
        ConfigurationError: they cannot be read, or do not belong together.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        # An encrypted key would ask for its password on a terminal without a person.
        context.load_cert_chain(certificate, key, password=lambda: "")
    except FileNotFoundError:
        missing, option = (key, KEY_OPTION) if key and certificate.exists() else (certificate, CERTIFICATE_OPTION)
        raise _fault(f"{option}: there is no file {missing}; {_MAKE}") from None
    except PermissionError:
        raise _fault(f"{KEY_OPTION}: {key or certificate} may not be read by this user; give it the right") from None
    except (ssl.SSLError, OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or str(error)
        inside = f"{KEY_OPTION} {key}" if key else "a key in it"
        text = f"{CERTIFICATE_OPTION} {certificate} and {inside} are no certificate with its unencrypted key ({reason})"
        raise _fault(f"{text}; {_MAKE}") from None
    return context


def _fault(text: str) -> ConfigurationError:
    return ConfigurationError([text], "service")
