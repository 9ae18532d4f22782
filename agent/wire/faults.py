"""What httpx raises, told as one error of ours with a line a person can act on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import httpx

from agent.errors import TransportError
from agent.wire.answers import one_line

FAULTS: Final = (httpx.HTTPError, httpx.InvalidURL, httpx.CookieConflict, httpx.StreamError, OSError, UnicodeError)
"""Everything that a request can raise: httpx's own, and a host name that cannot be encoded (a UnicodeError)."""


def explain(exc: Exception, host: str, waited_s: float, redact: Callable[[str], str]) -> TransportError:
    """The error to raise instead of ``exc``. It does not hold ``exc``, which holds the request and so the keys.

    Args:
        exc: one of :data:`FAULTS`.
        host: the origin that was asked.
        waited_s: how long an answer was waited for, seconds.
        redact: takes secrets out of a text.
    """
    detail = f" ({one_line(redact(str(exc)))})" if str(exc) else ""
    match exc:
        case httpx.ConnectTimeout():
            text = f"cannot reach {host}: no connection in time: check the network and base_url"
        case httpx.PoolTimeout():
            text = f"too many requests to {host} at the same time: use one client for fewer threads"
        case httpx.TimeoutException():
            text = f"{host} did not answer within {waited_s:g} s: slow network or service"
        case httpx.ConnectError() if "CERTIFICATE" in str(exc).upper():
            text = f"cannot trust {host}{detail}: check this machine's clock, and SSL_CERT_FILE for a private CA"
        case httpx.ConnectError():
            text = f"cannot connect to {host}{detail}: check that the service runs, the network and base_url"
        case httpx.LocalProtocolError():  # its text may quote a header
            text = f"the request to {host} is not valid HTTP: check the credentials for stray characters"
        case httpx.ProtocolError() | httpx.NetworkError():
            text = f"{host} broke off the connection{detail}: look at the service and the proxy in between"
        case _:
            text = f"no answer from {host}{detail}: check the network and base_url"
    return TransportError(text)
