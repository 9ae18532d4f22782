"""What the HTTP front answers: JSON bodies, and every error as the error body of the specification."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from email.utils import formatdate
from functools import lru_cache
from typing import Any, Final

from pydantic import ValidationError
from pydantic_core import to_json
from starlette.types import Send

from agent.wire.base import list_faults

Header = tuple[bytes, bytes]

_JSON: Final[Header] = (b"content-type", b"application/json")
# RFC 9110, section 8.6: a 304 would have to give the length of the 200.
_NOT_MODIFIED: Final = 304
_MOST_FAULTS: Final = 50
_SHOWN_FAULTS: Final = 5


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """What goes back; ``body`` is JSON text or empty."""

    status: int
    body: bytes = b""
    headers: tuple[Header, ...] = ()


class Fault(Exception):
    """A request that is not carried out.

    Attributes:
        error: the stable snake_case word in the body; also what the front counts it under.
        message: a person's sentence.
        details: (field, issue) of each fault of a body or a query.
    """

    def __init__(
        self,
        status: int,
        error: str,
        message: str,
        *,
        details: Sequence[tuple[str, str]] = (),
        headers: tuple[Header, ...] = (),
    ) -> None:
        self.status = status
        self.error = error
        self.message = message
        self.details = tuple(details)
        self.headers = headers
        super().__init__(f"{status} {error}: {message}")

    def answer(self) -> HttpAnswer:
        """The error body (specification, "Error body")."""
        body: dict[str, Any] = {"error": self.error, "message": self.message}
        if self.details:
            body["details"] = [{"field": field, "issue": issue} for field, issue in self.details]
        return HttpAnswer(self.status, to_json(body), self.headers)


class CallerGone(Exception):
    """The device closed the connection before there was an answer."""


def ok(value: Any, *headers: Header, status: int = 200) -> HttpAnswer:
    """An answer 200 with a JSON body."""
    return HttpAnswer(status, to_json(value), headers)


def invalid(field: str, issue: str) -> Fault:
    """400 for one fault."""
    return invalid_all([(field, issue)])


def invalid_all(details: Sequence[tuple[str, str]]) -> Fault:
    """400 for all faults of a request."""
    shown = list(details[:_MOST_FAULTS])
    message = "; ".join(f"{field}: {issue}" for field, issue in shown[:_SHOWN_FAULTS])
    if len(details) > _SHOWN_FAULTS:
        message += f"; and {len(details) - _SHOWN_FAULTS} more"
    return Fault(400, "validation_error", message, details=shown)


def invalid_model(error: ValidationError) -> Fault:
    """400 for a body that does not have its model's shape."""
    return invalid_all(list_faults(error))


def not_found(kind: str, value: str) -> Fault:
    """404 ``<kind>_not_found``, the same for what does not exist and for what is another device's."""
    shown = value if len(value) <= 80 else f"{value[:77]}..."
    return Fault(404, f"{kind}_not_found", f"There is no {kind} {shown!r} for this device token.")


def later(status: int, error: str, message: str, retry_after_s: float) -> Fault:
    """429 or 503 with ``Retry-After``."""
    seconds = b"%d" % max(1, -int(-retry_after_s // 1))
    return Fault(status, error, message, headers=((b"retry-after", seconds),))


@lru_cache(maxsize=4)
def http_date(second: int) -> bytes:
    """The value of a ``Date`` header: RFC 9110, section 5.6.7."""
    return formatdate(second, usegmt=True).encode()


async def send_answer(send: Send, answer: HttpAnswer, request_id: bytes | None, now_s: float) -> None:
    """Send it over ASGI, with ``now_s`` as its ``Date``."""
    headers = [*answer.headers, (b"date", http_date(int(now_s)))]
    if request_id is not None:
        headers.append((b"x-request-id", request_id))
    if answer.body:
        headers.append(_JSON)
    if answer.status != _NOT_MODIFIED:
        headers.append((b"content-length", b"%d" % len(answer.body)))
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})
