"""Answers of choice in place of the service's."""

from __future__ import annotations

from typing import Final

from pydantic_core import to_json

from simulator.service.answers import JSON_TYPE, Answer, Header, http_date
from simulator.service.faults.model import FaultAnswer

_TEXT: Final[Header] = (b"content-type", b"text/plain; charset=utf-8")
_ERRORS: Final = 400


def chosen_answer(wanted: FaultAnswer, now_ms: int) -> Answer:
    """The answer of choice, dated by the service's clock unless it names a date itself."""
    given = {name.lower(): value.encode("latin-1") for name, value in wanted.headers.items()}
    headers: list[Header] = [(name.encode(), value) for name, value in given.items() if name != "content-type"]
    if wanted.retry_after_s is not None:
        headers.append((b"retry-after", b"%d" % wanted.retry_after_s))
    if "date" not in given:
        headers.append(_date(now_ms))
    body, media_type = _body(wanted)
    if "content-type" in given:
        media_type = (b"content-type", given["content-type"])
        headers += [] if body else [media_type]
    return Answer(wanted.status, body, tuple(headers), media_type)


def _body(wanted: FaultAnswer) -> tuple[bytes, Header]:
    if isinstance(wanted.body, str):
        return wanted.body.encode(), _TEXT
    if wanted.body is not None:
        return to_json(wanted.body), JSON_TYPE
    if wanted.status < _ERRORS:
        return b"", JSON_TYPE
    message = f"A fault of the local service answers {wanted.status}: GET /_emulator/faults lists all."
    return to_json({"error": "injected_fault", "message": message}), JSON_TYPE


def _date(now_ms: int) -> Header:
    return (b"date", http_date(now_ms // 1000))
