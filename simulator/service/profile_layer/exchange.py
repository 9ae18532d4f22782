"""One request on its way through a profile: what is asked of the complete service, and what it answered."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, quote, urlencode

from pydantic_core import from_json, to_json
from starlette.types import Message, Receive, Scope

from simulator.service.answers import Header
from simulator.service.endpoints import Endpoint
from simulator.service.errors import ServiceError
from simulator.service.http_errors import http_error_of
from simulator.service.paging import PAGE_BYTES_HERE
from simulator.service.profiles.model import ServerProfile

if TYPE_CHECKING:
    from simulator.service.service import Service

JSON: Final = b"application/json"
HTML: Final = b"text/html; charset=utf-8"
TEXT: Final = b"text/plain; charset=utf-8"
_MISSING: Final = object()
_PARAMETER: Final = re.compile(r"{(\w+)}")
OK: Final = range(200, 300)
INNER_PAGE_BYTES: Final = 512 * 1024
"""A page of the complete service's is read in one call, which nothing else of the service runs beside."""
LIST_BYTES: Final = 32 * 1024 * 1024
"""A list that is cut into other pages than the complete service's is read whole, and refused beyond this."""


@dataclass(slots=True)
class Reply:
    """An answer that can still be changed.

    Attributes:
        status: HTTP status.
        headers: without Content-Type and Content-Length, which are made when it is sent.
        value: the JSON value of the body, where ``media_type`` is JSON.
        raw: the body where it is not JSON; None where ``value`` is the body.
        media_type: of the body.
        size_bytes: of the complete service's JSON text that ``value`` was read from.
    """

    status: int
    headers: list[Header] = field(default_factory=list)
    value: Any = None
    raw: bytes | None = None
    media_type: bytes = JSON
    size_bytes: int = 0

    @property
    def is_json(self) -> bool:
        """Whether ``value`` is the body."""
        return self.raw is None

    def say(self, raw: bytes, media_type: bytes) -> None:
        """Replace the body by one that is not JSON; an empty one has no type."""
        self.value, self.raw, self.media_type = None, raw, media_type

    def show(self, value: Any) -> None:
        """Replace the body by a JSON value."""
        self.value, self.raw, self.media_type = value, None, JSON

    def body(self) -> bytes:
        """The bytes of the body."""
        return _encode(self.value) if self.raw is None else self.raw

    def header(self, name: bytes) -> bytes | None:
        """The first header of this name."""
        return next((value for known, value in self.headers if known == name), None)

    def drop(self, *names: bytes) -> None:
        """Remove headers from the answer."""
        self.headers = [(name, value) for name, value in self.headers if name not in names]


class Exchange:
    """One request of an account with a profile, and its answer once there is one."""

    def __init__(self, profile: ServerProfile, account: int, service: Service, scope: Scope, body: bytes) -> None:
        self.profile = profile
        self.account = account
        self.service = service
        self.scope = scope
        self.body = body
        self.method: str = scope["method"]
        self.path: str = scope["raw_path"].decode("latin-1")
        self.headers: list[Header] = list(scope["headers"])
        self.query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        self.endpoint: Endpoint | None = None
        self.ids: dict[str, str] = {}
        self.asked: dict[str, str] = {}
        """Query parameters that the profile itself answers, such as ``page``."""
        self.reply = Reply(500)
        self.numbers: dict[str, int] = {}
        """Id of a command -> the number in its place, where ids are numbers."""
        self._value: Any = _MISSING
        self.given_query = tuple(self.query)
        """The query as it came."""
        self.again: Callable[[list[tuple[str, str]]], Awaitable[Reply]] = _no_answer_yet
        """Ask the complete service the same with another query, once it has answered."""

    @property
    def name(self) -> str:
        """The endpoint's name; empty where there is no such path or method."""
        return "" if self.endpoint is None else self.endpoint.name

    @property
    def value(self) -> Any:
        """The request's JSON body; None when it is none."""
        if self._value is _MISSING:
            try:
                self._value = from_json(self.body) if self.body else None
            except ValueError:
                self._value = None
        return self._value

    def replace_body(self, value: Any) -> None:
        """Send another JSON body to the complete service."""
        self._value = value
        self.body = to_json(value)
        self.headers = [(name, given) for name, given in self.headers if name != b"content-length"]
        self.headers.append((b"content-length", b"%d" % len(self.body)))

    def replace_id(self, name: str, value: str) -> None:
        """Ask the complete service about another id."""
        if self.endpoint is not None:
            self.ids[name] = value
            ids = self.ids
            self.path = _PARAMETER.sub(lambda found: quote(ids[found[1]], safe=""), self.endpoint.path)

    def parameter(self, name: str) -> str | None:
        """The first query parameter of this name."""
        return next((value for known, value in self.query if known == name), None)

    def inner_scope(self) -> Scope:
        """The request to the complete service."""
        raw: bytes = self.scope["query_string"]
        query_string = raw if tuple(self.query) == self.given_query else urlencode(self.query).encode()
        scope = dict(self.scope)
        return scope | {
            "method": self.method,
            "path": self.path,
            "raw_path": self.path.encode("latin-1"),
            "query_string": query_string,
            "headers": self.headers,
            PAGE_BYTES_HERE: INNER_PAGE_BYTES,
        }

    def first_receive(self, receive: Receive) -> Receive:
        """The body that was read already, then what comes after it."""
        sent = False

        async def replay() -> Message:
            nonlocal sent
            if sent:
                return await receive()
            sent = True
            return {"type": "http.request", "body": self.body, "more_body": False}

        return replay


