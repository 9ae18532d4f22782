"""What the server has beyond the specification, and what becomes of parameters and members that it does not know.

Axes: ``extensions``, ``results``.
"""

from __future__ import annotations

from typing import Any, Final

from agent.wire.instances import INSTANCE_HEADER
from simulator.service.endpoints import Endpoint
from simulator.service.profile_layer.exchange import Answered, Exchange, refusal
from simulator.service.profiles.model import EXTENSIONS

PAGE_PARAMETER: Final = {
    "complete": "cursor",
    "cursor": "cursor",
    "offset": "offset",
    "page_number": "page",
    "page_header": "page",
    "next_url": "page",
    "links_next": "page",
    "link_header": "page",
}
"""The query parameter that leads to the next page, by way of paging."""
_OF_PARAMETER: Final = {"status": "command-status", "wait": "long-poll"}
_OF_MEMBER: Final = {"ttl_seconds": "command-ttl", "recorded_at": "recorded-at"}

_INSTANCE: Final = INSTANCE_HEADER.lower().encode()
_RESULTS_TABLE: Final = "command_results"


async def discovery(exchange: Exchange) -> None:
    """What the discovery document says."""
    if exchange.name != "discover":
        return
    if exchange.profile.is_plain:
        raise Answered(refusal(404, "not_found", "There is no such path."))


async def announced(exchange: Exchange) -> None:
    """After: the discovery document lists what the profile has."""
    reply = exchange.reply
    if exchange.name == "discover" and reply.is_json and reply.status == 200:
        reply.show({"extensions": [name for name in EXTENSIONS if exchange.profile.has(name)]})


async def endpoints(exchange: Exchange) -> None:
    """Endpoints of an extension that the server does not have."""
    extension = None if exchange.endpoint is None else exchange.endpoint.extension
    if extension not in EXTENSIONS or exchange.profile.has(extension):
        return
    raise Answered(refusal(404, "not_found", "There is no such path."))


async def headers(exchange: Exchange) -> None:
    """``Idempotency-Key`` and ``Agent-Instance`` where the server does not have them."""
    if not exchange.profile.has("command-status"):
        exchange.headers = [one for one in exchange.headers if one[0] != _INSTANCE]
    if exchange.profile.has("idempotency-key"):
        return
    exchange.headers = [one for one in exchange.headers if one[0] != b"idempotency-key"]


async def parameters(exchange: Exchange) -> None:
    """Query parameters of absent extensions, and those that no path has."""
    if exchange.endpoint is None or not exchange.query or exchange.name == "discover":
        return
    kept = []
    for name, value in exchange.query:
        if _is_of_paging(exchange, name):
            kept.append((name, value))
            continue
        extension = _extension_of(exchange.endpoint, name)
        if extension is None:
            if not exchange.profile.is_plain:
                kept.append((name, value))  # the complete service refuses it
        elif exchange.profile.has(extension):
            kept.append((name, value))
    exchange.query = kept


async def members(exchange: Exchange) -> None:
    """Body members of absent extensions, and those that nothing names."""
    value = exchange.value
    endpoint = exchange.endpoint
    if endpoint is None or not endpoint.body or not isinstance(value, dict | list):
        return
    if isinstance(value, list) and not exchange.profile.has("batch-sensor-data"):
        raise Answered(refusal(400, "validation_error", "body: must be an object"))
    known = _known_members(endpoint.body[0])
    items = value if isinstance(value, list) else [value]
    changed = [_filter(exchange, item, known) if isinstance(item, dict) else item for item in items]
    if changed != items:
        exchange.replace_body(changed if isinstance(value, list) else changed[0])


def _filter(exchange: Exchange, item: dict[str, Any], known: frozenset[str] | None) -> dict[str, Any]:
    kept = {}
    for name, value in item.items():
        extension = _OF_MEMBER.get(name) if known and name in known else None
        if extension is not None and not exchange.profile.has(extension):
            continue
        if known is None or name in known or not exchange.profile.is_plain:
            kept[name] = value
    return kept


def _known_members(model: Any) -> frozenset[str] | None:
    """The members of a body; None where any may come."""
    if model.model_config.get("extra") == "allow":
        return None
    return frozenset(field.alias or name for name, field in model.model_fields.items())


def _extension_of(endpoint: Endpoint, name: str) -> str | None:
    declared = {one.name for one in endpoint.parameters if one.place == "query"}
    is_column = name.startswith("data.") and endpoint.name == "list_runtime_data"
    if name not in declared and not is_column:
        return None
    if endpoint.name == "list_device_commands" and name in _OF_PARAMETER:
        return _OF_PARAMETER[name]
    return "list-parameters"


def _is_of_paging(exchange: Exchange, name: str) -> bool:
    """Whether the server's own way of paging has this parameter: its answers lead there."""
    endpoint = exchange.endpoint
    if endpoint is None or not any(reply.listed for reply in endpoint.replies):
        return False
    return PAGE_PARAMETER.get(exchange.profile.paging) == name


async def results(exchange: Exchange) -> None:
    """Before: the table of results is not there."""
    if exchange.profile.results == "none" and _asks_for_table(exchange):
        raise Answered(refusal(404, "table_not_found", f"There is no table {_RESULTS_TABLE}."))


def _asks_for_table(exchange: Exchange) -> bool:
    if exchange.name == "create_runtime_record":
        return isinstance(exchange.value, dict) and exchange.value.get("table_name") == _RESULTS_TABLE
    return exchange.name == "list_runtime_data" and dict(exchange.given_query).get("table_name") == _RESULTS_TABLE
