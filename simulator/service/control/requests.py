"""``/_emulator/requests``: the last requests with their answers, and whether as many came as were expected."""

from __future__ import annotations

import asyncio
import base64
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self
from urllib.parse import urlencode

from fastapi import Query, Response
from pydantic import BaseModel, Field, model_validator
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agent.wire import paths
from agent.wire.base import Sent, Text, WireTime
from agent.wire.times import parse_time
from simulator.service.caller import Caller, is_observer
from simulator.service.control.masking import mask_body, mask_fields, mask_header, mask_keys, mask_path
from simulator.service.control.matching import Difference, Facts, Matcher, RequestMatch, make_matcher, read_facts
from simulator.service.db import one
from simulator.service.errors import ApiError, conflict
from simulator.service.gate import CONSOLE_PREFIX, CONTROL_PREFIX
from simulator.service.http import CallDep, Json, Router, answers, no_content
from simulator.service.paging import PAGE_BYTES, PageQuery
from simulator.service.times import show_time

if TYPE_CHECKING:
    from simulator.service.service import Service

TOTAL_BYTES: Final = 64 * 1024 * 1024
"""What all that is kept may take; then the oldest goes, however few there are."""
BODY_BYTES: Final = 16 * 1024
"""Of a longer body the beginning is kept."""
_TEXT_MAX: Final = 4_096
"""Of a longer path, query or header the beginning is shown."""
_ENTRY_BYTES: Final = 2_000
_NEAREST: Final = 5
_AT_ONCE: Final = 20
"""Requests that are looked at before the loop serves others."""
CALLER_GONE: Final = 499
"""The status that a handler gives up with when its caller has gone, as nginx has it."""
_PARTNER_ACCESS: Final = frozenset({paths.OAUTH_TOKEN, paths.OAUTH_REVOKE, paths.OAUTH_AUTHORIZE})

Header = tuple[bytes, bytes]


# --- what is noted ------------------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class Exchange:
    """A request and its answer as they went over the wire, with their secrets: :meth:`show` takes them out.

    Attributes:
        received_ms: when it came, by the service's clock.
        started_s: the same by a clock that nobody sets.
        scope: of the request while it is under way: once it is admitted, its caller stands there.
        number: its place in the order in which requests ended; 0 while it is under way.
        is_complete: the whole answer went out.
        is_gone: the caller was seen to have left.
        outcome: ``answered``; ``caller_gone``; ``no_answer``; ``cut``: the answer began and did not end.
        shown: what was made of it, once it was read.
    """

    method: str
    path: bytes
    query: bytes
    headers: Sequence[Header]
    client: str | None
    received_ms: int
    started_s: float
    body: bytes = b""
    body_bytes: int = 0
    status: int | None = None
    answer_headers: Sequence[Header] = ()
    answer: bytes = b""
    answer_bytes: int = 0
    scope: Scope | None = None
    caller: Caller | None = None
    faults: Sequence[str] = ()
    number: int = 0
    duration_s: float = 0.0
    is_complete: bool = False
    is_gone: bool = False
    outcome: str = "answered"
    shown: dict[str, Any] | None = None

    @property
    def size_bytes(self) -> int:
        """What it takes, about."""
        return _ENTRY_BYTES + len(self.path) + len(self.query) + len(self.body) + len(self.answer)

    @property
    def body_is_cut(self) -> bool:
        """Whether less than the whole body of the request is kept."""
        return len(self.body) < max(self.body_bytes, _announced(self.headers))

    @property
    def account(self) -> int | None:
        """The row of the account that it is of; None where it named none, or is not admitted yet."""
        caller = self.caller if self.scope is None else self.scope.get("caller")
        return None if caller is None else caller.account

    def end(self, scope: Scope) -> None:
        """Note what became of it."""
        self.duration_s = time.perf_counter() - self.started_s
        self.scope, self.caller, self.faults = None, scope.get("caller"), scope.get("faults", ())
        if self.status == CALLER_GONE:
            self.outcome, self.status = "caller_gone", None
        elif not self.is_complete:
            is_left = self.is_gone and not self.faults  # a fault ends the connection itself
            self.outcome = "cut" if self.status else "caller_gone" if is_left else "no_answer"

    def facts(self, service: Service) -> Facts:
        """What a match looks at."""
        asked = {"method": self.method, "raw_path": self.path, "query_string": self.query, "headers": self.headers}
        return read_facts(service, asked, self.body, self.caller)

    def show(self, service: Service) -> dict[str, Any]:
        """As the control paths show it, without secrets."""
        if self.shown is not None:
            return self.shown
        path = self.path.decode("latin-1")
        is_partner = path in _PARTNER_ACCESS
        answer: dict[str, Any] | None = None
        if self.status is not None:
            shown = _show_message(self.answer_headers, self.answer, self.answer_bytes, is_partner)
            answer = {"status": self.status, **shown}
        given = max(self.body_bytes, _announced(self.headers))
        record = {
            "id": str(self.number),
            "received_at": show_time(self.received_ms),
            "duration_ms": round(self.duration_s * 1000, 3),
            "method": self.method,
            "path": mask_path(path)[:_TEXT_MAX],
            "query": mask_fields(self.query.decode("latin-1"))[:_TEXT_MAX],
            "path_template": service.paths.find(path)[0],
            "account": None if self.caller is None else _first_key(service, self.caller.account),
            "caller": None if self.caller is None else self.caller.api_key,
            "request_id": _header_of(self.answer_headers, b"x-request-id"),
            "client": self.client,
            "request": _show_message(self.headers, self.body, given, is_partner),
            "answer": answer,
            "outcome": self.outcome,
            "faults": list(self.faults),
        }
        if self.number:
            self.shown = record
        return record


