"""``/_emulator/requests``: the last requests with their answers, and whether as many came as were expected."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self
from urllib.parse import urlencode

from fastapi import Query, Response
from pydantic import BaseModel, ConfigDict, Field, model_validator
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agent.wire.models import Sent, Text
from simulator.service.caller import Caller, is_observer
from simulator.service.control.masking import mask_body, mask_fields, mask_header, mask_keys, mask_path
from simulator.service.control.matching import Difference, Facts, Matcher, RequestMatch, make_matcher, read_facts
from simulator.service.db import one
from simulator.service.errors import ApiError, conflict
from simulator.service.gate import CONSOLE_PREFIX, CONTROL_PREFIX
from simulator.service.http import CallDep, Json, Router, answers, no_content
from simulator.service.paging import PAGE_BYTES, Page, PageQuery
from simulator.service.times import show_time
from simulator.wire import paths

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


@dataclass(slots=True)
class Body:
    """The beginning of a body, and the size of all of it in bytes."""

    kept: bytes = b""
    size: int = 0

    def add(self, piece: bytes) -> None:
        """The next piece of it."""
        self.size += len(piece)
        self.kept += piece[: BODY_BYTES - len(self.kept)]

    @property
    def is_cut(self) -> bool:
        """Whether less than all of it is kept."""
        return len(self.kept) < self.size


@dataclass(slots=True, eq=False)
class Exchange:
    """A request and its answer as they went over the wire, with their secrets: :meth:`show` takes them out.

    Attributes:
        asked: of the request's scope what is kept of it.
        received_ms: when it came, by the service's clock.
        started_s: the same by a clock that nobody sets.
        scope: of the request while it is under way: once it is admitted, its caller stands there.
        number: its place in the order in which requests ended; 0 while it is under way.
        is_complete: the whole answer went out.
        is_gone: the caller was seen to have left.
        outcome: ``answered``; ``caller_gone``; ``no_answer``; ``cut``: the answer began and did not end.
        shown: what was made of it, once it was read.
    """

    asked: Mapping[str, Any]
    received_ms: int
    started_s: float
    scope: Scope | None
    body: Body = field(default_factory=Body)
    status: int | None = None
    answer_headers: Sequence[Header] = ()
    answer: Body = field(default_factory=Body)
    caller: Caller | None = None
    faults: Sequence[str] = ()
    number: int = 0
    duration_s: float = 0.0
    is_complete: bool = False
    is_gone: bool = False
    outcome: str = "answered"
    shown: dict[str, Any] | None = None

    @property
    def path(self) -> str:
        """As it was sent, percent-encoded."""
        return str(self.asked["raw_path"].decode("latin-1"))

    @property
    def size_bytes(self) -> int:
        """What it takes, about."""
        asked = self.asked["raw_path"] + self.asked["query_string"]
        return _ENTRY_BYTES + len(asked) + len(self.body.kept) + len(self.answer.kept)

    @property
    def account(self) -> int | None:
        """The row of the account that it is of; None where it named none, or is not admitted yet."""
        caller = self.caller if self.scope is None else self.scope.get("caller")
        return None if caller is None else caller.account

    def end(self, scope: Scope) -> None:
        """Note what became of it."""
        self.duration_s = time.perf_counter() - self.started_s
        self.scope, self.caller, self.faults = None, scope.get("caller"), scope.get("faults", ())
        announced = _header_of(self.asked["headers"], b"content-length") or ""
        if announced.isdigit():  # one that is refused by its length was not read
            self.body.size = max(self.body.size, int(announced))
        if self.status == CALLER_GONE:
            self.outcome, self.status = "caller_gone", None
        elif not self.is_complete:
            is_left = self.is_gone and not self.faults  # a fault ends the connection itself
            self.outcome = "cut" if self.status else "caller_gone" if is_left else "no_answer"

    def facts(self, service: Service) -> Facts:
        """What a match looks at."""
        return read_facts(service, dict(self.asked), self.body.kept, self.caller)

    def show(self, service: Service) -> dict[str, Any]:
        """As the control paths show it, without secrets."""
        if self.shown is not None:
            return self.shown
        is_partner = self.path in _PARTNER_ACCESS
        answer = _show_message(self.answer_headers, self.answer, is_partner)
        record = {
            "id": str(self.number),
            "received_at": show_time(self.received_ms),
            "duration_ms": round(self.duration_s * 1000, 3),
            "method": self.asked["method"],
            "path": mask_path(self.path)[:_TEXT_MAX],
            "query": mask_fields(self.asked["query_string"].decode("latin-1"))[:_TEXT_MAX],
            "path_template": service.paths.find(self.path)[0],
            "account": None if self.caller is None else _first_key(service, self.caller.account),
            "caller": None if self.caller is None else self.caller.api_key,
            "request_id": _header_of(self.answer_headers, b"x-request-id"),
            "client": self.asked["client"][0] if self.asked["client"] else None,
            "request": _show_message(self.asked["headers"], self.body, is_partner),
            "answer": None if self.status is None else {"status": self.status, **answer},
            "outcome": self.outcome,
            "faults": list(self.faults),
        }
        if self.number:
            self.shown = record
        return record


def _show_message(headers: Sequence[Header], body: Body, is_partner: bool) -> dict[str, Any]:
    shown = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers]
    return {
        "headers": [{"name": name, "value": mask_header(name, value)[:_TEXT_MAX]} for name, value in shown],
        "body": mask_body(body.kept.decode(errors="backslashreplace"), is_partner_access=is_partner),
        "body_bytes": body.size,
        "truncated": body.is_cut,
    }


def _header_of(headers: Iterable[Header], name: bytes) -> str | None:
    return next((value.decode("latin-1") for found, value in headers if found == name), None)


def _first_key(service: Service, account: int) -> str | None:
    query = "SELECT api_key FROM api_keys WHERE account = ? ORDER BY created_at, api_key LIMIT 1"
    row = one(service.db.sql, query, (account,))
    return None if row is None else str(row["api_key"])


class RequestLog:
    """The last requests, in the order in which they ended.

    Attributes:
        kept: oldest first.
        under_way: those without an answer yet; what is cleared meanwhile is not kept when it ends.
    """

    def __init__(self, keep: int) -> None:
        self.keep = keep
        self.kept: deque[Exchange] = deque()
        self.under_way: set[Exchange] = set()
        self._last_dropped = 0
        self._dropped = 0
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
            self._last_dropped = gone.number

    def dropped_after(self, number: int) -> int:
        """How many requests after this one may have left the log, at most."""
        return min(self._dropped, max(0, self._last_dropped - number))

    def clear(self, account: int | None = None) -> None:
        """Forget all requests, those under way too; or those of one account."""

        def is_kept(exchange: Exchange) -> bool:
            return account is not None and exchange.account != account

        self.kept = deque(one for one in self.kept if is_kept(one))
        self.under_way = {one for one in self.under_way if is_kept(one)}
        self._bytes = sum(one.size_bytes for one in self.kept)
        if account is None:
            self._dropped = self._last_dropped = 0


class Recorder:
    """The outermost ASGI layer: notes each request and its answer, and leaves the masking to who reads them."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app = app
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, or the server's start and end."""
        log = self._service.requests
        is_outside = scope["type"] != "http" or not log.keep or is_observer(self._service, scope)
        if is_outside or scope["path"].startswith((CONTROL_PREFIX, CONSOLE_PREFIX)):
            await self._app(scope, receive, send)
            return
        asked = {name: scope[name] for name in ("method", "raw_path", "query_string", "headers", "client")}
        exchange = Exchange(asked, self._service.clock.now_ms(), time.perf_counter(), scope)

        async def note_received() -> Message:
            message = await receive()
            if message["type"] != "http.request":
                exchange.is_gone = True
            else:
                exchange.body.add(message.get("body", b""))
            return message

        def note_sent(message: Message) -> Awaitable[None]:
            if message["type"] == "http.response.body":
                exchange.answer.add(message.get("body", b""))
                exchange.is_complete = not message.get("more_body")
            else:
                exchange.status, exchange.answer_headers = message["status"], message.get("headers", ())
            return send(message)

        log.under_way.add(exchange)
        try:
            await self._app(scope, note_received, note_sent)
        finally:
            exchange.end(scope)
            log.add(exchange)


