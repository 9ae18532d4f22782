"""The ASGI layer that answers an account by its variant (:mod:`simulator.service.variant`).

The service itself does the work: a request is rewritten into one that it takes, and its answer into the variant's. What
happens inside is therefore the same under every variant.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, get_args
from urllib.parse import parse_qsl, quote, unquote, urlencode

from fastapi import FastAPI
from pydantic import BaseModel
from pydantic_core import from_json, to_json
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agent.wire import paths
from agent.wire.command_states import CommandStatus
from agent.wire.instances import INSTANCE_HEADER
from agent.wire.limits import BODY_BYTES
from simulator.service.caller import caller_named, check_control, headers_of, is_console, is_local, key_row
from simulator.service.db import one
from simulator.service.errors import ApiError, invalid
from simulator.service.gate import CONTROL_PREFIX, PUBLIC, PUBLIC_PREFIXES, http_date, send_error
from simulator.service.http import Route
from simulator.service.variant import PAGE_SIZE_MAX, ServerVariant
from simulator.wire.base64url import from_base64url, to_base64url

if TYPE_CHECKING:
    from simulator.service.service import Service

BYPASS: Final = b"x-emulator-variant"
"""Request header: ``complete`` from this machine is answered by the service itself, to look at what is true."""
LIST_BYTES: Final = 32 * 1024 * 1024
"""A list that is cut into other pages than the service's is read whole, and refused beyond this."""
_NOWHERE: Final = "/.well-known/nothing"
"""The service says 404 there, once keys and quota are seen to."""
_NOWHERE_PUBLIC: Final = "/docs/nothing"
_JSON: Final = b"application/json"
_LIST: Final = ("GET", "/devices/{device_id}/commands")
_COMMANDS: Final = frozenset(
    {
        _LIST,
        ("POST", "/commands/send"),
        ("POST", "/devices/{device_id}/commands/{command_id}/result"),
        ("GET", "/devices/{device_id}/commands/{command_id}"),
    }
)
"""Endpoints that answer records of commands."""
_DISCOVERY: Final = ("GET", paths.DISCOVERY)
_EVENTS: Final = ("GET", "/commands/events")
_RECORDS: Final = "/database/runtime-data"
_RESULTS_TABLE: Final = "command_results"
_OF_EXTENSIONS: Final = frozenset({"ttl_seconds", "recorded_at"})
"""Members of bodies that the specification does not have."""
_PAGE_PARAMETER: Final = {
    "complete": "cursor",
    "cursor": "cursor",
    "offset": "offset",
    "page_number": "page",
    "next_url": "page",
    "link_header": "page",
}
"""The query parameter that leads to the next page, by way of paging."""
OWN_WORDS: Final = {
    CommandStatus.QUEUED: "PENDING",
    CommandStatus.DELIVERED: "SENT",
    CommandStatus.IN_PROGRESS: "RUNNING",
    CommandStatus.SUCCEEDED: "DONE",
    CommandStatus.FAILED: "ERROR",
    CommandStatus.REJECTED: "REFUSED",
    CommandStatus.EXPIRED: "LAPSED",
    CommandStatus.TIMED_OUT: "LOST",
    CommandStatus.CANCELED: "WITHDRAWN",
}

Header = tuple[bytes, bytes]


@dataclass(slots=True)
class Reply:
    """An answer that can still be changed.

    Attributes:
        headers: without Content-Type, Content-Length and Date, which are made when it is sent.
        value: the JSON value of the body; None where ``raw`` is the body.
        size_bytes: of the service's own text.
    """

    status: int
    headers: list[Header]
    value: Any = None
    raw: bytes = b""
    media_type: bytes = _JSON
    size_bytes: int = 0

    @property
    def is_list(self) -> bool:
        """Whether it is a list in the service's envelope."""
        return isinstance(self.value, dict) and self.value.keys() >= {"data", "next_cursor", "has_more"}

    def drop(self, *names: bytes) -> None:
        """Remove headers."""
        self.headers = [one for one in self.headers if one[0] not in names]

    def body(self) -> bytes:
        """The bytes of the body."""
        return self.raw if self.value is None else to_json(self.value)