def _show_message(headers: Sequence[Header], body: bytes, body_bytes: int, is_partner: bool) -> dict[str, Any]:
    try:
        text, encoding = body.decode(), "utf-8"
    except UnicodeDecodeError as exc:
        is_cut_there = len(body) < body_bytes and len(body) - exc.start < 4
        text, encoding = (body[: exc.start].decode(), "utf-8") if is_cut_there else (body.decode("latin-1"), "base64")
    text = mask_body(text, is_partner_access=is_partner)
    shown = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers]
    return {
        "headers": [{"name": name, "value": mask_header(name, value)[:_TEXT_MAX]} for name, value in shown],
        "body": text if encoding == "utf-8" else base64.b64encode(text.encode("latin-1")).decode(),
        "body_encoding": encoding,
        "body_bytes": body_bytes,
        "truncated": len(body) < body_bytes,
    }


def _header_of(headers: Iterable[Header], name: bytes) -> str | None:
    return next((value.decode("latin-1") for found, value in headers if found == name), None)


def _announced(headers: Iterable[Header]) -> int:
    """How long the body is by its header: one that is refused by its length was not read."""
    length = _header_of(headers, b"content-length")
    return int(length) if length is not None and length.isdigit() else 0


def _first_key(service: Service, account: int) -> str | None:
    query = "SELECT api_key FROM api_keys WHERE account = ? ORDER BY created_at, api_key LIMIT 1"
    row = one(service.db.sql, query, (account,))
    return None if row is None else str(row["api_key"])


class RequestLog:
    """The last requests, in the order in which they ended.

    Attributes:
        kept: oldest first.
        under_way: those without an answer yet; what is cleared meanwhile is not kept when it ends.
        last_dropped: the number of the youngest that left to make room; 0 for none since the log was empty.
    """

    def __init__(self, keep: int) -> None:
        self.keep = keep
        self.kept: deque[Exchange] = deque()
        self.under_way: set[Exchange] = set()
        self.last_dropped = 0
        self._dropped = 0
        self._last_dropped_ms = 0
        self._ended = 0
        self._bytes = 0

    def add(self, exchange: Exchange) -> None:
        """Keep one that has ended, unless it was cleared meanwhile."""
        if exchange not in self.under_way:
            return
        self.under_way.remove(exchange)
        self._ended += 1
        exchange.number = self._ended
        self.kept.append(exchange)
        self._bytes += exchange.size_bytes
        while len(self.kept) > self.keep or self._bytes > TOTAL_BYTES:
            gone = self.kept.popleft()
            self._bytes -= gone.size_bytes
            self._dropped += 1
            self.last_dropped, self._last_dropped_ms = gone.number, max(self._last_dropped_ms, gone.received_ms)

    def dropped_since(self, since_ms: int | None, after: int) -> int:
        """How many requests of a time may have left the log, at most."""
        if since_ms is not None and self._last_dropped_ms < since_ms:
            return 0
        return min(self._dropped, max(0, self.last_dropped - after))

    def clear(self, account: int | None = None) -> None:
        """Forget all requests, those under way too; or those of one account."""

        def is_kept(exchange: Exchange) -> bool:
            return account is not None and exchange.account != account

        self.kept = deque(one for one in self.kept if is_kept(one))
        self.under_way = {one for one in self.under_way if is_kept(one)}
        self._bytes = sum(one.size_bytes for one in self.kept)
        if account is None:
            self._dropped = self.last_dropped = self._last_dropped_ms = 0


