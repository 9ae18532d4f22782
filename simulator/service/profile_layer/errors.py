"""Errors. Axes: ``error_shape``, ``wrong_keys``, ``retry_after``, ``quota_headers``, ``unknown_path``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from email.utils import formatdate
from http import HTTPStatus
from typing import Any, Final

from simulator.service.profile_layer.exchange import TEXT, Exchange, Reply, page

_QUOTA: Final = (
    b"ratelimit",
    b"ratelimit-policy",
    b"x-ratelimit-limit",
    b"x-ratelimit-remaining",
    b"x-ratelimit-reset",
)
_FIXED: Final = {"huge": b"1000000000", "negative": b"-1", "text": b"soon"}
_PROBLEM: Final = b"application/problem+json"


def wrong_keys(exchange: Exchange) -> None:
    """After: the status of a wrong key pair."""
    reply = exchange.reply
    if exchange.profile.wrong_keys == "403" and exchange.name != "sign_in" and _error(reply) == "invalid_credentials":
        reply.status = 403
        reply.drop(b"www-authenticate")


def quota(exchange: Exchange) -> None:
    """After: what a caller learns of its quota."""
    reply, profile = exchange.reply, exchange.profile
    if profile.quota_headers == "absent":
        reply.drop(*_QUOTA)
    seconds = reply.header(b"retry-after")
    if reply.status != 429 or seconds is None or profile.retry_after == "seconds":
        return
    reply.drop(b"retry-after")
    if profile.retry_after == "date":
        at_s = exchange.service.clock.now_ms() / 1000 + profile.date_offset_s + int(seconds)
        reply.headers.append((b"retry-after", formatdate(at_s, usegmt=True).encode()))
    elif profile.retry_after in _FIXED:
        reply.headers.append((b"retry-after", _FIXED[profile.retry_after]))


def unknown_path(exchange: Exchange) -> None:
    """After: the 404 of a path that does not exist."""
    reply, kind = exchange.reply, exchange.profile.unknown_path
    if kind == "complete" or reply.status != 404 or _error(reply) != "not_found":
        return
    if kind == "html":
        made = page(404, "404 Not Found", "There is no such page.")
        reply.say(made.body(), made.media_type)
    else:
        reply.say(b"404 page not found\n", TEXT)


def shape(exchange: Exchange) -> None:
    """After: the body of an error."""
    reply = exchange.reply
    write = SHAPES.get(exchange.profile.error_shape)
    if write is not None and reply.status >= 400 and _error(reply) is not None:
        write(reply)


def _problem(reply: Reply) -> None:
    title = HTTPStatus(reply.status).phrase
    value = {"type": "about:blank", "title": title, "status": reply.status, "detail": reply.value["message"]}
    reply.show(value)
    reply.media_type = _PROBLEM


def _page(reply: Reply) -> None:
    made = page(reply.status, f"{reply.status} {HTTPStatus(reply.status).phrase}", "The request failed.")
    reply.say(made.body(), made.media_type)


SHAPES: Final[Mapping[str, Callable[[Reply], None]]] = {
    "nested": lambda reply: reply.show(
        {"error": {"code": reply.value["error"], "message": reply.value["message"]}, "status": reply.status}
    ),
    "message": lambda reply: reply.show({"message": reply.value["message"]}),
    "problem": _problem,
    "html": _page,
    "text": lambda reply: reply.say(f"{HTTPStatus(reply.status).phrase}\n".encode(), TEXT),
    "empty": lambda reply: reply.say(b"", TEXT),
}


def _error(reply: Reply) -> Any:
    return reply.value.get("error") if reply.is_json and isinstance(reply.value, dict) else None