@dataclass(slots=True)
class Exchange:
    """One request of an account with a variant, as it is asked of the service.

    Attributes:
        route: which answers it; None for no such path.
        ids: what stands for the path's parameters.
        asked: query parameters that the variant itself answers, such as ``page``.
        error: (error, message) that a 404 says instead.
    """

    service: Service
    variant: ServerVariant
    account: int
    scope: Scope
    method: str
    path: str
    query: list[tuple[str, str]]
    headers: list[Header]
    body: bytes
    route: Route | None = None
    ids: dict[str, str] = field(default_factory=dict)
    asked: dict[str, str] = field(default_factory=dict)
    is_handed_out: bool = False
    error: tuple[str, str] | None = None

    @property
    def endpoint(self) -> tuple[str, str]:
        """Method and template."""
        return ("GET" if self.method == "HEAD" else self.method), "" if self.route is None else self.route.path

    @property
    def value(self) -> Any:
        """The JSON value of the request's body; None when it is none."""
        try:
            return from_json(self.body) if self.body else None
        except ValueError:
            return None

    def replace_body(self, value: Any) -> None:
        """Send another JSON body."""
        self.body = to_json(value)
        self.headers = [one for one in self.headers if one[0] != b"content-length"]
        self.headers.append((b"content-length", b"%d" % len(self.body)))

    def parameter(self, name: str) -> str | None:
        """The first query parameter of this name."""
        return next((value for known, value in self.query if known == name), None)

    def inner_scope(self) -> Scope:
        """The request as it is asked of the service."""
        changed = {
            "method": self.method,
            "path": self.path,
            "raw_path": self.path.encode("latin-1"),
            "query_string": urlencode(self.query).encode(),
            "headers": self.headers,
            "headers_by_name": None,
        }
        return dict(self.scope) | changed


