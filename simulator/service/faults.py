"""Errors that end as an HTTP answer: a status, a stable snake_case ``error`` and a person's sentence."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import ValidationError
from pydantic_core import to_json

from agent.wire.base import list_faults
from simulator.service.answers import Answer, Header


class CallerGone(Exception):
    """The caller closed the connection before there was an answer."""


class ServiceFault(Exception):
    """A request that is not carried out.

    Attributes:
        status: the HTTP status code.
        error: the stable word in the body's ``error``.
        message: the sentence in the body's ``message``.
        details: (field, issue) for each fault of a body or a query parameter.
        headers: further headers of the answer.
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

    def answer(self) -> Answer:
        """The error body (specification, "Error body")."""
        body: dict[str, object] = {"error": self.error, "message": self.message}
        if self.details:
            body["details"] = [{"field": field, "issue": issue} for field, issue in self.details]
        return Answer(self.status, to_json(body), self.headers)


def invalid(field: str, issue: str) -> ServiceFault:
    """400 for one fault."""
    return invalid_all([(field, issue)])


def invalid_all(details: Sequence[tuple[str, str]]) -> ServiceFault:
    """400 for all faults of a request."""
    shown = list(details[:50])
    message = "; ".join(f"{field}: {issue}" for field, issue in shown[:5])
    if len(details) > len(shown[:5]):
        message += f"; and {len(details) - 5} more"
    return ServiceFault(400, "validation_error", message, details=shown)


def invalid_model(exc: ValidationError) -> ServiceFault:
    """400 for a body that does not have its model's shape."""
    return invalid_all(list_faults(exc))


def not_found(kind: str, value: str) -> ServiceFault:
    """404 ``<kind>_not_found``; ``kind`` is ``product``, ``device``, ..."""
    shown = value if len(value) <= 80 else value[:77] + "..."  # noqa: PLR2004 - what fits on a line
    return ServiceFault(404, f"{kind}_not_found", f"There is no {kind} {shown!r} in this account.")


def conflict(error: str, message: str) -> ServiceFault:
    """409: the request contradicts what is stored."""
    return ServiceFault(409, error, message)


def too_large(what: str, limit: int) -> ServiceFault:
    """413."""
    return ServiceFault(413, "payload_too_large", f"{what} is larger than the limit of {limit} bytes.")
