"""Errors. Axis: ``error_shape``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
_PROBLEM: Final = b"application/problem+json"


def quota(exchange: Exchange) -> None:
    """After: a server without extensions says nothing about the quota but ``Retry-After``."""
    if exchange.profile.is_plain:
        exchange.reply.drop(*_QUOTA)


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
