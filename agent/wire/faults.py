"""Errors of an exchange: each failure as one typed error with a line that a person can act on.

:func:`explain` takes what httpx raises. :func:`raise_for_status` takes an answer: a 2xx or 304 is good, everything else
raises. The text of an error is one line, names no secret, and says what to do when the service itself does not.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import httpx
from pydantic import ValidationError, model_validator
from pydantic_core import from_json

from agent.errors import (
    Conflict,
    ErrorAnswer,
    Forbidden,
    NotFound,
    RateLimited,
    Refused,
    ServerFault,
    StillRunning,
    TransportError,
    Unanswered,
    Unauthorized,
    UnexpectedAnswer,
)
from agent.wire.answers import NOT_MODIFIED, http_date, is_page, one_line, read_retry_after
from agent.wire.base import Received
from agent.wire.trust import OTHER_NAME, CertificateFault

FAULTS: Final = (httpx.HTTPError, httpx.InvalidURL, httpx.CookieConflict, httpx.StreamError, OSError, UnicodeError)
"""Everything that a request can raise: httpx's own, and a host name that cannot be encoded (a UnicodeError)."""
KEY_IN_USE: Final = "idempotency_key_in_use"
"""The service's word for a request whose ``Idempotency-Key`` belongs to one that still runs."""
# A proxy in front of the service says these in HTML, and they mean what they say. Any other 4xx in HTML may be a
# captive portal's, so nothing is dropped on its account unless the page is known to be the service's own.
TRUSTED_IN_HTML: Final = frozenset({401, 413, 414, 429, 431})
_CLASSES: Final[Mapping[int, type[ErrorAnswer]]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    429: RateLimited,
}
_HINTS: Final[Mapping[int, str]] = {
    401: "the service did not accept the credentials: check api_key and secret_key",
    404: "the service does not know this path or resource: check base_url and the id",
    413: "the request is larger than the service takes",
    429: "the request quota of this key is used up for this minute",
    511: "the network wants a sign-in before it lets anything through",
}
_NESTED: Final = (("code", "error"), ("type", "error"), ("message", "message"))


class ErrorDetail(Received):
    """What is wrong with one member of a request body."""

    field: str = ""
    issue: str = ""


