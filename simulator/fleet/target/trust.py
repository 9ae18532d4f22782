"""Whom a run trusts over TLS, in all of its processes."""

from __future__ import annotations

import os
import ssl
from pathlib import Path

from agent.errors import ConfigurationError
from agent.wire.connection import trust_store


def trust(ca_file: Path) -> None:
    """From now on this process, and those that it starts, trust the authorities of the file and nobody else.

    Raises:
        ConfigurationError: it is no PEM file with certificates.
    """
    try:
        trust_store(ca_file)
    except (OSError, ssl.SSLError) as error:
        fault = f"target.tls.ca_file {ca_file}: write a PEM file with certificates ({error})"
        raise ConfigurationError([fault], "target") from None
    # What OpenSSL reads where no file is given: the client that asks what the service offers, the engines, the audit.
    os.environ["SSL_CERT_FILE"] = str(ca_file.absolute())
