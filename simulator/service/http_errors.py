"""Errors as HTTP answers: a status, a stable snake_case ``error`` and a sentence for a person."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from pydantic_core import to_json

from simulator.service import errors
from simulator.service.answers import Answer, Header
from simulator.service.errors import ServiceError


class CallerGone(Exception):
    """The caller closed the connection before there was an answer."""


class HttpError(ServiceError):
    """A request that is not carried out, with what only HTTP knows.

    Attributes:
        status: the HTTP status code.
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
        super().__init__(error, message, details=details)
        self.status = status
        self.headers = headers
        self.args = (f"{status} {error}: {message}",)

    def answer(self) -> Answer:
        """The error body (specification, "Error body")."""
        body: dict[str, object] = {"error": self.error, "message": self.message}
        if self.details:
            body["details"] = [{"field": field, "issue": issue} for field, issue in self.details]
        return Answer(self.status, to_json(body), self.headers)


STATUSES: Final[Mapping[type[ServiceError], int]] = {
    errors.Invalid: 400,
    errors.NotFound: 404,
    errors.Conflict: 409,
    errors.KeyInUse: 409,
    errors.TooLarge: 413,
    errors.KeyReused: 422,
    errors.TooManyStreams: 429,
    errors.Unavailable: 503,
}


def http_error_of(error: ServiceError) -> HttpError:
    """The HTTP answer of an error: the one place that knows the statuses."""
    if isinstance(error, HttpError):
        return error
    retry = error.retry_after_s
    headers = () if retry is None else ((b"retry-after", b"%d" % retry),)
    return HttpError(STATUSES[type(error)], error.error, error.message, details=error.details, headers=headers)
