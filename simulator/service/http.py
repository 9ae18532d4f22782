"""What every endpoint has in common: strict JSON, no unknown parameters, idempotency, an answer after the commit."""

from __future__ import annotations

import hashlib
import json
import logging
import sqlite3
import warnings
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, TypeVar, get_args, get_origin, get_type_hints
from urllib.parse import parse_qsl, unquote

from fastapi import APIRouter, Depends, Request, Response
from fastapi.exceptions import HTTPException, RequestValidationError
from fastapi.params import Query
from fastapi.routing import APIRoute
from pydantic import BaseModel
from pydantic.warnings import UnsupportedFieldAttributeWarning
from pydantic_core import to_json
from starlette.requests import ClientDisconnect
from starlette.routing import Match
from starlette.types import Receive, Scope, Send

from agent.errors import InvalidMessage
from agent.wire.encoding import parse_json
from agent.wire.limits import BODY_BYTES, IDEMPOTENCY_S
from simulator.service import variant_answers
from simulator.service.caller import Caller, authenticate, headers_of
from simulator.service.db import Database, one
from simulator.service.errors import ApiError, conflict, invalid, invalid_all, too_large, unavailable
from simulator.service.gate import CONTROL_PREFIX

if TYPE_CHECKING:
    from simulator.service.service import Service
    from simulator.service.variant import ServerVariant

log = logging.getLogger(__name__)

Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])

_KEY_CHARACTERS: Final = 255
_QUERY_PARAMETERS: Final = 50
_JSON_TYPES: Final = ("application/json",)


