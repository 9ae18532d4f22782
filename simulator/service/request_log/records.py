"""Shapes of what the control surface says about requests, for the OpenAPI document."""

from __future__ import annotations

from typing_extensions import TypedDict


class HeaderRecord(TypedDict):
    """A header; ``value`` is ``**********`` where it holds a secret."""

    name: str
    value: str


class LoggedMessageRecord(TypedDict):
    """A request's headers and body; ``body`` is cut after 16 KiB, and Base64 where it is no text in UTF-8."""

    headers: list[HeaderRecord]
    body: str
    body_encoding: str
    body_bytes: int
    truncated: bool


class LoggedAnswerRecord(LoggedMessageRecord):
    """An answer, as :class:`LoggedMessageRecord`."""

    status: int


class LoggedRequestRecord(TypedDict):
    """A request and its answer.

    ``account`` is the account's public key, ``caller`` the key or the partner and user that sent it. ``outcome`` is
    ``answered``, ``refused`` (by the connection), ``no_answer``, ``cut`` or ``caller_gone``. ``faults`` are the ids of
    the wanted faults that it met, ``header`` for the one of its header.
    """

    id: str
    received_at: str
    duration_ms: float
    method: str
    path: str
    query: str
    path_template: str | None
    account: str | None
    caller: str | None
    request_id: str | None
    client: str | None
    request: LoggedMessageRecord
    answer: LoggedAnswerRecord | None
    outcome: str
    faults: list[str]
