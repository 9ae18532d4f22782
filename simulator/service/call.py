"""One request as its handler sees it: checked path, query and body, and the way to a write."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import parse_qsl

from pydantic import BaseModel, ValidationError
from sqlalchemy import Connection
from starlette.types import Receive, Scope

from agent.errors import InvalidMessage
from agent.wire.json_text import parse_json
from agent.wire.limits import BODY_BYTES
from simulator.service.addresses import CONTROL_PREFIX
from simulator.service.answers import Answer, WriteResult, replayed
from simulator.service.errors import Unavailable, invalid, invalid_all, invalid_model, too_large
from simulator.service.gate import CALLER, EPOCH, REQUEST_HEADERS, bearer_of, wrong_keys, wrong_token
from simulator.service.http_errors import CallerGone, HttpError
from simulator.service.member_faults import list_member_faults
from simulator.service.storage import stored_answers
from simulator.service.storage.keys import Caller
from simulator.service.storage.stored_answers import RequestKey

if TYPE_CHECKING:
    from simulator.service.service import Service

Model = TypeVar("Model", bound=BaseModel)

_KEY_CHARACTERS: Final = 255


class Call:
    """A request in the hands of its handler."""

    __slots__ = ("body_bytes", "receive", "scope", "service")

    def __init__(self, service: Service, scope: Scope, receive: Receive) -> None:
        self.service = service
        self.scope = scope
        self.receive = receive
        self.body_bytes = b""

    @property
    def caller(self) -> Caller:
        """Whom the request comes from."""
        caller: Caller = self.scope[CALLER]
        return caller

    @property
    def account(self) -> int | None:
        """The row of the caller's account; None where nobody has to say who they are."""
        caller: Caller | None = self.scope.get(CALLER)
        return None if caller is None else caller.manufacturer_seq

    def path(self, name: str) -> str:
        """A parameter of the path."""
        value: str = self.scope["path_params"][name]
        return value

    def query(self, allowed: frozenset[str], prefix: str | None = None) -> dict[str, str]:
        """The query parameters: those allowed by name, and those that begin with ``prefix`` and go on.

        An unknown one is refused: a misspelt filter that is ignored would look as if it had been applied.
        """
        raw: bytes = self.scope["query_string"]
        if not raw:
            return {}
        try:
            pairs = parse_qsl(raw.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=50)
        except ValueError:
            raise invalid("query", "the query string is not valid percent-encoded UTF-8") from None
        faults = []
        values: dict[str, str] = {}
        for name, value in pairs:
            if name not in allowed and not (prefix and name.startswith(prefix) and prefix < name and "\0" not in name):
                known = ", ".join([*sorted(allowed), *([f"{prefix}<name>"] if prefix else [])]) or "none"
                faults.append((name.replace("\0", "?"), f"unknown query parameter; this path has: {known}"))
            elif name in values:
                faults.append((name, "given more than once"))
            elif "\0" in value:
                faults.append((name, "must not contain NUL"))
            else:
                values[name] = value
        if faults:
            raise invalid_all(faults)
        return values

    async def read_body(
        self, also: frozenset[bytes] = frozenset(), *, limit: int = BODY_BYTES, is_json: bool = True
    ) -> bytes:
        """The request's body, bytes.

        Args:
            also: media types that it may have beside JSON.
            limit: its bytes.
            is_json: whether it may be JSON.
        """
        self._check_headers(also, limit, is_json=is_json)
        message = await self.receive()
        body: bytes = message.get("body", b"")
        if message.get("more_body"):
            parts = [body]
            size = len(body)
            while message.get("more_body"):
                message = await self.receive()
                part = message.get("body", b"")
                size += len(part)
                if size > limit:
                    raise too_large("The body", limit)
                parts.append(part)
            body = b"".join(parts)
        if message["type"] == "http.disconnect":
            raise CallerGone
        if len(body) > limit:
            raise too_large("The body", limit)
        self.body_bytes = body
        return body

    async def json(self) -> Any:
        """The body as a JSON value."""
        raw = await self.read_body()
        try:
            return parse_json(raw)
        except InvalidMessage as exc:
            raise invalid("body", str(exc) if raw else "the body is empty; it must be a JSON object") from None

    async def message(self, model: type[Model]) -> Model:
        """The body as a message."""
        return check(model, await self.json(), is_control=self.scope["path"].startswith(CONTROL_PREFIX))

    async def write(self, operation: Callable[[Connection], WriteResult]) -> Answer:
        """Carry it out in the writing thread; with an ``Idempotency-Key`` it is carried out once only."""
        service = self.service
        key = self.request_key()
        await self.check_epoch()
        if key is None:
            result = await service.writer.submit(operation, len(self.body_bytes))
        else:
            with service.running_keys.hold(key):
                result = await service.writer.submit(
                    lambda connection: _once(connection, key, service.clock.now_ms(), operation),
                    len(self.body_bytes),
                )
        for device_seq in result.changed:
            service.waiters.wake(device_seq)
        if result.sent:
            service.feed.wake()
        return result.answer

    async def check_epoch(self, *, goes_on: bool = False) -> None:
        """Look again who this is, when an account was deleted or the state replaced since the request came.

        Called right before a write, and before an answer.

        Args:
            goes_on: the request relies on nothing that it has read so far; it may go on with another state.

        Raises:
            HttpError: 401: the caller's account, key or token is gone.
            Unavailable: ``state_replaced``: what the request came to is gone; ``state_loading``.
        """
        epochs = self.service.epochs
        while self.scope[EPOCH] != epochs.number:
            if epochs.settled is not None:
                await epochs.wait()
            number = epochs.number
            if self.scope[EPOCH] < epochs.replaced and not goes_on:
                text = "The service's state was replaced by a snapshot while this was under way. Send it again."
                raise Unavailable("state_replaced", text, retry_after_s=1)
            caller: Caller | None = self.scope.get(CALLER)
            if caller is not None and caller.scopes is None:
                if self.service.callers.get(caller.api_key.encode()) != caller:
                    raise wrong_keys()
            elif caller is not None:
                token = bearer_of(self.scope[REQUEST_HEADERS][b"authorization"])
                if await self.service.find_bearer(token or "") != caller:
                    raise wrong_token()
            self.scope[EPOCH] = number

    def request_key(self) -> RequestKey | None:
        """The ``Idempotency-Key`` of a POST, with what it stands for; the body must have been read."""
        value = self.scope[REQUEST_HEADERS].get(b"idempotency-key")
        return None if value is None else self._request_key(value)

    def _request_key(self, value: bytes) -> RequestKey | None:
        if self.scope["method"] != "POST":
            return None
        if not value.isascii() or not value.decode("ascii").isprintable() or not 0 < len(value) <= _KEY_CHARACTERS:
            raise invalid("Idempotency-Key", f"must be 1 to {_KEY_CHARACTERS} visible ASCII characters")
        what = hashlib.sha256(self.scope["path"].encode() + b"\0" + self.body_bytes).digest()
        return RequestKey(self.caller.manufacturer_seq, value.decode("ascii"), what)

    def _check_headers(self, also: frozenset[bytes], limit: int, *, is_json: bool) -> None:
        given = self.scope[REQUEST_HEADERS]
        kind, size, encoding = given.get(b"content-type"), given.get(b"content-length"), given.get(b"content-encoding")
        if kind is None and self.scope["path"].startswith(CONTROL_PREFIX):
            kind = b""  # a web page of any origin may send a body without a type
        taken = also | {b"application/json"} if is_json else also
        if kind is not None and kind not in taken and not (is_json and _is_json(kind)):
            kinds = " or ".join(sorted(one.decode() for one in taken))
            raise HttpError(415, "unsupported_media_type", f"The body must say what it is: send Content-Type: {kinds}.")
        if size is not None and int(size) > limit:
            raise too_large("The body", limit)
        if encoding is not None and encoding.lower() != b"identity":
            raise HttpError(415, "unsupported_media_type", "The body must be sent without Content-Encoding.")


def check(model: type[Model], value: Any, *, is_control: bool = False) -> Model:
    """A JSON value as a message; 400 naming every fault.

    Args:
        model: of the message.
        value: as it came.
        is_control: of a control path: the issues name what to write instead.
    """
    try:
        return model.model_validate(value)
    except ValidationError as exc:
        raise (invalid_all(list_member_faults(exc, model)) if is_control else invalid_model(exc)) from None


def _once(
    connection: Connection, key: RequestKey, now_ms: int, operation: Callable[[Connection], WriteResult]
) -> WriteResult:
    """Carry it out and store its answer, or return the answer that is stored."""
    found = stored_answers.find(connection, [key], now_ms)
    if key.key in found:
        return WriteResult(replayed(stored_answers.read(key, found[key.key])))
    result = operation(connection)
    stored_answers.store(connection, [(key, result.answer.stored())], now_ms)
    return result


def _is_json(value: bytes) -> bool:
    kind, _, parameters = value.decode("latin-1").lower().partition(";")
    if kind.strip() != "application/json":
        return False
    name, _, charset = parameters.strip().partition("=")
    return not parameters.strip() or name.strip() != "charset" or charset.strip(' "') in {"utf-8", "utf8"}