class Recorder:
    """The outermost ASGI layer: notes each request and its answer, and leaves the masking to who reads them."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app = app
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, or the server's start and end."""
        log = self._service.requests
        if scope["type"] != "http" or not log.keep or self._is_outside(scope):
            await self._app(scope, receive, send)
            return
        exchange = Exchange(
            scope["method"],
            scope["raw_path"],
            scope["query_string"],
            scope["headers"],
            scope["client"][0] if scope["client"] else None,
            self._service.clock.now_ms(),
            time.perf_counter(),
        )

        async def note_received() -> Message:
            message = await receive()
            if message["type"] != "http.request":
                exchange.is_gone = True
            elif body := message.get("body"):
                exchange.body_bytes += len(body)
                exchange.body += body[: BODY_BYTES - len(exchange.body)]
            return message

        def note_sent(message: Message) -> Awaitable[None]:
            if message["type"] == "http.response.body":
                if body := message.get("body"):
                    exchange.answer_bytes += len(body)
                    exchange.answer += body[: BODY_BYTES - len(exchange.answer)]
                exchange.is_complete = not message.get("more_body")
            else:
                exchange.status, exchange.answer_headers = message["status"], message.get("headers", ())
            return send(message)

        exchange.scope = scope
        log.under_way.add(exchange)
        try:
            await self._app(scope, note_received, note_sent)
        finally:
            exchange.end(scope)
            log.add(exchange)

    def _is_outside(self, scope: Scope) -> bool:
        """Whether it is about the service, and not of who is tested."""
        if scope["path"].startswith((CONTROL_PREFIX, CONSOLE_PREFIX)):
            return True
        return is_observer(self._service, scope)


# --- what is asked ------------------------------------------------------------------------------------------------


LoggedId = Annotated[Text, Field(pattern="^[0-9]{1,18}$")]
Status = Annotated[Text, Field(pattern="^[1-5]([0-9]{2}|xx)$", description="Of the answer: `404`, or `4xx`.")]


class RequestQuery(PageQuery):
    """Filters of the list; every one that is given has to fit."""

    cursor: Annotated[LoggedId | None, Field(description="`next_cursor` of the page before.")] = None
    method: Annotated[Text | None, Field(description="Such as `POST`.")] = None
    path: Annotated[Text | None, Field(description="A path of the document, or one with ids in it.")] = None
    device_id: Annotated[Text | None, Field(description="Path, query or body name it.")] = None
    account_id: Annotated[Text | None, Field(description="Whose key or token: its id, a key or its name.")] = None
    status: Status | None = None
    since: Annotated[WireTime | None, Field(description="Received then or later, by the service's clock.")] = None
    after: Annotated[LoggedId | None, Field(description="Ended after the request with this id.")] = None
    text: Annotated[Text | None, Field(description="Path, query, body or answer hold it, without regard to case.")] = (
        None
    )


Count = Annotated[int, Field(ge=0, le=1_000_000_000)]


class VerifyRequests(Sent):
    """Which requests are expected, and how many of them."""

    match: RequestMatch
    exactly: Count | None = None
    at_least: Count | None = None
    at_most: Count | None = None
    status: Status | None = None
    since: Annotated[WireTime | None, Field(description="Received then or later, by the service's clock.")] = None
    after: Annotated[LoggedId | None, Field(description="Only requests after the one with this id.")] = None
    text: Annotated[Text | None, Field(description="Path, query, body or answer hold this text.")] = None

    @model_validator(mode="after")
    def _check_count_given(self) -> Self:
        low, high = self.expected()
        if self.exactly is None and self.at_least is None and self.at_most is None:
            raise ValueError("say how many requests are expected: exactly, at_least or at_most")
        if self.exactly is not None and (self.at_least is not None or self.at_most is not None):
            raise ValueError("exactly stands alone: leave at_least and at_most out")
        if low > high:
            raise ValueError("at_least is greater than at_most: nothing can be both")
        return self

    def expected(self) -> tuple[int, float]:
        """The least and the greatest number."""
        if self.exactly is not None:
            return self.exactly, self.exactly
        return self.at_least or 0, float("inf") if self.at_most is None else self.at_most