async def _no_answer_yet(_query: list[tuple[str, str]]) -> Reply:
    raise RuntimeError("the complete service has not answered yet")


# What depends on how and when the answer goes out.
_OF_THE_WAY: Final = frozenset({b"content-type", b"content-length", b"date"})


class Capture:
    """The sending end of an inner request: it keeps the answer."""

    def __init__(self) -> None:
        self.status = 0
        self._headers: Sequence[Header] = ()
        self._parts: list[bytes] = []

    async def send(self, message: Message) -> None:
        """One message of the answer."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self._headers = message["headers"]
        else:
            self._parts.append(message.get("body", b""))

    def reply(self) -> Reply:
        """The whole answer."""
        raw = b"".join(self._parts)
        media_type = next((value for name, value in self._headers if name == b"content-type"), JSON)
        headers = [one for one in self._headers if one[0] not in _OF_THE_WAY]
        if raw and media_type.startswith(JSON):
            return Reply(self.status, headers, value=from_json(raw), size_bytes=len(raw))
        return Reply(self.status, headers, raw=raw, media_type=media_type)


class Answered(Exception):
    """The profile answers by itself; the complete service is not asked."""

    def __init__(self, reply: Reply) -> None:
        self.reply = reply
        super().__init__(str(reply.status))


Step = Callable[[Exchange], Awaitable[None]]
"""One axis, or several that belong together: it changes the request, or the reply."""
Rewrite = Callable[[Exchange], None]
"""As :data:`Step`, for a reply that is all there: it asks nobody, so a thread can carry it out."""


def _encode(value: Any) -> bytes:
    """JSON text, made item by item where it is a list or one in envelopes: no other thread runs during one call."""
    if isinstance(value, list):
        return b"[%b]" % b",".join([to_json(item) for item in value])
    if isinstance(value, dict):
        return b"{%b}" % b",".join([b"%b:%b" % (to_json(name), _encode(inner)) for name, inner in value.items()])
    return to_json(value)


def refusal(status: int, error: str, message: str) -> Reply:
    """An error as the complete service would write it."""
    return Reply(status, value={"error": error, "message": message})


def fault(exc: ServiceError) -> Reply:
    """A fault as an answer."""
    answer = http_error_of(exc).answer()
    return Reply(answer.status, list(answer.headers), value=from_json(answer.body))


def page(status: int, title: str, text: str) -> Reply:
    """A page for people, as proxies and frameworks answer it."""
    html = (
        f"<!DOCTYPE html>\n<html><head><title>{title}</title></head><body><h1>{title}</h1><p>{text}</p></body></html>\n"
    )
    return Reply(status, raw=html.encode(), media_type=HTML)
