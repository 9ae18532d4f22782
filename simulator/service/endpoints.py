"""How an endpoint is declared, and how declarations become routes. The OpenAPI document is made of the same ones."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final
from urllib.parse import unquote

from starlette.convertors import Convertor, register_url_convertor
from starlette.routing import Route, Router
from starlette.types import Lifespan, Receive, Scope, Send

from simulator.service.addresses import CONTROL_PREFIX
from simulator.service.answers import Answer, send_answer
from simulator.service.call import Call
from simulator.service.gate import CALLER, EPOCH, RESPONSE_HEADERS
from simulator.service.http_errors import CallerGone, HttpError
from simulator.service.matching import PathTemplates
from simulator.service.service import Service

Handler = Callable[[Call], Awaitable[Answer]]

JSON: Final = "application/json"
FORM: Final = "application/x-www-form-urlencoded"


@dataclass(frozen=True, slots=True)
class Parameter:
    """A query or header parameter, for the document."""

    name: str
    description: str
    schema: dict[str, Any]
    place: str = "query"
    extension: str | None = None
    required: bool = False


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer of an endpoint, for the document.

    Attributes:
        status: HTTP status.
        description: when it comes.
        body: the record's type; None for no body, :data:`ERROR` for the error body.
        listed: the body is the list envelope around ``body``.
        located: a ``Location`` header comes with it.
        media_type: of the body; without a ``body`` and other than JSON it is any text.
    """

    status: int
    description: str
    body: Any = None
    listed: bool = False
    located: bool = False
    media_type: str = JSON


ERROR: Final = "error"
"""As :attr:`Reply.body`: the error body."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One method of one path.

    Attributes:
        path: template with ``{name}`` for parameters.
        body: types that the JSON body may have.
        form: the body may be a form as well.
        raw: media types of a body that is bytes and no JSON; its own 413 and 415 stand in ``replies``.
        replies: what it answers beside 400, 401, 429, 500 and 503, which every endpoint with keys may; beside 404 for
            an id that is no text; beside 413 and 415 where there is a body.
        parameters: of the query and the headers. Path parameters stand in ``path``.
        extension: the extension it belongs to; None when the specification has it.
        public: needs no keys.
        scope: the scope of a bearer token that does instead of the keys; None when only the keys do.
        replayed: of a POST: whether an ``Idempotency-Key`` has its answer stored and replayed.
    """

    method: str
    path: str
    handler: Handler
    name: str
    summary: str
    tag: str
    replies: tuple[Reply, ...]
    body: tuple[Any, ...] = ()
    form: bool = False
    raw: tuple[str, ...] = ()
    parameters: tuple[Parameter, ...] = field(default=())
    extension: str | None = None
    public: bool = False
    scope: str | None = None
    replayed: bool = True


def scoped(scope: str, endpoints: Sequence[Endpoint]) -> tuple[Endpoint, ...]:
    """The endpoints of a group, open to bearer tokens with this scope."""
    return tuple(replace(endpoint, scope=scope) for endpoint in endpoints)


class _Segment(Convertor[str]):
    """One segment of a path, decoded after the path was split, so that an id may hold an encoded slash."""

    regex = "[^/]+"

    def convert(self, value: str) -> str:
        """Percent-encoded text -> text."""
        if "%" not in value:
            return value
        try:
            decoded = unquote(value, errors="strict")
        except UnicodeDecodeError:
            decoded = "\0"
        if "\0" in decoded:
            raise HttpError(404, "not_found", "The path holds an id that is not UTF-8 text.")
        return decoded

    def to_string(self, value: str) -> str:
        """Not needed: links are built by ``agent.wire.paths``."""
        return value


register_url_convertor("segment", _Segment())


class _Path:
    """The endpoints of one path, by method: a plain ASGI application."""

    __slots__ = ("_allow", "_handlers", "_reads_query", "_scopes", "_service")

    def __init__(self, service: Service, endpoints: Sequence[Endpoint]) -> None:
        self._service = service
        self._handlers = {endpoint.method: endpoint.handler for endpoint in endpoints}
        self._scopes = {endpoint.method: endpoint.scope for endpoint in endpoints if not endpoint.public}
        if "GET" in self._handlers:
            self._handlers["HEAD"] = self._handlers["GET"]
            if "GET" in self._scopes:
                self._scopes["HEAD"] = self._scopes["GET"]
        # A handler that takes a query parameter refuses those that it does not know; for the others it is done here.
        self._reads_query = {
            endpoint.method
            for endpoint in endpoints
            if endpoint.public or any(parameter.place == "query" for parameter in endpoint.parameters)
        }
        self._allow = ", ".join(sorted(self._handlers)).encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request to this path."""
        handler = self._handlers.get(scope["method"])
        if handler is None:
            raise HttpError(
                405,
                "method_not_allowed",
                f"This path has: {self._allow.decode()}.",
                headers=((b"allow", self._allow),),
            )
        caller = scope.get(CALLER)
        if caller is not None and caller.scopes is not None:
            self._check_scope(scope["method"], caller.scopes)
        call = Call(self._service, scope, receive)
        if scope["query_string"] and scope["method"] not in self._reads_query and scope["method"] != "HEAD":
            call.query(frozenset())
        try:
            answer = await handler(call)
            if scope[EPOCH] != self._service.epochs.number:
                await call.check_epoch()
        except CallerGone:
            return
        await send_answer(send, answer, scope[RESPONSE_HEADERS])

    def _check_scope(self, method: str, held: frozenset[str]) -> None:
        needed = self._scopes.get(method)
        if method not in self._scopes or needed in held:
            return
        challenge = 'Bearer realm="device-service", error="insufficient_scope"'
        if needed is None:
            message = "This takes the key pair, not a bearer token."
        else:
            message = f"This needs the scope {needed}."
            challenge += f', scope="{needed}"'
        raise HttpError(403, "insufficient_scope", message, headers=((b"www-authenticate", challenge.encode()),))


class Paths:
    """All paths. One without parameters is found by a look-up; the others go through starlette's router."""

    def __init__(self, service: Service, endpoints: Sequence[Endpoint], lifespan: Lifespan[Any]) -> None:
        by_path: dict[str, list[Endpoint]] = {}
        for endpoint in endpoints:
            by_path.setdefault(endpoint.path, []).append(endpoint)
        apps = {path: _Path(service, group) for path, group in by_path.items()}
        self._fixed = {path: app for path, app in apps.items() if "{" not in path}
        routes = [
            Route(path.replace("}", ":segment}"), app)  # starlette's syntax for a convertor
            for path, app in apps.items()
            if path not in self._fixed
        ]
        self._router = Router(routes, redirect_slashes=False, default=_no_such_path, lifespan=lifespan)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, or the server's start and end."""
        app = self._fixed.get(scope["path"]) if scope["type"] == "http" else None
        await (app or self._router)(scope, receive, send)


def path_templates(endpoints: Sequence[Endpoint]) -> PathTemplates:
    """The paths that requests can be matched by: all but the control paths."""
    methods: dict[str, set[str]] = {}
    for endpoint in endpoints:
        if not endpoint.path.startswith(CONTROL_PREFIX):
            methods.setdefault(endpoint.path, set()).add(endpoint.method)
    return PathTemplates(methods)


async def _no_such_path(scope: Scope, _receive: Receive, _send: Send) -> None:
    """What no route takes."""
    if scope["type"] != "http":
        raise RuntimeError("this service speaks HTTP only")
    raise HttpError(404, "not_found", "There is no such path; GET /openapi.json lists all.")