class VariantLayer:
    """Stands before the service.

    Args:
        app: the service, with keys and quota.
        inside: the same behind them, for what one request has to ask in several steps.
        service: whose accounts have variants.
    """

    def __init__(self, app: ASGIApp, inside: FastAPI, service: Service) -> None:
        self._app = app
        self._inside = inside
        self._service = service
        self._routes = [one for one in inside.routes if isinstance(one, Route)]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, or the server's start and end."""
        if scope["type"] != "http" or _is_outside(scope):
            await self._app(scope, receive, send)
            return
        account, variant = self._variant_of(scope)
        if variant is None:
            await self._app(scope, receive, send)
            return
        try:
            if self._is_bypassed(scope):
                await self._app(scope, receive, send)
                return
        except ApiError as error:
            await send_error(send, error)
            return
        body = await _read(receive)
        if body is not None:
            await self._answer(self._make(scope, variant, account, body), receive, send)

    def _variant_of(self, scope: Scope) -> tuple[int, ServerVariant | None]:
        """The account that a request names, and its variant; the first one where it names none."""
        row = key_row(self._service, scope)
        if row is None:
            caller = caller_named(self._service, scope)
            where = "ORDER BY row LIMIT 1" if caller is None else f"WHERE row = {caller.account}"
            row = one(self._service.db.sql, f"SELECT row AS account, variant FROM accounts {where}")
        if row is None or row["variant"] is None:
            return 0, None
        return row["account"], ServerVariant.model_validate_json(row["variant"])

    def _is_bypassed(self, scope: Scope) -> bool:
        if not is_local(scope):
            return False
        value = headers_of(scope).get(BYPASS)
        if value is None or not self._service.config.control:
            return is_console(self._service, scope)
        check_control(self._service, scope, needs_token=True)
        if value != b"complete":
            raise invalid("X-Emulator-Variant", "must be complete, or absent for the account's own variant")
        return True

    def _make(self, scope: Scope, variant: ServerVariant, account: int, body: bytes) -> Exchange:
        path = scope["raw_path"].decode("latin-1")
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        headers = list(scope["headers"])
        made = Exchange(self._service, variant, account, scope, scope["method"], path, query, headers, body)
        for route in self._routes:
            found = route.path_regex.fullmatch(path) if made.endpoint[0] in (route.methods or ()) else None
            if found:
                made.route = route
                made.ids = {name: unquote(value) for name, value in found.groupdict().items()}
                break
        return made

    async def _answer(self, exchange: Exchange, receive: Receive, send: Send) -> None:
        if exchange.endpoint == _EVENTS and exchange.variant.extensions:
            await self._app(exchange.inner_scope(), _Replay(exchange.body, receive), _rewritten_events(exchange, send))
            return
        for step in _BEFORE:
            step(exchange)
        scope = exchange.inner_scope()
        reply = await _ask(self._app, scope, exchange.body, receive)
        exchange.scope["caller"] = scope.get("caller")  # for the request log
        if reply is None:
            return
        is_list = reply.is_list
        if is_list and exchange.variant.paging != "complete":
            reply = await self._gather(exchange, scope, reply, receive)
            is_list = reply.is_list
            if is_list:
                _cut_page(exchange, reply)
        if is_list and exchange.is_handed_out:
            _hand_out(exchange, reply)
            await self._service.db.committed()
        _rewrite(exchange, reply, is_list=is_list)
        await _send(exchange, reply, b"" if reply.status in {204, 304} else reply.body(), send)

    async def _gather(self, exchange: Exchange, scope: Scope, reply: Reply, receive: Receive) -> Reply:
        """The whole list, page after page, without counting for the quota again."""
        query = [one for one in exchange.query if one[0] != "wait"]
        while (cursor := reply.value["next_cursor"]) is not None:
            raw_query = urlencode([*query, ("cursor", cursor)]).encode()
            more = await _ask(self._inside, {**scope, "query_string": raw_query}, exchange.body, receive)
            if more is None or not more.is_list:
                return more or Reply(503, [])
            reply.size_bytes += more.size_bytes
            if reply.size_bytes > LIST_BYTES:
                text = f"The list has more than {LIST_BYTES // 1024**2} MiB: set paging: complete, or ask for less."
                return Reply(500, [], {"error": "list_too_long", "message": text})
            reply.value = {**more.value, "data": reply.value["data"] + more.value["data"]}
        return reply


class _Replay:
    """Brings a body that was read already, then what comes after it."""

    def __init__(self, body: bytes, receive: Receive) -> None:
        self._message: Message | None = {"type": "http.request", "body": body, "more_body": False}
        self._receive = receive

    async def __call__(self) -> Message:
        message, self._message = self._message, None
        return message or await self._receive()


async def _ask(app: ASGIApp, scope: Scope, body: bytes, receive: Receive) -> Reply | None:
    """The service's answer; None when the caller has gone."""
    start: Message = {}
    parts: list[bytes] = []

    async def keep(message: Message) -> None:
        start.update(message) if message["type"] == "http.response.start" else parts.append(message.get("body", b""))

    await app(scope, _Replay(body, receive), keep)
    if not start:
        return None
    raw = b"".join(parts)
    media_type = next((value for name, value in start["headers"] if name == b"content-type"), _JSON)
    own = [one for one in start["headers"] if one[0] not in {b"content-type", b"content-length", b"date"}]
    if raw and media_type.startswith(_JSON):
        return Reply(start["status"], own, from_json(raw), size_bytes=len(raw))
    return Reply(start["status"], own, raw=raw, media_type=media_type)


