"""Where results of commands go. Axis: ``results``; without the endpoint the extension is absent, see the model."""

from __future__ import annotations

from typing import Final

from simulator.service.profiles.exchange import TEXT, Answered, Exchange, Reply, page, refusal

TABLE: Final = "command_results"
_WORDS: Final = {"403": "forbidden", "404": "table_not_found", "405": "method_not_allowed", "500": "internal_error"}
_REASONS: Final = {"403": "Forbidden", "404": "Not Found", "405": "Method Not Allowed", "500": "Internal Server Error"}


async def refuse(exchange: Exchange) -> None:
    """Before: the table of results is not there."""
    status, _, kind = exchange.profile.results.partition("_")
    if kind and _asks_for_table(exchange):
        raise Answered(_missing(status, kind))


def _asks_for_table(exchange: Exchange) -> bool:
    if exchange.name == "create_runtime_record":
        return isinstance(exchange.value, dict) and exchange.value.get("table_name") == TABLE
    return exchange.name == "list_runtime_data" and dict(exchange.given_query).get("table_name") == TABLE


def _missing(status: str, kind: str) -> Reply:
    code, reason = int(status), _REASONS[status]
    if kind == "html":
        return page(code, f"{status} {reason}", "The request could not be carried out.")
    if kind == "text":
        return Reply(code, raw=f"{reason}\n".encode(), media_type=TEXT)
    return refusal(code, _WORDS[status], f"{TABLE}: {reason}.")
