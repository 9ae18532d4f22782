"""Answers that are not the service's: those of choice, and the page of a captive portal."""

from __future__ import annotations

from typing import Final

from pydantic_core import to_json

from simulator.service.answers import JSON_TYPE, Answer, Header, http_date
from simulator.service.faults.model import FaultAnswer, FaultPortal

_TEXT: Final[Header] = (b"content-type", b"text/plain; charset=utf-8")
_HTML: Final[Header] = (b"content-type", b"text/html; charset=utf-8")
_ERRORS: Final = 400
_REDIRECT: Final = 302
_SIGN_IN: Final = b"http://portal.example/sign-in"
_PORTAL: Final = b"""\
<!DOCTYPE html>
<html><head><title>Welcome to Guest Wi-Fi</title></head>
<body><h1>Welcome to Guest Wi-Fi</h1>
<form method="post" action="http://portal.example/sign-in">
<p>Accept the terms to go online.</p><button name="accept" value="1">Accept</button></form></body></html>
"""


def chosen_answer(wanted: FaultAnswer, now_ms: int) -> Answer:
    """The answer of choice, dated by the service's clock unless it names a date itself."""
    given = {name.lower(): value.encode("latin-1") for name, value in wanted.headers.items()}
    headers: list[Header] = [(name.encode(), value) for name, value in given.items() if name != "content-type"]
    if wanted.retry_after_s is not None:
        as_date = wanted.retry_after_as == "date"
        seconds = wanted.retry_after_s
        headers.append((b"retry-after", http_date(now_ms // 1000 + seconds) if as_date else b"%d" % seconds))
    if "date" not in given:
        headers.append(_date(now_ms))
    body, media_type = _body(wanted)
    if "content-type" in given:
        media_type = (b"content-type", given["content-type"])
        headers += [] if body else [media_type]
    return Answer(wanted.status, body, tuple(headers), media_type)


def portal_answer(wanted: FaultPortal, now_ms: int) -> Answer:
    """What a captive portal answers instead of the service."""
    headers = [_date(now_ms), (b"cache-control", b"no-store")]
    if wanted.status == _REDIRECT:
        headers.append((b"location", _SIGN_IN))
    return Answer(wanted.status, _PORTAL, tuple(headers), _HTML)


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
