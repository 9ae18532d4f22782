"""The first exchange with a gateway, by the code alone; and whether later ones will accept its certificate."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import time
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

from agent.errors import ConfigurationError, TransportError
from agent.wire.enrollment import PATH, EnrollmentCode, fingerprint_of
from agent.wire.network import OTHER_NAME, CertificateFault, connect, trust_store

TIMEOUT_S: Final = 30.0
_ANSWER_BYTES: Final = 256 * 1024
_HTTPS_PORT: Final = 443
_OF_TIME: Final = frozenset({CertificateFault.NOT_YET_VALID, CertificateFault.EXPIRED})


Exchange = Callable[[SplitResult, EnrollmentCode, dict[str, Any]], tuple[int, bytes]]
"""Shows that the server has the code's certificate, then posts the body; status and body of the answer."""


def exchange_with_gateway(url: SplitResult, code: EnrollmentCode, body: dict[str, Any]) -> tuple[int, bytes]:
    """Post the body once the server has shown the certificate that the code names.

    Raises:
        TransportError: no answer.
        ConfigurationError: another certificate; the code was not sent.
    """
    connection = _connection(url)
    connection._create_connection = lambda at, timeout, _source: connect(at[0], at[1], timeout)  # type: ignore[attr-defined]
    where = url.netloc
    try:
        connection.connect()
        if isinstance(connection.sock, ssl.SSLSocket):
            shown = connection.sock.getpeercert(binary_form=True) or b""
            if fingerprint_of(shown) != code.fingerprint:
                fault = (
                    f"{where} shows another certificate than the one that this code is for, so the code was not sent: "
                    "compare the address, or ask for a new code if the gateway's certificate was renewed"
                )
                raise ConfigurationError([fault], "enroll")
        text = json.dumps(body).encode()
        connection.request("POST", f"{url.path.rstrip('/')}{PATH}", text, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        return answer.status, answer.read(_ANSWER_BYTES)
    except (OSError, http.client.HTTPException) as error:
        raise TransportError(_no_answer(where, error)) from None
    finally:
        connection.close()


def _connection(url: SplitResult) -> http.client.HTTPConnection:
    host, port = url.hostname or "", url.port
    if url.scheme == "http":
        return http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # The code says which certificate it must be, to the bit; names, authorities and times say less.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return http.client.HTTPSConnection(host, port, timeout=TIMEOUT_S, context=context)


def _no_answer(where: str, error: Exception) -> str:
    if isinstance(error, socket.gaierror):
        return f"{where}: this name has no address; compare it, or mend this device's network (name server)"
    if isinstance(error, ssl.SSLError):
        return f"{where} does not speak TLS as it should ({error.reason or error}); compare the address and its port"
    if isinstance(error, TimeoutError):
        return f"{where} did not answer within {TIMEOUT_S:g} s; is this device's network up, and the port open?"
    if isinstance(error, OSError):
        return f"{where} cannot be reached ({error.strerror or error}); is the network up, and does the gateway run?"
    return f"{where} did not answer as a web server does ({type(error).__name__}); compare the address and its port"


def certificate_fault(url: str, authority: str | None) -> str | None:
    """One sentence on why the agent would refuse the certificate at an address; None when it would not.

    A server that does not answer is no such fault: the agent asks it again.

    Args:
        url: of the gateway, ``https://``.
        authority: PEM text of the authority that alone is trusted; None for the system's.
    """
    parts = urlsplit(url)
    context = trust_store(authority=authority)
    host = parts.hostname or ""
    try:
        with (
            connect(host, parts.port or _HTTPS_PORT, TIMEOUT_S) as connection,
            context.wrap_socket(connection, server_hostname=host),
        ):
            return None
    except ssl.SSLCertVerificationError as error:
        return _sentence(host, error)
    except OSError:
        return None


def _sentence(host: str, error: ssl.SSLCertVerificationError) -> str:
    if error.verify_code in _OF_TIME:
        today = time.strftime("%Y-%m-%d", time.gmtime())
        return (
            f"this device's clock says {today}, and by that the certificate of {host} is not good "
            f"({error.verify_message}): set the clock (timedatectl set-ntp true, or date -s), or renew the certificate"
        )
    if error.verify_code in OTHER_NAME:
        return (
            f"the gateway's certificate is not for the name {host}: make one for it there (device-gateway "
            "certificates --host), or invite with a --url that it has"
        )
    return (
        f"the gateway's certificate is not of the authority that came with the code ({error.verify_message}): invite "
        "with --ca and the authority's PEM file"
    )