async def _read(receive: Receive) -> bytes | None:
    """The request's body, cut after one byte too many; None when the caller has gone."""
    body = b""
    while True:
        message: Any = await receive()
        if message["type"] == "http.disconnect":
            return None
        part: bytes = message.get("body", b"")
        body = (body + part)[: BODY_BYTES + 1]
        if not message.get("more_body"):
            return body


def _is_outside(scope: Scope) -> bool:
    """Documents, pages and partner access are the same for everybody."""
    path: str = scope["path"]
    is_public = (path in PUBLIC and path != paths.DISCOVERY) or path.startswith((CONTROL_PREFIX, *PUBLIC_PREFIXES))
    return is_public or scope["method"] == "OPTIONS"


async def _send(exchange: Exchange, reply: Reply, body: bytes, send: Send) -> None:
    headers = [*reply.headers, (b"date", http_date(exchange.service.clock.now_ms() // 1000))]
    if body:
        headers.append((b"content-type", reply.media_type))
    if reply.status not in {204, 304}:
        headers.append((b"content-length", b"%d" % len(body)))
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if exchange.method == "HEAD" else body})


# --- what changes a request ---------------------------------------------------------------------------------------


def _hide_extensions(exchange: Exchange) -> None:
    """What the server does not have beyond the specification: endpoints, headers, parameters and members of bodies."""
    variant, route = exchange.variant, exchange.route
    extension = None if route is None else (route.openapi_extra or {}).get("x-extension")
    if extension == "command-results" and variant.results != "endpoint":
        exchange.path = _NOWHERE
    if variant.extensions or route is None:
        return
    if extension is not None:
        exchange.path = _NOWHERE_PUBLIC if exchange.endpoint == _DISCOVERY else _NOWHERE
    absent = {INSTANCE_HEADER.lower().encode(), b"idempotency-key"}
    exchange.headers = [one for one in exchange.headers if one[0] not in absent]
    is_list = "cursor" in route.query_names[0]
    exchange.query = [one for one in exchange.query if is_list and one[0] == _PAGE_PARAMETER.get(variant.paging)]
    value, known = exchange.value, _known_members(route)
    if isinstance(value, list):
        exchange.replace_body("an array")  # which the service refuses in its own words
    elif isinstance(value, dict) and known is not None:
        exchange.replace_body({name: one for name, one in value.items() if name in known - _OF_EXTENSIONS})


def _known_members(route: Route) -> frozenset[str] | None:
    """The members of a body; None where any may come."""
    models = [] if route.body_field is None else list(_models_in(route.body_field.field_info.annotation))
    if not models or any(model.model_config.get("extra") == "allow" for model in models):
        return None
    return frozenset(one.alias or name for model in models for name, one in model.model_fields.items())


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in get_args(annotation) for model in _models_in(part)]


def _hide_results(exchange: Exchange) -> None:
    """The table of results is not there."""
    if exchange.variant.results != "none":
        return
    value = exchange.value if exchange.endpoint == ("POST", _RECORDS) else None
    name = value.get("table_name") if isinstance(value, dict) else None
    if exchange.endpoint == ("GET", _RECORDS):
        name = exchange.parameter("table_name")
    if name == _RESULTS_TABLE:
        exchange.path = _NOWHERE
        exchange.error = ("table_not_found", f"There is no table {_RESULTS_TABLE!r}.")


def _find_command(exchange: Exchange) -> None:
    """A number in the path becomes the id that the service knows."""
    number = exchange.ids.get("command_id", "")
    if exchange.variant.id_type != "integer" or exchange.route is None or not number.isdecimal() or len(number) > 18:
        return
    query = "SELECT id FROM commands WHERE row = ? AND account = ?"
    found = one(exchange.service.db.sql, query, (int(number), exchange.account))
    if found is not None:
        ids = {**exchange.ids, "command_id": found["id"]}
        exchange.path = re.sub(r"{(\w+)}", lambda part: quote(ids[part[1]], safe=""), exchange.route.path)