class Json(Response):
    """An answer with a JSON body."""

    media_type = "application/json"
    is_list = False
    """Whether it is a page of a list, in the service's envelope."""

    def __init__(self, value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(to_json(value), status, headers)


def created(value: Any, location: str) -> Json:
    """201 with the resource and where it is."""
    return Json(value, 201, {"Location": location})


def no_content() -> Response:
    """204."""
    return Response(status_code=204)


class Call:
    """A request as its handler sees it."""

    __slots__ = ("caller", "request", "service", "variant")

    def __init__(self, request: Request) -> None:
        self.request = request
        self.service: Service = request.scope["service"]
        self.caller: Caller | None = request.scope["caller"]
        self.variant: ServerVariant | None = request.scope["variant"]
        """How the account is answered; None as the service itself does."""

    @property
    def account(self) -> int:
        """The row of the caller's account; only where the path needs keys."""
        if self.caller is None:
            raise RuntimeError(f"{self.request.url.path} is asked without an account")
        return self.caller.account

    def check_caller(self) -> None:
        """After a wait: the caller's account, key or token may have ended meanwhile.

        Raises:
            ApiError: 401.
        """
        if self.caller is not None:
            self.request.scope.pop("key_row", None)
            authenticate(self.service, self.request.scope)

    @property
    def db(self) -> Database:
        """The storage."""
        return self.service.db

    @property
    def now_ms(self) -> int:
        """This instant by the service's clock, milliseconds since the epoch."""
        return self.service.clock.now_ms()


async def _get_call(request: Request) -> Call:
    call: Call = request.scope["call"]  # the route has made it
    return call


CallDep = Annotated[Call, Depends(_get_call)]
"""Declare a parameter ``call: CallDep`` to have the request's :class:`Call`."""


class _StrictRequest(Request):
    """A request whose JSON is read by :func:`agent.wire.encoding.parse_json`."""

    async def body(self) -> bytes:
        """The body.

        Raises:
            ApiError: 413, 415.
        """
        if not hasattr(self, "_body"):
            limit = int(self.scope.get("body_limit", BODY_BYTES))
            self._check_headers(limit)
            body, is_whole = b"", False
            while not is_whole:
                message = await self.receive()
                if message["type"] == "http.disconnect":
                    raise ClientDisconnect
                body += message.get("body", b"")
                if len(body) > limit:
                    raise too_large("The body", limit)
                is_whole = not message.get("more_body")
            self._body = body
        return self._body

    async def json(self) -> Any:
        """The body as a JSON value; without a content type it is taken as JSON.

        Raises:
            ApiError: 400: it is not JSON as RFC 8259 has it, or two readers would read it differently.
        """
        if not hasattr(self, "_json"):
            raw = await self.body()
            try:
                value = parse_json(raw)
            except InvalidMessage as exc:
                raise invalid("body", str(exc) if raw else "the body is empty; it must be a JSON object") from None
            body_filter = self.scope.get("body_filter")
            self._json = value if body_filter is None else body_filter(value)
        return self._json

    def _check_headers(self, limit: int) -> None:
        headers = headers_of(self.scope)
        kind, size = headers.get(b"content-type"), headers.get(b"content-length")
        takes = self.scope.get("body_types", _JSON_TYPES)
        if kind is None and self.scope["path"].startswith(CONTROL_PREFIX):
            kind = b""  # a web page of any origin may send a body without a type
        if kind is not None and not _is_of(kind.decode("latin-1"), takes):
            text = f"The body must say what it is: send Content-Type: {' or '.join(takes)}."
            raise ApiError(415, "unsupported_media_type", text)
        if size is not None and int(size) > limit:
            raise too_large("The body", limit)
        if headers.get(b"content-encoding", b"identity").lower() != b"identity":
            raise ApiError(415, "unsupported_media_type", "The body must be sent without Content-Encoding.")


@lru_cache(maxsize=64)
def _is_of(content_type: str, kinds: tuple[str, ...]) -> bool:
    kind, _, parameters = content_type.lower().partition(";")
    if kind.strip() not in kinds:
        return False
    name, _, charset = parameters.strip().partition("=")
    return name.strip() != "charset" or charset.strip(' "') in {"utf-8", "utf8"}


def hot(answer: Callable[[Call], Awaitable[Response]]) -> Callable[[Endpoint], Endpoint]:
    """Mark a handler that is asked most, and say how it is called without FastAPI.

    FastAPI documents it as any other. What it would resolve anew for each request, ``answer`` reads from the call.
    """

    def mark(endpoint: Endpoint) -> Endpoint:
        endpoint.answer_hot = answer  # type: ignore[attr-defined]
        return endpoint

    return mark


class Route(APIRoute):
    """A route whose handler runs within one turn of the loop, and whose answer leaves after the commit."""

    bearer_scope: ClassVar[str | None] = None
    """What a bearer token needs for it."""
    free_query: ClassVar[bool] = False
    """Whether it reads its query string itself."""
    replayed: ClassVar[bool] = True
    """Whether a POST takes ``Idempotency-Key``."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **declared: Any) -> None:
        super().__init__(path, endpoint, **declared)
        self.is_hot = hasattr(endpoint, "answer_hot")
        if self.is_hot:
            self.app = self._answer_hot

    async def _answer_hot(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = await self._run(_StrictRequest(scope, receive), self._call_hot)
        await response(scope, receive, send)

    async def _call_hot(self, request: Request) -> Response:
        response: Response = await self.endpoint.answer_hot(request.scope["call"])  # type: ignore[attr-defined]
        return response

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """As Starlette's; a GET is a HEAD as well."""
        match, child_scope = super().matches(scope)
        return (Match.FULL if match is Match.PARTIAL and self._is_head(scope) else match), child_scope

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As Starlette's; see :meth:`matches`."""
        await (self.app if self._is_head(scope) else super().handle)(scope, receive, send)

    def _is_head(self, scope: Scope) -> bool:
        return scope["method"] == "HEAD" and "GET" in (self.methods or ())

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """As FastAPI's, with what this module adds."""
        handle = super().get_route_handler()
        if self.body_field is not None:
            # Models of ours are built on first use, and FastAPI hides this warning only while it makes a route.
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UnsupportedFieldAttributeWarning)
                self.body_field.validate(None, loc=("body",))
        self.query_names = query_names(self.endpoint)

        async def run(request: Request) -> Response:
            return await self._run(_StrictRequest(request.scope, request.receive), handle)

        return run

    async def _run(self, request: Request, handle: Callable[[Request], Coroutine[Any, Any, Response]]) -> Response:
        call = request.scope["call"] = Call(request)
        caller = call.caller
        if caller is not None and caller.scopes is not None:
            _check_scope(caller.scopes, self.bearer_scope)
        if call.variant is not None:
            variant_answers.prepare(request, self, self.query_names[0], call.variant)
        if request.scope["query_string"] and not self.free_query:
            _check_query(request, self.query_names)
        for name, value in request.path_params.items():
            request.path_params[name] = _decoded(value)
        key = headers_of(request.scope).get(b"idempotency-key")
        try:
            if key is not None and caller is not None and request.method == "POST" and self.replayed:
                response = await _once(call, key.decode("latin-1"), handle)
            else:
                response = await handle(request)
                await call.db.committed()
            if call.variant is not None:
                variant_answers.finish(call, call.variant, response, is_list=getattr(response, "is_list", False))
            return response
        except (HTTPException, RequestValidationError, ClientDisconnect):
            raise
        except sqlite3.Error as exc:
            log.error("the storage could not be read: %s", exc)
            text = "The service could not read its storage; its log says why."
            raise unavailable("storage_unavailable", text, 1) from None
        except Exception:
            log.exception("%s %s failed", request.method, request.url.path)
            text = "The service failed on this request; its log says why."
            raise ApiError(500, "internal_error", text) from None


def query_names(endpoint: Callable[..., Any]) -> tuple[frozenset[str], bool]:
    """The names of a handler's query parameters, and whether its model takes others as well."""
    names: set[str] = set()
    open_ended = False
    for name, hint in get_type_hints(endpoint, include_extras=True).items():
        kind, *marks = get_args(hint) if get_origin(hint) is Annotated else (hint,)
        mark = next((one for one in marks if isinstance(one, Query)), None)
        if mark is None:
            continue
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            names.update(field.alias or member for member, field in kind.model_fields.items())
            open_ended = open_ended or kind.model_config.get("extra") == "allow"
        else:
            names.add(mark.alias or name)
    return frozenset(names), open_ended


