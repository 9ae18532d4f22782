"""Errors of storage, rules and decisions; :mod:`simulator.service.http_errors` turns each into an HTTP answer.

::

    ServiceError
    |-- NotFound         what is named is not in the account
    |-- Invalid          a value does not fit; names each fault
    |-- Conflict         it contradicts what is stored
    |-- TooLarge         more bytes than the limit
    |-- KeyInUse         the first request with this Idempotency-Key still runs
    |-- KeyReused        this Idempotency-Key was used for another request
    |-- TooManyStreams   the account has as many event streams open as it may have
    `-- Unavailable      the storage cannot be read or written, or too many writes wait
"""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from pydantic import ValidationError

from agent.wire.base import list_faults

_DETAILS_SHOWN: Final = 50
_IN_MESSAGE: Final = 5
_VALUE_CHARACTERS: Final = 80


class ServiceError(Exception):
    """A request that is not carried out.

    Attributes:
        error: a stable snake_case word.
        message: a sentence for a person.
        details: (field, issue) for each fault of a body or a query parameter.
        retry_after_s: when it may be tried again; None when nothing says so.
    """

    def __init__(
        self, error: str, message: str, *, details: Sequence[tuple[str, str]] = (), retry_after_s: int | None = None
    ) -> None:
        self.error = error
        self.message = message
        self.details = tuple(details)
        self.retry_after_s = retry_after_s
        super().__init__(f"{error}: {message}")


class NotFound(ServiceError):
    """The account has nothing of this name or id."""


class Invalid(ServiceError):
    """A value does not fit."""


class Conflict(ServiceError):
    """The request contradicts what is stored."""


class TooLarge(ServiceError):
    """A value has more bytes than the limit."""


class KeyInUse(ServiceError):
    """The first request with this ``Idempotency-Key`` still runs."""


class KeyReused(ServiceError):
    """This ``Idempotency-Key`` was used for another request."""


class TooManyStreams(ServiceError):
    """The account has as many event streams open as it may have."""


class Unavailable(ServiceError):
    """The storage cannot be read or written, or too many writes wait. It was logged where it was met."""


def invalid(field: str, issue: str) -> Invalid:
    """The error for one fault."""
    return invalid_all([(field, issue)])


def invalid_all(details: Sequence[tuple[str, str]]) -> Invalid:
    """The error for all faults of a request."""
    shown = list(details[:_DETAILS_SHOWN])
    message = "; ".join(f"{field}: {issue}" for field, issue in shown[:_IN_MESSAGE])
    if len(details) > _IN_MESSAGE:
        message += f"; and {len(details) - _IN_MESSAGE} more"
    return Invalid("validation_error", message, details=shown)


def invalid_model(exc: ValidationError) -> Invalid:
    """The error for a body that does not have its model's shape."""
    return invalid_all(list_faults(exc))


def conflict(error: str, field: str, issue: str) -> Conflict:
    """The error for a member that contradicts what is stored."""
    return Conflict(error, f"{field}: {issue}.", details=[(field, issue)])


@contextlib.contextmanager
def conflicts_in(place: str) -> Iterator[None]:
    """Within the block a conflict's member stands in ``place``, such as ``keys.0``."""
    try:
        yield
    except Conflict as exc:
        if not exc.details:
            raise
        [(field, issue)] = exc.details
        raise conflict(exc.error, f"{place}.{field}", issue) from None


def nearest(text: str, known: Iterable[str]) -> str:
    """`` (did you mean 'x'?)`` when something known is close to this; else empty."""
    found = difflib.get_close_matches(text[:_VALUE_CHARACTERS], list(known), n=1)
    return f" (did you mean {found[0]!r}?)" if found else ""


def not_found(kind: str, value: str, where: str = "in this account") -> NotFound:
    """``<kind>_not_found``; ``kind`` is ``product``, ``device``, ..."""
    shown = value if len(value) <= _VALUE_CHARACTERS else value[: _VALUE_CHARACTERS - 3] + "..."
    return NotFound(f"{kind}_not_found", f"There is no {kind} {shown!r} {where}.")


def too_large(what: str, limit: int) -> TooLarge:
    """The error for ``what``, which may have ``limit`` bytes."""
    return TooLarge("payload_too_large", f"{what} is larger than the limit of {limit} bytes.")