def _choose_commands(exchange: Exchange) -> None:
    """Which commands are listed, in which order."""
    variant, status = exchange.variant, exchange.parameter("status")
    if exchange.endpoint != _LIST or exchange.method != "GET":
        return
    order = None
    if variant.command_list == "once" and status in {None, "open"}:
        exchange.is_handed_out = True
        # The service's own cursor would leave out what it stands for: the rest is all that is still queued.
        dropped = {"status", "cursor"} if variant.paging == "complete" else {"status"}
        exchange.query = [one for one in exchange.query if one[0] not in dropped] + [("status", "queued")]
        order = "asc" if status == "open" else "desc"
    elif status is None and variant.command_list != "everything":
        exchange.query.append(("status", "open"))
        order = "desc"
    if order is not None and exchange.parameter("order") is None:
        exchange.query.append(("order", order))


def _choose_page(exchange: Exchange) -> None:
    """The page that is asked for; the service is asked for all, unless its own pages do."""
    paging = exchange.variant.paging
    if exchange.route is None or "cursor" not in exchange.route.query_names[0]:
        return
    if paging == "complete":
        if exchange.parameter("limit") is None and exchange.variant.page_size != 100:
            exchange.query.append(("limit", str(exchange.variant.page_size)))
        return
    for name in {_PAGE_PARAMETER.get(paging, "limit"), "limit"}:
        value = exchange.parameter(name)
        if value is not None:
            exchange.asked[name] = value
    exchange.query = [one for one in exchange.query if one[0] not in exchange.asked]
    first = _first(exchange)
    if first != 0:
        exchange.headers = [one for one in exchange.headers if one[0] != b"if-none-match"]
    if first is None or _size(exchange) is None:
        exchange.query.append(("limit", "none"))  # which the service refuses in its own words
    else:
        exchange.query.append(("limit", str(PAGE_SIZE_MAX)))


_BEFORE: Final = (
    _hide_extensions,
    _hide_results,
    _find_command,
    _choose_commands,
    _choose_page,
)
"""What changes the request, in this order."""


# --- what changes an answer ---------------------------------------------------------------------------------------


def _cut_page(exchange: Exchange, reply: Reply) -> None:
    """The page that was asked for, out of the whole list, and what leads on from it."""
    items, paging = reply.value["data"], exchange.variant.paging
    reply.drop(b"link")
    if paging == "none":
        reply.value = {"data": items[: _limit(exchange)]}
        return
    first, size = _first(exchange) or 0, _size(exchange) or 1
    if first:
        reply.drop(b"etag")
    # What the pages before have handed out is listed no more.
    begin, total = (0, first + len(items)) if exchange.is_handed_out else (first, len(items))
    number, pages = first // size + 1, max(1, -(-total // size))
    parameter = _PAGE_PARAMETER[paging]
    place = {"cursor": to_base64url(b"from:%d" % (first + size)), "offset": str(first + size), "page": str(number + 1)}
    following = _url(exchange, parameter, place[parameter]) if first + size < total else None
    reply.value = {"data": items[begin : begin + size]}
    if paging == "cursor":
        reply.value["next_cursor"] = None if following is None else place["cursor"]
    elif paging == "next_url":
        reply.value["next"] = following
    elif paging == "page_number":
        reply.value |= {"page": number, "per_page": size, "total": total, "total_pages": pages}
    elif paging == "offset":
        reply.value |= {"offset": first, "limit": size, "total": total}
    is_bare = exchange.variant.list_shape == "bare"
    if following is not None and (paging == "link_header" or is_bare):
        reply.headers.append((b"link", f'<{following}>; rel="next"'.encode()))


