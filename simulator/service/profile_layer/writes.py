"""Answers of writes that succeed. Axes: ``write_status``, ``write_body``, ``registration``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from simulator.service.profile_layer.exchange import OK, TEXT, Exchange, Reply, page

PROMISED: Final = frozenset({"create_product", "create_schema", "scan_qr", "sign_in"})
"""Their bodies are in the specification, or the caller can do nothing without them."""
REGISTER: Final = "register_device"
_WRITING: Final = frozenset({"POST", "PUT", "DELETE", "PATCH"})
_NO_CONTENT: Final = 204

Writer = Callable[[Reply, Any], None]


def _page(reply: Reply, _record: Any) -> None:
    made = page(reply.status, "Success", "The request was carried out.")
    reply.say(made.body(), made.media_type)


BODIES: Final[Mapping[str, Writer]] = {
    "success": lambda reply, _: reply.show({"success": True}),
    "success_data": lambda reply, record: reply.show({"success": True, "data": record}),
    "empty_object": lambda reply, _: reply.show({}),
    "empty": lambda reply, _: reply.say(b"", TEXT),
    "text_ok": lambda reply, _: reply.say(b"OK", TEXT),
    "text_created": lambda reply, _: reply.say(b"Created", TEXT),
    "html": _page,
}


def rewrite(exchange: Exchange) -> None:
    """After: status and body of a write."""
    reply, profile = exchange.reply, exchange.profile
    if exchange.endpoint is None or exchange.method not in _WRITING or reply.status not in OK:
        return
    if exchange.name in PROMISED:
        if profile.write_status not in {"complete", "204"}:
            reply.status = int(profile.write_status)
        return
    record = reply.value if reply.is_json else None
    if profile.write_status != "complete":
        reply.status = int(profile.write_status)
    if exchange.name == REGISTER:
        _register(exchange, record)
    elif profile.write_body != "record":
        if reply.status == _NO_CONTENT and profile.write_status == "complete":
            reply.status = 200
        BODIES[profile.write_body](reply, record)
    if reply.status == _NO_CONTENT:
        reply.say(b"", TEXT)


def _register(exchange: Exchange, record: Any) -> None:
    if exchange.profile.registration == "success_device":
        exchange.reply.show({"success": True, "device": record})
    elif exchange.profile.registration == "empty":
        exchange.reply.say(b"", TEXT)
