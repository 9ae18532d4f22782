"""Requests and answers of an account that is answered by a variant (:mod:`simulator.service.variant`).

The handlers look at the variant for what only they know: which commands are listed, which page of a list, how a command
is written. What is the same for every endpoint is done here, around the handler.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, get_args
from urllib.parse import parse_qsl, urlencode

from fastapi import Request, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel
from pydantic_core import from_json, to_json

from agent.wire import paths
from agent.wire.instances import INSTANCE_HEADER
from agent.wire.models import JsonObject
from agent.wire.server import COMMAND_RESULTS
from simulator.service.errors import ApiError, invalid
from simulator.service.variant import STATUS_WORDS, ServerVariant

if TYPE_CHECKING:
    from simulator.service.http import Call

_OF_EXTENSIONS: Final = frozenset({"ttl_seconds", "recorded_at"})
"""Members of bodies that the specification does not have."""
_HEADERS_OF_EXTENSIONS: Final = frozenset({INSTANCE_HEADER.lower().encode(), b"idempotency-key"})
_PAGE_PARAMETER: Final = {"page_number": "page", "offset": "offset", "none": None}
"""The query parameter that says which page is meant, by way of paging; ``cursor`` by all others."""


# --- before the handler -------------------------------------------------------------------------------------------


def prepare(request: Request, route: APIRoute, query_names: frozenset[str], variant: ServerVariant) -> None:
    """Take out of a request what the variant does not have, and note which page is asked for in ``page_place``.

    Raises:
        ApiError: 404: the server has no such endpoint.
    """
    scope, extension = request.scope, (route.openapi_extra or {}).get("x-extension-name")
    has_no_results = extension == COMMAND_RESULTS and variant.results != "endpoint"
    if has_no_results or (extension is not None and not variant.extensions):
        raise ApiError(404, "not_found", "There is nothing at this path.")
    query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
    own = _PAGE_PARAMETER.get(variant.paging, "cursor")
    is_list = "cursor" in query_names
    if not variant.extensions:
        query = [(name, value) for name, value in query if is_list and name == own]
        scope["headers"] = [one for one in scope["headers"] if one[0] not in _HEADERS_OF_EXTENSIONS]
        scope["headers_by_name"] = None
        known = _known_members(route)
        scope["body_filter"] = lambda value: _without_extensions(value, known)
    if is_list and own != "cursor":
        scope["page_place"] = next((value for name, value in query if name == own), None)
        query = [(name, value) for name, value in query if name != own]
    scope["query_string"] = urlencode(query).encode()


def _without_extensions(value: Any, known: frozenset[str] | None) -> Any:
    if isinstance(value, list):
        raise invalid("body", "must be a JSON object")
    if isinstance(value, dict) and known is not None:
        return {name: inner for name, inner in value.items() if name in known - _OF_EXTENSIONS}
    return value


def _known_members(route: APIRoute) -> frozenset[str] | None:
    """The members of a body; None where any may come."""
    models = [] if route.body_field is None else list(_models_in(route.body_field.field_info.annotation))
    if not models or any(model.model_config.get("extra") == "allow" for model in models):
        return None
    return frozenset(one.alias or name for model in models for name, one in model.model_fields.items())


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in get_args(annotation) for model in _models_in(part)]


# --- what handlers ask --------------------------------------------------------------------------------------------


def write_command(variant: ServerVariant | None, record: JsonObject, number: int) -> JsonObject:
    """A command's record as the variant has it; ``number`` is its id where ids are numbers."""
    if variant is None:
        return record
    shown = {name: value for name, value in record.items() if name != "id"}
    if variant.id_name != "none":
        shown = {variant.id_name: number if variant.id_type == "integer" else record["id"], **shown}
    if variant.status_words == "none":
        del shown["status"], shown["status_reason"]
    elif variant.status_words == "own":
        shown["status"] = STATUS_WORDS[record["status"]]
    elif variant.status_words == "number":
        shown["status"] = list(STATUS_WORDS).index(record["status"])
    return shown


