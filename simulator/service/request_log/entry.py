"""One request as it went over the wire, with its answer."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from simulator.service.answers import Header
from simulator.service.matching import FoundPath
from simulator.service.request_log.records import (
    HeaderRecord,
    LoggedAnswerRecord,
    LoggedMessageRecord,
    LoggedRequestRecord,
)
from simulator.service.storage.keys import Caller
from simulator.service.times import show_time

BODY_BYTES: Final = 16 * 1024
"""Of a longer body the beginning is kept."""
ENTRY_BYTES: Final = 1_000
"""What an entry takes beside its bodies and headers, about."""

ANSWERED: Final = "answered"
CALLER_GONE: Final = "caller_gone"
NO_ANSWER: Final = "no_answer"
CUT: Final = "cut"
"""The answer began and did not end."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A request that was received, and what became of it; its texts hold no secrets.

    Attributes:
        seq: its place in the log.
        received_ms: when it came, milliseconds of the service's clock.
        duration_s: from its head to the end of its answer, of real time.
        method: as it was sent; empty where nobody could read it.
        path: as it was sent, percent-encoded.
        query: what follows the ``?``.
        found: the path's template and what stands for its parameters; None where no endpoint has it.
        caller: whom it came from; None where that was not found out.
        request_id: the one that the answer carries.
        client: the address of the other end.
        headers: of the request.
        body: the beginning of the request's body.
        body_bytes: how long the whole is.
        body_is_cut: whether ``body`` is less than the whole.
        has_secrets: whether something was masked in the path, the query or the body.
        status: of the answer; None where none began.
        answer_headers: of the answer.
        answer: the beginning of its body.
        answer_bytes: how long the whole is.
        answer_is_cut: whether ``answer`` is less than the whole.
        outcome: :data:`ANSWERED`, ...
        faults: the wanted faults that it met, see ``/_emulator/faults``.
    """

    seq: int
    received_ms: int
    duration_s: float
    method: str
    path: str
    query: bytes
    found: FoundPath | None
    caller: Caller | None
    request_id: str
    client: str | None
    headers: Sequence[Header]
    body: bytes
    body_bytes: int
    body_is_cut: bool
    has_secrets: bool
    status: int | None
    answer_headers: Sequence[Header]
    answer: bytes
    answer_bytes: int
    answer_is_cut: bool
    outcome: str
    faults: Sequence[str]

    @property
    def template(self) -> str | None:
        """The path's template; None where no endpoint has it."""
        return None if self.found is None else self.found.template

    def show(self, account: str | None) -> LoggedRequestRecord:
        """As the control surface shows it; ``account`` is the account's public key."""
        answer: LoggedAnswerRecord | None = None
        if self.status is not None:
            shown = _message(self.answer_headers, self.answer, self.answer_bytes, is_cut=self.answer_is_cut)
            answer = {"status": self.status, **shown}
        return {
            "id": str(self.seq),
            "received_at": show_time(self.received_ms),
            "duration_ms": round(self.duration_s * 1000, 3),
            "method": self.method,
            "path": self.path,
            "query": self.query.decode("latin-1"),
            "path_template": self.template,
            "account": account,
            "caller": None if self.caller is None else self.caller.api_key,
            "request_id": self.request_id or None,
            "client": self.client,
            "request": _message(self.headers, self.body, self.body_bytes, is_cut=self.body_is_cut),
            "answer": answer,
            "outcome": self.outcome,
            "faults": list(self.faults),
        }


def _message(headers: Sequence[Header], body: bytes, body_bytes: int, *, is_cut: bool) -> LoggedMessageRecord:
    shown: list[HeaderRecord] = [
        {"name": name.decode("latin-1"), "value": value.decode("latin-1")} for name, value in headers
    ]
    text, encoding = _as_text(body, is_cut=is_cut)
    return {
        "headers": shown,
        "body": text,
        "body_encoding": encoding,
        "body_bytes": body_bytes,
        "truncated": is_cut,
    }


def _as_text(body: bytes, *, is_cut: bool) -> tuple[str, str]:
    for end in range(len(body), max(len(body) - (4 if is_cut else 1), -1), -1):  # perhaps cut within a character
        try:
            return body[:end].decode(), "utf-8"
        except UnicodeDecodeError:
            continue
    return base64.b64encode(body).decode(), "base64"