# --- what is asked ------------------------------------------------------------------------------------------------


LoggedId = Annotated[Text, Field(pattern="^[0-9]{1,18}$")]
Status = Annotated[Text, Field(pattern="^[1-5]([0-9]{2}|xx)$", description="Of the answer: `404`, or `4xx`.")]
Count = Annotated[int, Field(ge=0, le=1_000_000_000)]


class Filters(Sent):
    """What a match does not look at; every one that is given has to fit."""

    status: Status | None = None
    after: Annotated[LoggedId, Field(description="Ended after the request with this id.")] = "0"
    text: Annotated[Text | None, Field(description="Path, query, body or answer hold it, without regard to case.")] = (
        None
    )


class RequestQuery(PageQuery, RequestMatch, Filters):
    """Filters of the list."""

    model_config = ConfigDict(extra="forbid", strict=False, defer_build=False)

    cursor: Annotated[LoggedId | None, Field(description="`next_cursor` of the page before.")] = None


class VerifyRequests(Filters):
    """Which requests are expected, and how many of them."""

    match: RequestMatch
    exactly: Count | None = None
    at_least: Count | None = None
    at_most: Count | None = None

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


def _differences(service: Service, matcher: Matcher, filters: Filters, exchange: Exchange) -> list[Difference]:
    """What of a request does not fit; nothing when it is meant."""
    found = matcher.differences(exchange.facts(service))
    status = None if exchange.status is None else str(exchange.status)
    if filters.status is not None and (status is None or filters.status not in {status, f"{status[0]}xx"}):
        found.append(Difference("status", filters.status, status))
    if filters.text is not None:
        shown = exchange.show(service)  # nothing that is not shown is looked through, or a search would find secrets
        answer = shown["answer"] or {"body": ""}
        texts = [shown["path"], shown["query"], shown["request"]["body"], answer["body"]]
        if filters.text.lower() not in "\n".join(texts).lower():
            found.append(Difference("text", filters.text, None))
    return found


