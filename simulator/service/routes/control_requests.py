"""``/_emulator/requests``: what the service was sent and what it answered. Loopback callers only."""

from __future__ import annotations

from typing import Annotated, Any, Final, Self

from pydantic import Field, model_validator
from typing_extensions import TypedDict

from agent.errors import InvalidMessage
from agent.wire.base import Sent, Text, WireTime
from agent.wire.times import parse_time
from simulator.service.addresses import CONTROL_PREFIX
from simulator.service.answers import NO_CONTENT, Answer, ok
from simulator.service.call import Call, check
from simulator.service.endpoints import ERROR, Endpoint, Parameter, Reply
from simulator.service.errors import Conflict, NotFound, invalid
from simulator.service.logged_requests import (
    HOLDS,
    Expectation,
    MatchResult,
    Selection,
    check_headers,
    judge,
    read_statuses,
    verify,
)
from simulator.service.matching import RequestMatch
from simulator.service.paging import PAGE_PARAMETERS, by_seq, read_page, take
from simulator.service.parameters import PAGING, TIME, text_filter
from simulator.service.request_log.entry import Entry
from simulator.service.request_log.records import LoggedRequestRecord
from simulator.service.request_log.store import RequestLog
from simulator.service.request_matches import find_matcher
from simulator.service.service import Service

PATH: Final = f"{CONTROL_PREFIX}requests"
_TAG: Final = "control"
_MATCHED_BY: Final = ("method", "path", "device_id", "product_id", "account_id", "api_key")
HEADER: Final = "headers."
FILTERS: Final = frozenset({*_MATCHED_BY, "status", "since", "after", "text"})
_DIGITS: Final = 18
_COUNT_MAX: Final = 1_000_000_000


async def list_requests(call: Call) -> Answer:
    """The requests that are kept, newest first."""
    query = call.query(PAGE_PARAMETERS | FILTERS, prefix=HEADER)
    log = log_of(call.service)
    page = read_page(call, query, default_order="desc", sort_values=1)
    selection = await read_selection(call, query)
    entries = log.entries()
    if page.after is not None:
        seq = page.after[0]
        entries = [one for one in entries if (one.seq > seq if page.ascending else one.seq < seq)]
    judged = await judge(call.service, entries if page.ascending else entries[::-1], selection)
    rows = (one.entry for one in judged if one.fits)
    return take(rows, page, lambda entry: show_entry(call.service, entry)).answer(page, by_seq)


async def read_selection(call: Call, query: dict[str, str]) -> Selection:
    """The filters of a query.

    Raises:
        Invalid: one cannot be used.
    """
    members: dict[str, Any] = {name: query[name] for name in _MATCHED_BY if name in query}
    headers = {name.removeprefix(HEADER): value for name, value in query.items() if name.startswith(HEADER)}
    wanted = check(RequestMatch, members | ({"headers": headers} if headers else {}), is_control=True)
    check_headers(wanted, "")
    matcher = await find_matcher(call.service, wanted, "") if members or headers else None
    return Selection(
        matcher,
        statuses=read_statuses(query["status"]) if "status" in query else None,
        since_ms=_read_time(query["since"]) if "since" in query else None,
        after=_read_seq(query["after"], "after") if "after" in query else None,
        text=query.get("text"),
    )


def _read_time(value: str | int) -> int:
    try:
        return round(parse_time(value) * 1000)
    except InvalidMessage as exc:
        raise invalid("since", str(exc)) from None


def _read_seq(text: str, field: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS):
        raise invalid(field, "must be the id of a logged request")
    return int(text)


def log_of(service: Service) -> RequestLog:
    """The log.

    Raises:
        Conflict: it is off.
    """
    if not service.requests.keep:
        raise Conflict("request_log_off", "The service keeps no requests: start it with --keep-requests above 0.")
    return service.requests


def show_entry(service: Service, entry: Entry) -> LoggedRequestRecord:
    """A request as the control surface shows it."""
    account = None
    if entry.caller is not None:
        seq = entry.caller.manufacturer_seq
        account = next((one.api_key for one in service.callers.values() if one.manufacturer_seq == seq), None)
    return entry.show(account)


def find_entry(call: Call) -> Entry:
    """The request that the path names.

    Raises:
        NotFound: it is not there, or no longer.
    """
    request_id = call.path("logged_id")
    log = log_of(call.service)
    entry = log.find(int(request_id)) if request_id.isdigit() and len(request_id) <= _DIGITS else None
    if entry is None:
        text = f"There is no request {request_id[:80]!r} in the log; it keeps the last {log.keep:,}."
        raise NotFound("request_not_found", text)
    return entry


async def show_request(call: Call) -> Answer:
    """One request."""
    return ok(show_entry(call.service, find_entry(call)))


async def clear_requests(call: Call) -> Answer:
    """Forget all requests, those that are under way too."""
    call.service.requests.clear()
    return NO_CONTENT


Count = Annotated[int, Field(ge=0, le=_COUNT_MAX)]


