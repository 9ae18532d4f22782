"""What comes back over HTTP: an answer as a value, and one typed error with one line of text for what is not good.

:meth:`Answer.raise_for_status` judges an answer: a 2xx or 304 is good. :func:`explain` takes what httpx raises. The
text of an error names no secret, and says what to do when the service itself does not.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, Final

import httpx

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
from agent.wire.network import certificate_fault
from agent.wire.secret import redact

FAULTS: Final = (httpx.HTTPError, httpx.InvalidURL, httpx.CookieConflict, httpx.StreamError, OSError, UnicodeError)
"""Everything that a request can raise: httpx's own, and a host name that cannot be encoded (a UnicodeError)."""
DECIDED: Final = frozenset({*range(200, 300), *range(400, 500), 501} - {401, 408, 425, 429})
"""Statuses that say something of the path that was asked, whoever sends them."""
KEY_IN_USE: Final = "idempotency_key_in_use"
"""The service's word for a request whose ``Idempotency-Key`` belongs to one that still runs."""

_NOT_MODIFIED: Final = 304
_RETRY_MAX_S: Final = 86_400.0
_TEXT_MAX: Final = 300
# A proxy in front of the service says these in HTML, and they mean what they say. Any other 4xx in HTML may be a
# captive portal's, so nothing is dropped on its account unless the page is known to be the service's own.
_TRUSTED_IN_HTML: Final = frozenset({401, 413, 414, 429, 431})
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


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer, good or not.

    Attributes:
        content: the decoded body.
        source: who answered, for error texts: the origin, or the path asked.
    """

    status: int
    headers: httpx.Headers
    content: bytes
    source: str

    @property
    def is_unchanged(self) -> bool:
        """304: what the ``If-None-Match`` named is still the newest."""
        return self.status == _NOT_MODIFIED

    @property
    def is_page(self) -> bool:
        """The body is a web page; frameworks add ``text/html`` also to an empty body, which is none."""
        text = self.content[:200].lstrip(b"\xef\xbb\xbf \t\r\n")
        return bool(text) and ("html" in self.headers.get("content-type", "").lower() or text.startswith(b"<"))

    @property
    def server_time(self) -> float | None:
        """The service's clock (``Date``), seconds since the epoch, whole seconds."""
        return _http_date(self.headers.get("date"))

    @property
    def etag(self) -> str | None:
        """The entity tag, if it can be sent back."""
        tag = self.headers.get("etag")
        return tag if tag and tag.isascii() and tag.isprintable() else None

    def json_or_none(self) -> Any:
        """As :meth:`json`; None also when the body is something else, where only the status counts."""
        try:
            return self.json()
        except UnexpectedAnswer:
            return None

    def json(self) -> Any:
        """The body as a JSON value; None when there is no body.

        Tolerant where :func:`agent.wire.json_text.parse_json` is not, so that one bad record hides no other.

        Raises:
            UnexpectedAnswer: truncated, or not JSON.
        """
        if not self.content.strip():
            return None
        try:
            return json.loads(self.content)
        except (ValueError, RecursionError) as error:
            raise UnexpectedAnswer(
                f"{self.source} answered {self.status} with truncated or broken JSON ({one_line(str(error))}): "
                "the connection broke off, or something between here and the service changes its answers",
                self.status,
            ) from None

    def raise_for_status(self, *, page_is_meant: bool = False) -> None:
        """Return on a 2xx or 304 that is not a foreign web page; raise the one error that says what it is otherwise.

        Args:
            page_is_meant: a web page is the service's own, so that its status means what it says.

        Raises:
            UnexpectedAnswer: a redirect, a foreign web page, a status that is none.
            ErrorAnswer: the class that belongs to the status.
        """
        status, source, is_page = self.status, self.source, self.is_page
        if self.is_unchanged or (200 <= status < 300 and (page_is_meant or not is_page)):
            return
        if 300 <= status < 400:
            try:
                host = httpx.URL(self.headers.get("location", "")).host or "itself"
            except httpx.InvalidURL:
                host = "an unreadable address"
            raise UnexpectedAnswer(
                f"{source} redirects ({status}) to {one_line(host)}, which is not followed, since it would get the "
                "keys too: a captive portal, or set base_url to the final address",
                status,
            )
        if not 200 <= status < 600:
            raise UnexpectedAnswer(f"{source} answered with status {status}, which means nothing here", status)
        if is_page and status < 500 and not page_is_meant and status not in _TRUSTED_IN_HTML:
            raise UnexpectedAnswer(portal_text(source, status), status)
        error, message = ("", "") if is_page else _read_error(self.content)
        if not error and not message:
            message = _HINTS.get(status, "no error body: the service or a proxy in front of it failed")
        kind = _CLASSES.get(status, ServerFault if status >= 500 else Refused)
        if kind is Conflict and error == KEY_IN_USE:
            # Not a word about the request: what its first attempt comes to is not known yet.
            kind = StillRunning
        raise kind(
            status,
            one_line(redact(error)),
            one_line(redact(message)),
            retry_after_s=read_retry_after(self.headers),
            server_time=self.server_time,
        )