class ErrorBody(Received):
    """The error body (specification, "Error body" and "Errors"); a server may leave any member out.

    Attributes:
        details: on 400 ``validation_error``: one per faulty member.
        error_description: on the OAuth endpoints.
    """

    error: str = ""
    message: str = ""
    error_description: str = ""
    details: tuple[ErrorDetail, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _parse_other_shapes(cls, data: Any) -> Any:
        """Other servers nest (``{"error": {"code", "message"}}``) or say ``detail``: their sentence is kept."""
        if not isinstance(data, dict):
            return data
        members = {name: data[name] for name in ("error", "message", "error_description") if _is_text(data.get(name))}
        nested = data.get("error")
        if isinstance(nested, dict):
            members.update({to: nested[of] for of, to in _NESTED if _is_text(nested.get(of))})
        if "message" not in members and _is_text(data.get("detail")):
            members["message"] = data["detail"]
        details = data.get("details")
        if isinstance(details, list):
            members["details"] = [detail for detail in details if isinstance(detail, dict)]
        return members


def raise_for_status(
    response: httpx.Response,
    body: bytes,
    *,
    source: str,
    redact: Callable[[str], str],
    page_is_meant: bool = False,
) -> None:
    """Return on a 2xx or 304 that is not a foreign web page; raise the one error that says what it is otherwise.

    Args:
        response: status and headers count.
        body: the decoded body.
        source: who answered.
        redact: takes secrets out of a text.
        page_is_meant: a web page is the service's own, so that its status means what it says.

    Raises:
        UnexpectedAnswer: a redirect, a foreign web page, a status that is none.
        ErrorAnswer: the class that belongs to the status.
    """
    status = response.status_code
    is_web_page = is_page(response.headers.get("content-type", ""), body)
    if status == NOT_MODIFIED:
        return
    if 200 <= status < 300:
        if is_web_page and not page_is_meant:
            raise UnexpectedAnswer(portal_text(source, status), status)
        return
    if 300 <= status < 400:
        raise UnexpectedAnswer(_redirect_text(response, source), status)
    if not 400 <= status < 600:
        raise UnexpectedAnswer(f"{source} answered with status {status}, which means nothing here", status)
    is_trusted = page_is_meant or status in TRUSTED_IN_HTML
    if is_web_page and status < 500 and not is_trusted:
        raise UnexpectedAnswer(portal_text(source, status), status)
    raise _error_answer(response, _read_error(b"" if is_web_page else body), redact)


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
            return Unanswered(f"{host} did not answer within {waited_s:g} s: slow network or service")
        case httpx.ConnectError():
            text = f"cannot connect to {host}{detail}: check that the service runs, the network and base_url"
        case httpx.LocalProtocolError():  # its text may quote a header
            text = f"the request to {host} is not valid HTTP: check the credentials for stray characters"
        case httpx.ProtocolError() | httpx.NetworkError():
            return Unanswered(f"{host} broke off the connection{detail}: look at the service and the proxy in between")
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
    if error.verify_code == CertificateFault.EXPIRED:
        return f"{reason}: renew it on the server; if it is still good there, set this machine's clock"
    if error.verify_code == CertificateFault.NOT_YET_VALID:
        return f"{reason}: set this machine's clock; if it is right, the server's certificate is not"
    if error.verify_code in OTHER_NAME:
        return f"{reason}: write a name that the certificate shows into base_url, or have one issued for this name"
    return (
        f"{reason}: no authority that this machine trusts has signed it; name its authority's PEM file in "
        "service.ca_file (fleet-simulator: --ca-file)"
    )


def _error_answer(response: httpx.Response, body: ErrorBody, redact: Callable[[str], str]) -> ErrorAnswer:
    status = response.status_code
    message = _with_details(body.message or body.error_description, body.details)
    if not body.error and not message:
        message = _HINTS.get(status, "no error body: the service or a proxy in front of it failed")
    kind = _CLASSES.get(status, ServerFault if status >= 500 else Refused)
    if kind is Conflict and body.error == KEY_IN_USE:
        # Not a word about the request: what its first attempt comes to is not known yet.
        kind = StillRunning
    return kind(
        status,
        one_line(redact(body.error)),
        one_line(redact(message)),
        retry_after_s=read_retry_after(response.headers),
        server_time=http_date(response.headers.get("date")),
    )


def _with_details(message: str, details: Sequence[ErrorDetail]) -> str:
    """The message, and in brackets those details that it does not say itself."""
    unsaid = (one for one in details if not (one.issue and one.issue in message and one.field in message))
    issues = "; ".join(f"{one.field}: {one.issue}" for one in unsaid)
    return f"{message} ({issues})" if message and issues else message or issues


def _read_error(body: bytes) -> ErrorBody:
    try:
        return ErrorBody.model_validate(from_json(body, cache_strings=False))
    except (ValueError, ValidationError):
        return ErrorBody()


def portal_text(source: str, status: int) -> str:
    """The sentence for a web page that is not the service's."""
    return (
        f"{source} answered {status} with a web page instead of JSON: the network wants a sign-in (captive portal), "
        "or base_url is not the service's address; sign in to the network, or correct base_url"
    )


def _redirect_text(response: httpx.Response, source: str) -> str:
    try:
        target = httpx.URL(response.headers.get("location", ""))
        host = f"{target.scheme}://{target.netloc.decode('ascii').rpartition('@')[2]}" if target.host else "itself"
    except (httpx.InvalidURL, UnicodeDecodeError):
        host = "an unreadable address"
    return (
        f"{source} redirects ({response.status_code}) to {one_line(host)}, which is not followed, since it would get "
        "the keys too: a captive portal, or set base_url to the final address"
    )


def _is_text(value: object) -> bool:
    return isinstance(value, str)