class VerifyBody(Sent):
    """Which requests are expected, and how many of them."""

    match: RequestMatch
    exactly: Count | None = None
    at_least: Count | None = None
    at_most: Count | None = None
    status: Annotated[Text | None, Field(description="Of the answer: `404`, or `4xx`.")] = None
    since: Annotated[WireTime | None, Field(description="Received then or later, by the service's clock.")] = None
    after: Annotated[Text | None, Field(description="Only requests after the one with this id.")] = None
    text: Annotated[Text | None, Field(description="Path, query, body or answer hold this text.")] = None

    @model_validator(mode="after")
    def _check_count_given(self) -> Self:
        if self.exactly is None and self.at_least is None and self.at_most is None:
            raise ValueError("say how many requests are expected: exactly, at_least or at_most")
        if self.exactly is not None and (self.at_least is not None or self.at_most is not None):
            raise ValueError("exactly stands alone: leave at_least and at_most out")
        if self.at_least is not None and self.at_most is not None and self.at_least > self.at_most:
            raise ValueError("at_least is greater than at_most: nothing can be both")
        return self

    def expectation(self) -> Expectation:
        """How many are expected."""
        if self.exactly is not None:
            return Expectation(self.exactly, self.exactly)
        return Expectation(self.at_least or 0, self.at_most)


class DifferenceRecord(TypedDict):
    """What of a request does not fit a match."""

    field: str
    wanted: str | None
    found: str | None


class NearMissRecord(TypedDict):
    """A request that nearly fits; ``id`` is null while it has no answer."""

    id: str | None
    method: str
    path: str
    status: int | None
    differs: list[DifferenceRecord]


class VerifyRecord(TypedDict):
    """Whether as many requests came as were expected.

    ``verdict`` is ``holds``, ``does_not_hold`` or ``inconclusive``; ``holds`` is true for the first alone. ``count``
    requests fit, those without an answer yet included; up to ``unknown`` more may: they have left the log, or too
    little of them was kept.
    """

    holds: bool
    verdict: str
    count: int
    unknown: int
    reason: str | None
    nearest: list[NearMissRecord]


async def verify_requests(call: Call) -> Answer:
    """Whether as many requests came as were expected."""
    wanted = await call.message(VerifyBody)
    service, log = call.service, log_of(call.service)
    check_headers(wanted.match)
    selection = Selection(
        await find_matcher(service, wanted.match),
        statuses=None if wanted.status is None else read_statuses(wanted.status),
        since_ms=None if wanted.since is None else _read_time(wanted.since),
        after=None if wanted.after is None else _read_seq(wanted.after, "after"),
        text=wanted.text,
    )
    dropped = log.dropped_since(selection.since_ms, selection.after)
    judged = await judge(service, [*log.entries(), *log.entries_under_way()], selection)
    done = verify(judged, dropped, wanted.expectation())
    record: VerifyRecord = {
        "holds": done.verdict == HOLDS,
        "verdict": done.verdict,
        "count": done.count,
        "unknown": done.unknown,
        "reason": done.reason,
        "nearest": [_near_miss(one) for one in done.nearest],
    }
    return ok(record)


def _near_miss(judged: MatchResult) -> NearMissRecord:
    entry = judged.entry
    return {
        "id": str(entry.seq) if entry.seq else None,
        "method": entry.method,
        "path": entry.path,
        "status": entry.status,
        "differs": [{"field": one.field, "wanted": one.wanted, "found": one.found} for one in judged.differences],
    }


_INVALID: Final = Reply(400, "A filter cannot be used, or names nothing that exists", ERROR)
_NOT_FOUND: Final = Reply(404, "`request_not_found`: it is not in the log, or no longer", ERROR)
_OFF: Final = Reply(409, "`request_log_off`: the service keeps no requests", ERROR)
FILTER_PARAMETERS: Final = (
    text_filter("method", "Such as `POST`"),
    text_filter("path", "A path template of the documents, or a path with ids in it"),
    text_filter("device_id", "A device that path, query or body name"),
    text_filter("product_id", "A product that the request names, or whose device it names"),
    text_filter("account_id", "The account: its id or one of its public keys"),
    text_filter("api_key", "One public key"),
    text_filter("headers.<name>", "A header's value, in which `*` stands for any text"),
    Parameter("status", "Of the answer", {"type": "string", "pattern": "^[1-5]([0-9]{2}|xx)$"}),
    Parameter("since", "Received then or later, by the service's clock", TIME),
    text_filter("after", "Only those that ended after the one with this id"),
    text_filter("text", "What path, query, body or answer hold, without regard to case"),
)

ENDPOINTS: Final = (
    Endpoint(
        "GET",
        PATH,
        list_requests,
        "list_requests",
        "The last requests and their answers, secrets masked, in the order in which they ended, newest first",
        _TAG,
        (Reply(200, "One page of requests", LoggedRequestRecord, listed=True), _INVALID, _OFF),
        parameters=(*FILTER_PARAMETERS, *PAGING),
        public=True,
    ),
    Endpoint(
        "DELETE",
        PATH,
        clear_requests,
        "clear_requests",
        "Forget all requests, those that are under way too",
        _TAG,
        (Reply(204, "Done"),),
        public=True,
    ),
    Endpoint(
        "POST",
        f"{PATH}/verify",
        verify_requests,
        "verify_requests",
        "Whether as many requests came as were expected; those under way count, without a status",
        _TAG,
        (Reply(200, "What came", VerifyRecord), Reply(400, "The body is not valid", ERROR), _OFF),
        body=(VerifyBody,),
        public=True,
    ),
    Endpoint(
        "GET",
        f"{PATH}/{{logged_id}}",
        show_request,
        "show_request",
        "One request and its answer",
        _TAG,
        (Reply(200, "The request", LoggedRequestRecord), _NOT_FOUND, _OFF),
        public=True,
    ),
)