def _is_open(exchange: Exchange, differences: Sequence[Difference]) -> bool:
    """Whether nobody can say if it fits: too little of it is kept, or the rest is still to come."""
    missing = {one.field for one in differences}
    if not exchange.number:
        return bool(missing) and missing <= {"device_id", "status", "text"}
    is_hidden = exchange.body.is_cut and bool(missing) and missing <= {"device_id", "text"}
    return is_hidden or (exchange.answer.is_cut and missing == {"text"})


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


# --- the control paths --------------------------------------------------------------------------------------------

router = Router("requests")
_PATH: Final = f"{CONTROL_PREFIX}requests"


class LoggedHeader(BaseModel):
    """A header; ``value`` is ``**********`` where it holds a secret."""

    name: str
    value: str


class LoggedMessage(BaseModel):
    """Headers and body; ``body`` is cut after 16 KiB, with ``\\xff`` and the like for what is no text in UTF-8."""

    headers: list[LoggedHeader]
    body: str
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


@router.get(_PATH, response_model=Page[LoggedRequest], responses=answers(409))
async def list_requests(call: CallDep, query: Annotated[RequestQuery, Query()]) -> Response:
    """The last requests and their answers, secrets masked, in the order in which they ended, newest first."""
    log, is_oldest_first = _log_of(call.service), query.order == "asc"
    matcher = make_matcher(call.service, query, "")
    kept: Iterable[Exchange] = log.kept if is_oldest_first else reversed(log.kept)
    after, place = int(query.after), None if query.cursor is None else int(query.cursor)
    data: list[dict[str, Any]] = []
    size, has_more = 0, False
    async for exchange in _few_at_once(list(kept)):
        is_before = place is not None and (exchange.number <= place if is_oldest_first else exchange.number >= place)
        if is_before or exchange.number <= after or _differences(call.service, matcher, query, exchange):
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
    log = _log_of(call.service)
    matcher, after = make_matcher(call.service, body.match), int(body.after)
    dropped = log.dropped_after(after)
    count = unclear = 0
    misses: list[tuple[Exchange, list[Difference]]] = []
    async for exchange in _few_at_once([*log.kept, *log.under_way]):
        if 0 < exchange.number <= after:
            continue
        differences = _differences(call.service, matcher, body, exchange)
        count += not differences
        unclear += _is_open(exchange, differences)
        if differences:
            misses.append((exchange, differences))
    low, high = body.expected()
    most = count + unclear + dropped
    verdict = "holds" if low <= count and most <= high else "does_not_hold" if most < low or count > high else None
    reasons = []
    if verdict is None and dropped:
        reasons.append(f"{dropped} requests that may be meant have left the log: raise --keep-requests")
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
        "method": exchange.asked["method"],
        "path": mask_path(exchange.path)[:_TEXT_MAX],
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
