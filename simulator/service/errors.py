"""Errors that a request is answered with (specification, "Errors")."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from fastapi import HTTPException
from pydantic_core import to_json

_DETAILS_SHOWN: Final = 50
_IN_MESSAGE: Final = 5
_VALUE_CHARACTERS: Final = 80


class ApiError(HTTPException):
    """A request that is not carried out.

    Attributes:
        error: a stable snake_case word.
        message: a sentence for a person.
        details: (field, issue) for each problem of a body or a query parameter.
    """

    def __init__(
        self,
        status: int,
        error: str,
        message: str,
        *,
        details: Sequence[tuple[str, str]] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(status, message, dict(headers or {}))
        self.error = error
        self.message = message
        self.details = tuple(details)

    def body(self) -> bytes:
        """The error body, as JSON."""
        body: dict[str, Any] = {"error": self.error, "message": self.message}
        if self.details:
            body["details"] = [{"field": field, "issue": issue} for field, issue in self.details]
        try:
            return to_json(body)
        except ValueError:  # it quotes half a surrogate pair out of the request, which UTF-8 does not have
            return json.dumps(body).encode()


def invalid(field: str, issue: str) -> ApiError:
    """400 for one problem."""
    return invalid_all([(field, issue)])


def invalid_all(details: Sequence[tuple[str, str]]) -> ApiError:
    """400 for all problems of a request, as (field, issue)."""
    message = "; ".join(f"{field}: {issue}" for field, issue in details[:_IN_MESSAGE])
    if len(details) > _IN_MESSAGE:
        message += f"; and {len(details) - _IN_MESSAGE} more"
    return ApiError(400, "validation_error", message, details=details[:_DETAILS_SHOWN])


def not_found(kind: str, value: str, where: str = "in this account") -> ApiError:
    """404 ``<kind>_not_found``; ``kind`` is ``product``, ``device``, ..."""
    shown = value if len(value) <= _VALUE_CHARACTERS else value[: _VALUE_CHARACTERS - 3] + "..."
    return ApiError(404, f"{kind}_not_found", f"There is no {kind.replace('_', ' ')} {shown!r} {where}.")


def conflict(error: str, message: str, details: Sequence[tuple[str, str]] = ()) -> ApiError:
    """409: the request contradicts what is stored."""
    return ApiError(409, error, message, details=details)


def too_large(what: str, limit: int) -> ApiError:
    """413 for ``what``, which may have ``limit`` bytes."""
    return ApiError(413, "payload_too_large", f"{what} is larger than the limit of {limit} bytes.")


def unavailable(error: str, message: str, retry_after_s: int) -> ApiError:
    """503: it may be tried again in so many seconds."""
    return ApiError(503, error, message, headers={"Retry-After": str(retry_after_s)})


def nearest(text: str, known: Iterable[str]) -> str:
    """`` (did you mean 'x'?)`` when something known is close to this; else empty."""
    found = difflib.get_close_matches(text[:_VALUE_CHARACTERS], list(known), n=1)
    return f" (did you mean {found[0]!r}?)" if found else ""