def _check_query(request: Request, known: tuple[frozenset[str], bool]) -> None:
    """Refuse unknown parameters: a misspelt filter that is ignored would look as if it had been applied."""
    names, open_ended = known
    raw: bytes = request.scope["query_string"]
    try:
        pairs = parse_qsl(raw.decode("ascii"), True, errors="strict", max_num_fields=_QUERY_PARAMETERS)
    except ValueError:
        raise invalid("query", "the query string is not valid percent-encoded UTF-8") from None
    problems: list[tuple[str, str]] = []
    seen: set[str] = set()
    for name, value in pairs:
        if "\0" in name + value:
            problems.append((name.replace("\0", "?"), "must not contain NUL"))
        elif name not in names and not open_ended:
            listed = ", ".join(sorted(names)) or "none"
            problems.append((name, f"unknown query parameter; this path has: {listed}"))
        elif name in seen:
            problems.append((name, "given more than once"))
        seen.add(name)
    if problems:
        raise invalid_all(problems)


def _check_scope(held: frozenset[str], needed: str | None) -> None:
    if needed is None or needed not in held:
        challenge = f'Bearer realm="device-service", error="insufficient_scope", scope="{needed or ""}"'
        text = f"The access token lacks the scope {needed}." if needed else "This path takes no access token."
        raise ApiError(403, "insufficient_scope", text, headers={"WWW-Authenticate": challenge})


def _decoded(value: str) -> str:
    try:
        text = unquote(value, errors="strict")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise ApiError(404, "not_found", "The path holds an id that is not UTF-8 text.")
    return text


async def _once(call: Call, key: str, handle: Callable[[Request], Coroutine[Any, Any, Response]]) -> Response:
    """Carry it out, or return the answer of the first request with this key (extension ``idempotency-key``)."""
    request, service, account = call.request, call.service, call.account
    if not (key.isascii() and key.isprintable() and 0 < len(key) <= _KEY_CHARACTERS):
        raise invalid("Idempotency-Key", f"must be 1 to {_KEY_CHARACTERS} visible ASCII characters")
    body = await request.body()
    fingerprint = hashlib.sha256(request.scope["path"].encode() + b"\0" + body).digest()
    select = "SELECT * FROM stored_answers WHERE account = ? AND idempotency_key = ? AND created_at > ?"
    row = one(call.db.sql, select, (account, key, call.now_ms - IDEMPOTENCY_S * 1000))
    if row is not None:
        if row["fingerprint"] != fingerprint:
            text = "This Idempotency-Key was used for another path or body; use a new key for a new request."
            raise ApiError(422, "idempotency_key_reused", text)
        await call.db.committed()
        stored = Response(row["body"], row["status"], json.loads(row["headers"]))
        stored.headers["Idempotent-Replayed"] = "true"
        return stored
    if (account, key) in service.running_keys:
        text = "A request with this Idempotency-Key still runs; send it again in a second."
        error = conflict("idempotency_key_in_use", text)
        error.headers = {"Retry-After": "1"}
        raise error
    service.running_keys.add((account, key))
    try:
        response = await handle(request)
        headers = {name: value for name, value in response.headers.items() if name != "content-length"}
        with call.db.write() as sql:
            sql.execute(
                "INSERT OR REPLACE INTO stored_answers VALUES (?, ?, ?, ?, ?, ?, ?)",
                (account, key, fingerprint, response.status_code, json.dumps(headers), response.body, call.now_ms),
            )
        await call.db.committed()
    finally:
        service.running_keys.discard((account, key))
    return response


def Router(tag: str, scope: str | None = None, *, free_query: bool = False, replayed: bool = True) -> APIRouter:
    """A router for endpoints of one group.

    Args:
        tag: of the group, in the document.
        scope: what a bearer token needs; None where none is taken.
        free_query: its endpoints read their query strings themselves.
        replayed: a POST takes ``Idempotency-Key``: its answer is stored. Not where an answer holds secrets.
    """
    route_class = type("Route", (Route,), {"bearer_scope": scope, "free_query": free_query, "replayed": replayed})
    return APIRouter(
        route_class=route_class,
        tags=[tag],
        strict_content_type=False,
        generate_unique_id_function=lambda route: route.name,
    )


def extends(extension: str) -> dict[str, Any]:
    """``openapi_extra`` of an endpoint that goes beyond the specification."""
    return {"x-extension": True, "x-extension-name": extension}


class ErrorDetail(BaseModel):
    """One problem of a body or a query."""

    field: str
    issue: str


class ErrorBody(BaseModel):
    """The error body (specification, "Error body")."""

    error: str
    message: str
    details: list[ErrorDetail] | None = None


def answers(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """``responses`` of an endpoint: these errors, beside those that every endpoint has."""
    return {status: {"model": ErrorBody} for status in statuses}
