"""What httpx raises, told as one error of ours with a line a person can act on."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import Final

import httpx

from agent.errors import TransportError
from agent.wire.answers import one_line

FAULTS: Final = (httpx.HTTPError, httpx.InvalidURL, httpx.CookieConflict, httpx.StreamError, OSError, UnicodeError)
"""Everything that a request can raise: httpx's own, and a host name that cannot be encoded (a UnicodeError)."""


_EXPIRED: Final = 10  # X509_V_ERR_CERT_HAS_EXPIRED
_NOT_YET: Final = 9  # X509_V_ERR_CERT_NOT_YET_VALID
_OTHER_NAME: Final = frozenset({62, 64})  # X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH


def explain(exc: Exception, host: str, waited_s: float, redact: Callable[[str], str]) -> TransportError:
    """The error to raise instead of ``exc``. It does not hold ``exc``, which holds the request and so the keys.

    Args:
        exc: one of :data:`FAULTS`.
        host: the origin that was asked.
        waited_s: how long an answer was waited for, seconds.
        redact: takes secrets out of a text.
    """
    refused = _refused_certificate(exc)
    if refused is not None:
        return TransportError(f"the certificate of {host} is refused: {_certificate_fault(refused)}")
    detail = f" ({one_line(redact(str(exc)))})" if str(exc) else ""
    match exc:
        case httpx.ConnectTimeout():
            text = f"cannot reach {host}: no connection in time: check the network and base_url"
        case httpx.PoolTimeout():
            text = f"too many requests to {host} at the same time: use one client for fewer threads"
        case httpx.TimeoutException():
            text = f"{host} did not answer within {waited_s:g} s: slow network or service"
        case httpx.ConnectError():
            text = f"cannot connect to {host}{detail}: check that the service runs, the network and base_url"
        case httpx.LocalProtocolError():  # its text may quote a header
            text = f"the request to {host} is not valid HTTP: check the credentials for stray characters"
        case httpx.ProtocolError() | httpx.NetworkError():
            text = f"{host} broke off the connection{detail}: look at the service and the proxy in between"
        case _:
            text = f"no answer from {host}{detail}: check the network and base_url"
    return TransportError(text)


def _refused_certificate(exc: BaseException | None) -> ssl.SSLCertVerificationError | None:
    """Why the server's certificate was not accepted, out of what ``exc`` was raised for; None for another fault."""
    while exc is not None and not isinstance(exc, ssl.SSLCertVerificationError):
        exc = exc.__cause__ or exc.__context__
    return exc


def _certificate_fault(error: ssl.SSLCertVerificationError) -> str:
    reason = one_line(error.verify_message)
    if error.verify_code == _EXPIRED:
        return f"{reason}: renew it on the server; if it is still good there, set this machine's clock"
    if error.verify_code == _NOT_YET:
        return f"{reason}: set this machine's clock; if it is right, the server's certificate is not"
    if error.verify_code in _OTHER_NAME:
        return f"{reason}: write a name that the certificate shows into base_url, or have one issued for this name"
    return (
        f"{reason}: nobody whom this machine trusts has signed it; name the authority's PEM file in service.ca_file "
        "(fleet-simulator: --ca-file)"
    )