@dataclass(frozen=True, slots=True)
class Selection:
    """Which requests are meant.

    Attributes:
        after: the number of the last one that is not meant any more.
    """

    service: Service
    matcher: Matcher
    status: str | None
    since_ms: int | None
    after: int
    text: str | None

    def is_in_time(self, exchange: Exchange) -> bool:
        """Whether it came late enough."""
        is_late = self.since_ms is None or exchange.received_ms >= self.since_ms
        return is_late and (exchange.number > self.after or not exchange.number)

    def differences(self, exchange: Exchange) -> list[Difference]:
        """What of a request does not fit; nothing when it is meant."""
        found = self.matcher.differences(exchange.facts(self.service))
        status = None if exchange.status is None else str(exchange.status)
        if self.status is not None and (status is None or self.status not in {status, f"{status[0]}xx"}):
            found.append(Difference("status", self.status, status))
        if self.text is not None and self.text.lower() not in self._shown_text(exchange):
            found.append(Difference("text", self.text, None))
        return found

    def _shown_text(self, exchange: Exchange) -> str:
        """What is looked through: nothing that is not shown, or a search would find out secrets."""
        shown = exchange.show(self.service)
        answer = shown["answer"] or {"body": ""}
        return "\n".join([shown["path"], shown["query"], shown["request"]["body"], answer["body"]]).lower()

    def is_open(self, exchange: Exchange, differences: Sequence[Difference]) -> bool:
        """Whether nobody can say if it fits: too little of it is kept, or the rest is still to come."""
        missing = {one.field for one in differences}
        if not exchange.number:
            return bool(missing) and missing <= {"device_id", "status", "text"}
        answer_is_cut = len(exchange.answer) < exchange.answer_bytes
        return (exchange.body_is_cut and bool(missing) and missing <= {"device_id", "text"}) or (
            answer_is_cut and missing == {"text"}
        )


async def _few_at_once(exchanges: Iterable[Exchange]) -> AsyncIterator[Exchange]:
    """The same, and others are served in between."""
    for number, exchange in enumerate(exchanges, 1):
        yield exchange
        if number % _AT_ONCE == 0:
            await asyncio.sleep(0)


def _log_of(service: Service) -> RequestLog:
    if not service.requests.keep:
        raise conflict("request_log_off", "The service keeps no requests: start it with --keep-requests above 0.")
    return service.requests


def _select(service: Service, asked: RequestQuery | VerifyRequests, match: RequestMatch, place: str) -> Selection:
    _log_of(service)
    since_ms = None if asked.since is None else round(parse_time(asked.since) * 1000)
    matcher = make_matcher(service, match, place)
    return Selection(service, matcher, asked.status, since_ms, int(asked.after or 0), asked.text)


# --- the control paths --------------------------------------------------------------------------------------------

router = Router("requests")
_PATH: Final = f"{CONTROL_PREFIX}requests"


class LoggedHeader(BaseModel):
    """A header; ``value`` is ``**********`` where it holds a secret."""

    name: str
    value: str


class LoggedMessage(BaseModel):
    """Headers and body; ``body`` is cut after 16 KiB, and Base64 where it is no text in UTF-8."""

    headers: list[LoggedHeader]
    body: str
    body_encoding: Literal["utf-8", "base64"]
    body_bytes: int
    truncated: bool


class LoggedAnswer(LoggedMessage):
    """An answer."""

    status: int


class LoggedRequest(BaseModel):
    """A request and its answer.

    ``account`` is the account's public key, ``caller`` the key, or the partner and user, that sent it. ``faults`` are
    the ids of the faults that it met, ``header`` for the one of its header.
    """

    id: str
    received_at: str
    duration_ms: float
    method: str
    path: str
    query: str
    path_template: str | None
    account: str | None
    caller: str | None
    request_id: str | None
    client: str | None
    request: LoggedMessage
    answer: LoggedAnswer | None
    outcome: Literal["answered", "caller_gone", "no_answer", "cut"]
    faults: list[str]


class LoggedRequests(BaseModel):
    """A page of requests."""

    data: list[LoggedRequest]
    next_cursor: str | None
    has_more: bool


class NearMiss(BaseModel):
    """A request that nearly fits; ``id`` is null while it has no answer."""

    id: str | None
    method: str
    path: str
    status: int | None
    differs: list[Difference]