def _first(exchange: Exchange) -> int | None:
    """How many items the pages before have; None for a parameter that cannot be."""
    asked = exchange.asked
    if "cursor" in asked:
        word, _, number = (from_base64url(asked["cursor"].rstrip("=")) or b"").decode("latin-1").partition(":")
        return _whole(number) if word == "from" else None
    if "offset" in asked:
        return _whole(asked["offset"])
    page, size = _whole(asked.get("page", "1")), _size(exchange)
    return (page - 1) * size if page and size else None


def _size(exchange: Exchange) -> int | None:
    return _limit(exchange) if "limit" in exchange.asked else exchange.variant.page_size


def _limit(exchange: Exchange) -> int | None:
    number = _whole(exchange.asked.get("limit", ""))
    return min(number, PAGE_SIZE_MAX) if number else None


def _whole(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def _url(exchange: Exchange, parameter: str, place: str) -> str:
    """The list's own address at another place, whole where the request says which host it was sent to."""
    query = parse_qsl(exchange.scope["query_string"].decode("latin-1"), keep_blank_values=True)
    kept = [one for one in query if exchange.variant.extensions and one[0] not in {"cursor", "page", "offset", "wait"}]
    host = next((value for name, value in exchange.headers if name == b"host"), None)
    origin = "" if host is None else f"{exchange.scope['scheme']}://{host.decode('latin-1')}"
    return f"{origin}{exchange.scope['raw_path'].decode('latin-1')}?{urlencode([*kept, (parameter, place)])}"


def _hand_out(exchange: Exchange, reply: Reply) -> None:
    """What is on the page is delivered, and never listed again."""
    service, now_ms = exchange.service, exchange.service.clock.now_ms()
    with service.db.write() as sql:
        taken = sql.execute(
            "UPDATE commands SET status = 'delivered', delivered_at = ? WHERE status = 'queued' AND account = ? "
            "AND id IN (SELECT value FROM json_each(?)) RETURNING id, device",
            (now_ms, exchange.account, to_json([record["id"] for record in reply.value["data"]]).decode()),
        ).fetchall()
    for device in {row["device"] for row in taken}:
        service.saw(device)
        service.changed(device)
    # Another request may have been faster with one of them.
    ids = {row["id"] for row in taken}
    reply.value["data"] = [one for one in reply.value["data"] if one["id"] in ids]


def _numbers(exchange: Exchange, records: list[dict[str, Any]]) -> dict[str, int]:
    """Id -> the number in its place; empty where ids are no numbers."""
    if exchange.variant.id_type != "integer":
        return {}
    query = "SELECT id, row FROM commands WHERE id IN (SELECT value FROM json_each(?))"
    ids = to_json([record["id"] for record in records]).decode()
    return {row["id"]: row["row"] for row in exchange.service.db.sql.execute(query, (ids,))}


def _rewrite(exchange: Exchange, reply: Reply, *, is_list: bool) -> None:
    """Bring the answer into the variant's form."""
    variant = exchange.variant
    is_good = 200 <= reply.status < 300 and reply.value is not None
    if not variant.extensions:
        reply.headers = [one for one in reply.headers if b"ratelimit" not in one[0]]
    if exchange.endpoint in _COMMANDS and is_good:
        records = reply.value["data"] if is_list else [reply.value]
        numbers = _numbers(exchange, records)
        shown = [_command(variant, record, numbers) for record in records]
        if exchange.endpoint == ("POST", "/commands/send"):
            _relocate(variant, reply, records[0], numbers)
        reply.value = {**reply.value, "data": shown} if is_list else shown[0]
    if exchange.endpoint == _DISCOVERY and is_good and variant.results != "endpoint":
        reply.value["extensions"].remove("command-results")
    if is_good:
        reply.value = _write_times(variant, reply.value)
    if is_list:
        _shape_list(exchange, reply)
    elif reply.status >= 400:
        _shape_error(exchange, reply)


def _command(variant: ServerVariant, record: dict[str, Any], numbers: Mapping[str, int]) -> dict[str, Any]:
    shown = {name: value for name, value in record.items() if name != "id"}
    command_id = numbers.get(record["id"], record["id"])
    if variant.id_name != "none":
        shown = {variant.id_name: command_id, **shown}
    if variant.status_words == "none":
        del shown["status"], shown["status_reason"]
    elif variant.status_words == "own":
        shown["status"] = OWN_WORDS[CommandStatus(record["status"])]
    elif variant.status_words == "number":
        shown["status"] = list(OWN_WORDS).index(CommandStatus(record["status"]))
    return shown


def _relocate(variant: ServerVariant, reply: Reply, record: dict[str, Any], numbers: Mapping[str, int]) -> None:
    """``Location`` points at the command where a client can follow it."""
    reply.drop(b"location")
    if variant.id_name != "none" and variant.extensions and variant.results == "endpoint":
        place = paths.segment(str(numbers.get(record["id"], record["id"])))
        reply.headers.append((b"location", f"{paths.device_commands(record['device_id'])}/{place}".encode()))


def _shape_list(exchange: Exchange, reply: Reply) -> None:
    """The envelope around the items."""
    rest = dict(reply.value)
    items, shape = rest.pop("data"), exchange.variant.list_shape
    named = exchange.path.rsplit("/", 1)[-1].replace("-", "_")
    if shape == "bare":
        reply.value = items
        return
    reply.value = {named if shape == "named" else shape: items, **rest}


def _shape_error(exchange: Exchange, reply: Reply) -> None:
    """The body of an error."""
    if not isinstance(reply.value, dict) or "error" not in reply.value:
        return
    if exchange.error is not None and reply.status == 404:
        reply.value = {"error": exchange.error[0], "message": exchange.error[1]}
    shape, phrase = exchange.variant.error_shape, HTTPStatus(reply.status).phrase
    error, message = reply.value["error"], reply.value["message"]
    if shape == "nested":
        reply.value = {"error": {"code": error, "message": message}, "status": reply.status}
    elif shape == "problem":
        reply.value = {"type": "about:blank", "title": phrase, "status": reply.status, "detail": message}
        reply.media_type = b"application/problem+json"
    elif shape == "html":
        title = f"{reply.status} {phrase}"
        page = f"<!DOCTYPE html>\n<html><head><title>{title}</title></head><body><h1>{title}</h1></body></html>\n"
        reply.value, reply.raw, reply.media_type = None, page.encode(), b"text/html; charset=utf-8"
    elif shape == "empty":
        reply.value = None


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


def _write_times(variant: ServerVariant, value: Any) -> Any:
    """A JSON value of the service with its times in the variant's form."""
    write = _FORMATS.get(variant.time_format)
    return value if write is None else _rewrite_times(value, write)


def _rewrite_times(value: Any, write: Callable[[datetime], str | int], name: str = "") -> Any:
    if isinstance(value, list):
        return [_rewrite_times(one, write) for one in value]
    if isinstance(value, dict):
        return {key: inner if key in _OPAQUE else _rewrite_times(inner, write, key) for key, inner in value.items()}
    is_time = isinstance(value, str) and (name.endswith("_at") or name in _OTHER_TIMES) and _OURS.fullmatch(value)
    return write(datetime.fromisoformat(value)) if is_time else value


def _rewritten_events(exchange: Exchange, send: Send) -> Send:
    """Where the service sends its stream of commands to; each of its pieces holds whole events."""

    def rewrite(line: bytes) -> bytes:
        if not line.startswith(b"data: "):
            return line
        record = from_json(line.removeprefix(b"data: "))
        shown = _command(exchange.variant, record, _numbers(exchange, [record]))
        return b"data: " + to_json(_write_times(exchange.variant, shown))

    async def pass_on(message: Message) -> None:
        if message["type"] == "http.response.body" and message.get("body"):
            message = {**message, "body": b"\n".join(rewrite(line) for line in message["body"].split(b"\n"))}
        await send(message)

    return pass_on