def command_location(variant: ServerVariant | None, record: JsonObject) -> dict[str, str]:
    """The header that points at a command that was sent, where a client of this server can follow it."""
    command_id = record["id"] if variant is None else record.get(variant.id_name)
    if variant is not None and (command_id is None or not variant.extensions or variant.results != "endpoint"):
        return {}
    return {"Location": f"{paths.device_commands(record['device_id'])}/{command_id}"}


# --- after the handler --------------------------------------------------------------------------------------------


def finish(call: Call, variant: ServerVariant, response: Response, *, is_list: bool) -> None:
    """Bring an answer into the variant's form: its times, and the envelope of a list."""
    if not response.headers.get("content-type", "").startswith("application/json") or not response.body:
        return
    path = call.request.scope["path"]
    value = write_times(variant, from_json(bytes(response.body)))
    if path == paths.DISCOVERY and variant.results != "endpoint":
        value["extensions"].remove(COMMAND_RESULTS)
    if is_list:
        items = value.pop("data")
        shape = path.rsplit("/", 1)[-1].replace("-", "_") if variant.list_shape == "named" else variant.list_shape
        value = items if shape == "bare" else {shape: items, **value}
    response.body = to_json(value)
    response.headers["content-length"] = str(len(response.body))


def error_answer(variant: ServerVariant | None, error: ApiError) -> tuple[dict[str, str], bytes]:
    """Headers and body of an error, in the variant's form."""
    headers = dict(error.headers or {})
    if variant is None:
        return {**headers, "content-type": "application/json"}, error.body()
    if not variant.extensions:
        headers = {name: value for name, value in headers.items() if "ratelimit" not in name.lower()}
    status, phrase = error.status_code, HTTPStatus(error.status_code).phrase
    media_type, body = "application/json", error.body()
    if variant.error_shape == "nested":
        body = to_json({"error": {"code": error.error, "message": error.message}, "status": status})
    elif variant.error_shape == "problem":
        media_type = "application/problem+json"
        body = to_json({"type": "about:blank", "title": phrase, "status": status, "detail": error.message})
    elif variant.error_shape == "html":
        title, media_type = f"{status} {phrase}", "text/html; charset=utf-8"
        page = f"<!DOCTYPE html>\n<html><head><title>{title}</title></head><body><h1>{title}</h1></body></html>\n"
        body = page.encode()
    elif variant.error_shape == "empty":
        return headers, b""
    return {**headers, "content-type": media_type}, body


_OURS: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
_OPAQUE: Final = frozenset(
    {"command_payload", "data_payload", "sensor_data", "metadata", "qr_info", "options", "source", "payload_schema"}
)
"""Members that belong to whoever sent them: nothing inside is a time of the service."""
_OTHER_TIMES: Final = frozenset({"from", "to", "start", "end", "time"})
_FORMATS: Final[Mapping[str, Callable[[datetime], str | int]]] = {
    "offset": lambda at: at.isoformat(timespec="milliseconds"),
    "epoch_s": lambda at: int(at.timestamp()),
    "epoch_ms": lambda at: round(at.timestamp() * 1000),
    "naive": lambda at: at.replace(tzinfo=None).isoformat(timespec="milliseconds"),
}


def write_times(variant: ServerVariant | None, value: Any) -> Any:
    """A JSON value of the service with its times in the variant's form."""
    write = None if variant is None else _FORMATS.get(variant.time_format)
    return value if write is None else _rewrite_times(value, write)


def _rewrite_times(value: Any, write: Callable[[datetime], str | int], name: str = "") -> Any:
    if isinstance(value, list):
        return [_rewrite_times(one, write) for one in value]
    if isinstance(value, dict):
        return {key: inner if key in _OPAQUE else _rewrite_times(inner, write, key) for key, inner in value.items()}
    is_time = isinstance(value, str) and (name.endswith("_at") or name in _OTHER_TIMES) and _OURS.fullmatch(value)
    return write(datetime.fromisoformat(value)) if is_time else value