class Verified(BaseModel):
    """Whether as many requests came as were expected.

    ``holds`` is true for the verdict ``holds`` alone. ``count`` requests fit, those without an answer yet included; up
    to ``unknown`` more may: they have left the log, or too little of them was kept.
    """

    holds: bool
    verdict: Literal["holds", "does_not_hold", "inconclusive"]
    count: int
    unknown: int
    reason: str | None
    nearest: list[NearMiss]


@router.get(_PATH, response_model=LoggedRequests, responses=answers(409))
async def list_requests(call: CallDep, query: Annotated[RequestQuery, Query()]) -> Response:
    """The last requests and their answers, secrets masked, in the order in which they ended, newest first."""
    match = RequestMatch(**query.model_dump(include=set(RequestMatch.model_fields)))
    selection = _select(call.service, query, match, "")
    log, is_oldest_first = call.service.requests, query.order == "asc"
    kept: Iterable[Exchange] = log.kept if is_oldest_first else reversed(log.kept)
    place = None if query.cursor is None else int(query.cursor)
    data: list[dict[str, Any]] = []
    size, has_more = 0, False
    async for exchange in _few_at_once(list(kept)):
        is_before = place is not None and (exchange.number <= place if is_oldest_first else exchange.number >= place)
        if is_before or not selection.is_in_time(exchange) or selection.differences(exchange):
            continue
        size += exchange.size_bytes
        if len(data) == query.limit or (size > PAGE_BYTES and data):
            has_more = True
            break
        data.append(exchange.show(call.service))
    cursor = data[-1]["id"] if has_more else None
    headers = {}
    if cursor is not None:
        given = {**query.model_dump(exclude_unset=True, exclude_none=True), "cursor": cursor}
        headers["Link"] = f'<{_PATH}?{urlencode(given)}>; rel="next"'
    return Json({"data": data, "next_cursor": cursor, "has_more": has_more}, headers=headers)


@router.delete(_PATH, status_code=204)
async def clear_requests(call: CallDep) -> Response:
    """Forget all requests, those that are under way too."""
    call.service.requests.clear()
    return no_content()


@router.post(f"{_PATH}/verify", response_model=Verified, responses=answers(409))
async def verify_requests(call: CallDep, body: VerifyRequests) -> Response:
    """Whether as many requests came as were expected; those under way count, without a status."""
    selection, log = _select(call.service, body, body.match, "match."), call.service.requests
    dropped = log.dropped_since(selection.since_ms, selection.after)
    count = unclear = 0
    misses: list[tuple[Exchange, list[Difference]]] = []
    async for exchange in _few_at_once([*log.kept, *log.under_way]):
        if not selection.is_in_time(exchange):
            continue
        differences = selection.differences(exchange)
        count += not differences
        unclear += selection.is_open(exchange, differences)
        if differences:
            misses.append((exchange, differences))
    low, high = body.expected()
    most = count + unclear + dropped
    verdict = "holds" if low <= count and most <= high else "does_not_hold" if most < low or count > high else None
    reasons = []
    if verdict is None and dropped:
        reasons.append(f"{dropped} requests of the time that is meant have left the log: raise --keep-requests")
    if verdict is None and unclear:
        reasons.append(f"too little is known of {unclear} requests: a body was cut, or the answer is still to come")
    misses.sort(key=lambda miss: (len(miss[1]), -miss[0].number))
    return Json(
        {
            "holds": verdict == "holds",
            "verdict": verdict or "inconclusive",
            "count": count,
            "unknown": most - count,
            "reason": "; ".join(reasons) or None,
            "nearest": [_near_miss(*miss) for miss in misses[:_NEAREST]],
        }
    )


def _near_miss(exchange: Exchange, differences: Sequence[Difference]) -> dict[str, Any]:
    return {
        "id": str(exchange.number) if exchange.number else None,
        "method": exchange.method,
        "path": mask_path(exchange.path.decode("latin-1"))[:_TEXT_MAX],
        "status": exchange.status,
        "differs": [
            {"field": one.field, "wanted": one.wanted, "found": one.found and mask_path(mask_keys(one.found))}
            for one in differences
        ],
    }


@router.get(f"{_PATH}/{{logged_id}}", response_model=LoggedRequest, responses=answers(404, 409))
async def show_request(call: CallDep, logged_id: str) -> Response:
    """One request and its answer."""
    log = _log_of(call.service)
    exchange = next((one for one in log.kept if str(one.number) == logged_id), None)
    if exchange is None:
        text = f"There is no request {logged_id[:80]!r} in the log; it keeps the last {log.keep:,}."
        raise ApiError(404, "request_not_found", text)
    return Json(exchange.show(call.service))