def explain(exc: Exception, host: str, waited_s: float) -> TransportError:
    """The error to raise instead of ``exc``. It does not hold ``exc``, which holds the request and so the keys.

    Args:
        exc: one of :data:`FAULTS`.
        host: the origin that was asked.
        waited_s: how long an answer was waited for, seconds.
    """
    refused = _refused_certificate(exc)
    if refused is not None:
        fault = certificate_fault(refused, "base_url", "service.ca_file (fleet-simulator: --ca-file)")
        return TransportError(f"the certificate of {host} is refused: {fault}")
    detail = f" ({one_line(redact(str(exc)))})" if str(exc) else ""
    match exc:
        case httpx.ConnectTimeout() | httpx.PoolTimeout():
            text = f"cannot reach {host}: no connection in time: check the network and base_url"
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


def portal_text(source: str, status: int) -> str:
    """The sentence for a web page that is not the service's."""
    return (
        f"{source} answered {status} with a web page instead of JSON: the network wants a sign-in (captive portal), "
        "or base_url is not the service's address; sign in to the network, or correct base_url"
    )


def read_retry_after(headers: httpx.Headers) -> float | None:
    """How long the service asks us to wait, seconds, at most a day: ``Retry-After`` in both forms (RFC 9110, section
    10.2.3).

    A date is compared with the answer's own ``Date`` and counts for nothing without it: the clock of this machine may
    be wrong.
    """
    value = headers.get("retry-after", "").strip()
    if value.isascii() and value.isdigit():  # headers are Latin-1 text, where "²" counts as a digit, too
        return min(float(value[:10]), _RETRY_MAX_S)
    until, now = _http_date(value), _http_date(headers.get("date"))
    if until is not None and now is not None:
        return min(max(until - now, 0.0), _RETRY_MAX_S)
    return None


def one_line(text: str) -> str:
    """The text on one line, printable, and not longer than a person reads."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text[: 4 * _TEXT_MAX]).split())
    return line if len(line) <= _TEXT_MAX else f"{line[:_TEXT_MAX]}..."


def _http_date(value: str | None) -> float | None:
    """A header's date (RFC 9110, section 5.6.7) as seconds since the epoch; None when it cannot be read."""
    try:
        return parsedate_to_datetime(value or "").timestamp()
    except (ValueError, TypeError, OverflowError, IndexError):
        return None


def _read_error(body: bytes) -> tuple[str, str]:
    """``error`` and the sentence of an error body (specification, "Errors"); other servers nest
    (``{"error": {"code", "message"}}``) or say ``detail``. Empty texts for what it does not say.
    """
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return "", ""
    if not isinstance(value, dict):
        return "", ""
    nested = value.get("error")
    inner = nested if isinstance(nested, dict) else {}
    error = _first_text(inner, "type", "code") or _first_text(value, "error")
    message = _first_text(inner, "message") or _first_text(value, "message", "detail", "error_description")
    details = value.get("details")
    listed = [one for one in details if isinstance(one, dict)] if isinstance(details, list) else []
    pairs = [(_first_text(one, "field"), _first_text(one, "issue")) for one in listed]
    # What the message does not say itself.
    unsaid = "; ".join(f"{field}: {issue}" for field, issue in pairs if not (issue in message and field in message))
    return error, f"{message} ({unsaid})" if message and unsaid else message or unsaid


def _first_text(members: Mapping[str, Any], *names: str) -> str:
    return next((value for name in names if isinstance(value := members.get(name), str) and value), "")


def _refused_certificate(exc: BaseException | None) -> ssl.SSLCertVerificationError | None:
    """Why the server's certificate was not accepted, out of what ``exc`` was raised for; None for another fault."""
    while exc is not None and not isinstance(exc, ssl.SSLCertVerificationError):
        exc = exc.__cause__ or exc.__context__
    return exc
