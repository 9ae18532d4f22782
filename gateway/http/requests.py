"""One request of a device: its headers, its query and its body, each bounded and checked before anything uses it."""

from __future__ import annotations

import asyncio
import re
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl, unquote

from pydantic import BaseModel, ValidationError
from starlette.types import Receive, Scope

from agent.errors import InvalidMessage
from agent.wire.json_text import parse_json
from agent.wire.limits import BODY_BYTES
from gateway.http.answers import CallerGone, Fault, invalid, invalid_all, invalid_model

Model = TypeVar("Model", bound=BaseModel)

BODY_S: Final = 30.0
"""How long the body of a request may take."""

_KEY_CHARACTERS: Final = 255
_REQUEST_ID: Final = re.compile(rb"[A-Za-z0-9._:/+=@-]{1,128}")


class HttpRequest:
    """A request in the hands of its endpoint.

    Attributes:
        device_id: whose token it carries; empty until that is checked.
        segments: the path as it was sent, split; each still percent-encoded.
    """

    __slots__ = ("_body_s", "_receive", "_scope", "device_id", "headers", "method", "segments")

    def __init__(self, scope: Scope, receive: Receive, body_s: float = BODY_S) -> None:
        self._scope = scope
        self._receive = receive
        self._body_s = body_s
        self.device_id = ""
        self.method: str = scope["method"]
        # Of a header that comes twice the first one counts, as for the service.
        self.headers: dict[bytes, bytes] = dict(reversed(scope["headers"]))
        raw_path: bytes = scope["raw_path"]
        self.segments = raw_path.decode("ascii", "replace").split("/")[1:]

    @property
    def receive(self) -> Receive:
        """The ASGI channel, to see the caller go."""
        return self._receive

    @property
    def client(self) -> str:
        """Where it comes from, for the log."""
        client = self._scope.get("client")
        return str(client[0]) if client else "an unknown address"

    @property
    def request_id(self) -> bytes | None:
        """The caller's ``X-Request-Id`` when it can be repeated."""
        value = self.headers.get(b"x-request-id")
        return value if value is not None and _REQUEST_ID.fullmatch(value) else None

    def bearer(self) -> str | None:
        """The token of ``Authorization: Bearer``; None without one."""
        scheme, _, token = self.headers.get(b"authorization", b"").partition(b" ")
        if scheme.lower() != b"bearer":
            return None
        return token.strip().decode("latin-1") or None

    def id_at(self, index: int) -> str:
        """A segment of the path, decoded after the path was split, so that an id may hold an encoded slash."""
        value = self.segments[index]
        try:
            return unquote(value, errors="strict")
        except UnicodeDecodeError:
            raise Fault(404, "not_found", "The path holds an id that is not UTF-8 text.") from None

    def query(self, allowed: frozenset[str]) -> dict[str, str]:
        """The query parameters. An unknown one is refused: a misspelt filter that is ignored would look applied."""
        raw: bytes = self._scope["query_string"]
        if not raw:
            return {}
        try:
            pairs = parse_qsl(raw.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=50)
        except ValueError:
            raise invalid("query", "the query string is not valid percent-encoded UTF-8") from None
        values: dict[str, str] = {}
        faults: list[tuple[str, str]] = []
        for name, value in pairs:
            if name not in allowed:
                known = ", ".join(sorted(allowed)) or "none"
                faults.append((name.replace("\0", "?")[:80], f"unknown query parameter; this path has: {known}"))
            elif name in values:
                faults.append((name, "given more than once"))
            else:
                values[name] = value
        if faults:
            raise invalid_all(faults)
        return values

    def idempotency_key(self) -> str | None:
        """The ``Idempotency-Key``; None without one."""
        value = self.headers.get(b"idempotency-key")
        if value is None:
            return None
        text = value.decode("latin-1")
        if not text.isascii() or not text.isprintable() or not 0 < len(text) <= _KEY_CHARACTERS:
            raise invalid("Idempotency-Key", f"must be 1 to {_KEY_CHARACTERS} visible ASCII characters")
        return text

    def known_tags(self) -> frozenset[bytes]:
        """The tags of ``If-None-Match``; weak ones count (RFC 9110, section 13.1.2)."""
        given = self.headers.get(b"if-none-match", b"")
        return frozenset(tag.strip().removeprefix(b"W/") for tag in given.split(b",") if tag.strip())

    async def json(self) -> Any:
        """The body as a JSON value."""
        try:
            async with asyncio.timeout(self._body_s):
                raw = await self._body()
        except TimeoutError:
            text = "The body of the request did not come in time."
            raise Fault(408, "request_timeout", text, headers=((b"connection", b"close"),)) from None
        try:
            return parse_json(raw)
        except InvalidMessage as error:
            issue = str(error) if raw else "the body is empty; it must be a JSON object"
            raise invalid("body", issue) from None

    async def _body(self) -> bytes:
        self._check_headers()
        parts: list[bytes] = []
        size = 0
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise CallerGone
            part: bytes = message.get("body", b"")
            size += len(part)
            if size > BODY_BYTES:
                raise _too_large()
            parts.append(part)
            if not message.get("more_body"):
                return b"".join(parts)

    def _check_headers(self) -> None:
        length = self.headers.get(b"content-length", b"0")
        if not length.isdigit() or int(length) > BODY_BYTES:
            raise _too_large()
        if not _is_json(self.headers.get(b"content-type", b"application/json")):
            raise Fault(415, "unsupported_media_type", "The body must be JSON: send Content-Type: application/json.")
        if self.headers.get(b"content-encoding", b"identity").lower() != b"identity":
            raise Fault(415, "unsupported_media_type", "The body must be sent without Content-Encoding.")


def check(model: type[Model], value: Any) -> Model:
    """A JSON value as a message; 400 naming every fault."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise invalid_model(error) from None


def _too_large() -> Fault:
    # The rest of the body is not read, so the connection cannot be used again.
    return Fault(
        413,
        "payload_too_large",
        f"The body is larger than the limit of {BODY_BYTES} bytes.",
        headers=((b"connection", b"close"),),
    )


def _is_json(value: bytes) -> bool:
    kind, _, parameters = value.decode("latin-1").lower().partition(";")
    if kind.strip() != "application/json":
        return False
    name, _, charset = parameters.strip().partition("=")
    return not parameters.strip() or name.strip() != "charset" or charset.strip(' "') in {"utf-8", "utf8"}
