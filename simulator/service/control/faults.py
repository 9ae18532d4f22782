"""``/_emulator/faults`` and the header ``X-Emulator-Fault``: requests that fail on purpose, as behind a bad proxy.

Rules are asked in the order in which they were added. One that fits and is due has its effect and counts a hit. A
latency lets the rules after it be asked, so latencies add up; any other effect ends it.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections import deque
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    Field,
    StringConstraints,
    ValidationError,
    model_validator,
)
from pydantic_core import to_json
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agent.errors import InvalidMessage
from agent.wire.encoding import parse_json
from agent.wire.limits import BODY_BYTES, INT_MAX
from agent.wire.models import Sent, list_faults
from simulator.service.caller import check_control, headers_of, is_local, is_observer
from simulator.service.connections import until_gone
from simulator.service.control.matching import Facts, Matcher, RequestMatch, make_matcher, read_facts
from simulator.service.errors import ApiError, conflict, invalid, invalid_all, not_found
from simulator.service.gate import CONSOLE_PREFIX, CONTROL_PREFIX, http_date, send_error
from simulator.service.http import CallDep, Json, Router, answers, created, no_content
from simulator.service.times import show_time

if TYPE_CHECKING:
    from simulator.service.service import Service

FAULT_HEADER: Final = b"x-emulator-fault"
"""Request header: an effect for this request alone."""
ONE_SHOT: Final = "header"
"""Instead of a fault's id, for the effect of the header."""
RULES_MAX: Final = 100
HELD_MAX_S: Final = 600.0
"""The longest time that one rule holds a request, seconds."""
_NAME: Final = r"^[A-Za-z0-9!#$%&'*+.^_`|~-]+$"
_VALUE: Final = r"^[\t\x20-\x7e\u00a0-\u00ff]*$"
_WITHOUT_BODY: Final = frozenset({204, 205, 304})

Seconds = Annotated[float, Field(ge=0, le=HELD_MAX_S, allow_inf_nan=False)]
Side = Literal["request", "answer"]
"""``request``: before the request is carried out, which it then is not. ``answer``: after it was carried out."""


# --- a fault as it is sent ----------------------------------------------------------------------------------------


class FaultTimes(Sent):
    """When a request that fits meets the effect: when all that is given holds; always when nothing is."""

    after: Annotated[int, Field(ge=0, le=INT_MAX, description="Not the first so many that fit.")] | None = None
    next: Annotated[int, Field(ge=1, le=INT_MAX, description="So many times, then never again.")] | None = None
    probability: Annotated[float, Field(gt=0, le=1, description="Of each request.")] | None = None


class Latency(Sent):
    """A time that is waited: fixed, or uniform between two.

    Of the ``answer``: the request is carried out at once and its answer held. Of the ``request``: it is carried out
    after the time, and not at all when its caller leaves before.
    """

    fixed_s: Seconds | None = None
    min_s: Seconds | None = None
    max_s: Seconds | None = None
    of: Side = "answer"

    @model_validator(mode="after")
    def _is_one_distribution(self) -> Self:
        given = {name for name in ("fixed_s", "min_s", "max_s") if getattr(self, name) is not None}
        if given not in ({"fixed_s"}, {"min_s", "max_s"}):
            raise ValueError("give fixed_s; or min_s and max_s")
        if (self.min_s or 0) > (self.max_s or 0):
            raise ValueError("min_s is larger than max_s")
        return self

    def draw(self, random: Random) -> float:
        """How long one request waits, seconds."""
        return self.fixed_s if self.fixed_s is not None else random.uniform(self.min_s or 0, self.max_s or 0)


class ChosenAnswer(Sent):
    """An answer instead of the service's; the request is not carried out.

    ``body`` is text or a JSON value; left out, a status of 400 or more has the error body ``injected_fault``.
    """

    status: Annotated[int, Field(ge=200, le=599)]
    headers: Annotated[
        dict[
            Annotated[str, StringConstraints(max_length=100, pattern=_NAME)],
            Annotated[str, StringConstraints(max_length=4000, pattern=_VALUE)],
        ],
        Field(max_length=50),
    ] = Field(default_factory=dict)
    body: Any = None
    retry_after_s: Annotated[int, Field(ge=0, le=10**9, description="As the header Retry-After.")] | None = None

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.body is not None and self.status in _WITHOUT_BODY:
            raise ValueError(f"an answer with the status {self.status} has no body")
        if wrong := [name for name in self.headers if name.lower() in {"content-length", "transfer-encoding"}]:
            raise ValueError(f"{wrong[0]} is made of the body: the effect truncate makes it a wrong one")
        return self

    def response(self) -> Response:
        """The answer to send."""
        body, media_type = self.body, "application/json"
        if body is None and self.status >= 400:
            message = f"A fault of the local service answers {self.status}: GET /_emulator/faults lists all."
            body = {"error": "injected_fault", "message": message}
        if isinstance(body, str):
            media_type = "text/plain"
        content = body.encode() if isinstance(body, str) else b"" if body is None else to_json(body)
        headers = {name.lower(): value for name, value in self.headers.items()}
        if self.retry_after_s is not None:
            headers["retry-after"] = str(self.retry_after_s)
        return Response(content, self.status, headers, None if body is None else media_type)


class Truncate(Sent):
    """The answer's body ends too early; the request is carried out.

    ``after_bytes`` of the body come, and at least one is missing; half of them when it is left out. ``end``: ``close``:
    the connection is closed, ``Content-Length`` says that more would come. ``reset``: the same with a TCP RST.
    ``complete``: ``Content-Length`` fits what comes, so only the JSON text is cut.
    """

    after_bytes: Annotated[int, Field(ge=0, le=INT_MAX)] | None = None
    end: Literal["close", "reset", "complete"] = "close"


def _short(member: str, kind: Any) -> BeforeValidator:
    """A number stands for an object of its most needed member, and ``true`` for an empty object."""

    def lengthen(value: Any) -> Any:
        if value is True:
            return {}
        return {member: value} if isinstance(value, int | float) else value

    return BeforeValidator(lengthen, json_schema_input_type=kind)


class Effect(Sent):
    """What happens, exactly one member: an object, or a text such as ``lose=answer`` or ``latency:min_s=1,max_s=3``.

    ``latency``: a time that is waited. ``answer``: an answer of your choice. ``lose``: the connection is closed without
    an answer, and the ``request`` was not carried out, or was and the ``answer`` is lost. ``reset``: as ``lose``, with
    a TCP RST. ``truncate``: the body ends too early. ``refuse``: a TCP RST as soon as the request's head is there,
    before its body is read, as from a server that has ended.
    """

    latency: Annotated[Latency | None, _short("fixed_s", Seconds | Latency | None)] = None
    answer: Annotated[ChosenAnswer | None, _short("status", int | ChosenAnswer | None)] = None
    lose: Side | None = None
    reset: Side | None = None
    truncate: Annotated[Truncate | None, _short("after_bytes", int | Literal[True] | Truncate | None)] = None
    refuse: Literal[True] | None = None

    @model_validator(mode="before")
    @classmethod
    def _read_text(cls, value: Any) -> Any:
        return _members_of(value) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        given = self.model_dump(exclude_none=True)
        if len(given) != 1:
            raise ValueError(f"must be one effect of {', '.join(Effect.model_fields)}; for two effects add two faults")
        return self


def _members_of(text: str) -> Any:
    """The object that a short text stands for: ``name``, ``name=value``, ``name:member=value,...``, or JSON."""
    text = text.strip()
    if text.startswith("{"):
        try:
            return parse_json(text.encode())
        except InvalidMessage as exc:
            raise ValueError(str(exc)) from None
    name, separator, rest = text.partition(":")
    if separator and "=" not in name:
        pairs = [pair.partition("=") for pair in rest.split(",")]
        return {name: {member.strip(): _value_of(value) for member, _, value in pairs}}
    name, separator, rest = text.partition("=")
    if name not in Effect.model_fields:
        raise ValueError(f"{name[:40]!r} is no effect; effects: {', '.join(Effect.model_fields)}")
    return {name: _value_of(rest) if separator else True}


def _value_of(text: str) -> Any:
    """A number or a truth value where it reads as one, else the text."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, int | float) else text


class NewFault(Sent):
    """Which requests, at which times, with which effect."""

    match: RequestMatch = RequestMatch()
    times: FaultTimes = FaultTimes()
    effect: Effect


class Fault(NewFault):
    """A fault, with how many requests it was asked about and fitted (``matched``), and how many met it (``hits``)."""

    fault_id: str
    matched: int
    hits: int
    created_at: str


# --- the faults of a service --------------------------------------------------------------------------------------


@dataclass(slots=True)
class Rule:
    """One fault, with what has come of it."""

    fault_id: str
    wanted: NewFault
    matcher: Matcher
    created_ms: int
    random: Random
    matched: int = 0
    hits: int = 0

    @property
    def is_used_up(self) -> bool:
        """Whether it has hit as often as it may."""
        return self.wanted.times.next is not None and self.hits >= self.wanted.times.next

    def meets(self, request: Facts) -> bool:
        """Whether this request meets the effect; counts it."""
        times = self.wanted.times
        if self.wanted.effect.truncate is not None and request.method == "HEAD":
            return False
        if self.matcher.differences(request):
            return False
        self.matched += 1
        if self.matched <= (times.after or 0) or self.is_used_up:
            return False
        if times.probability is not None and self.random.random() >= times.probability:
            return False
        self.hits += 1
        return True

    def show(self) -> dict[str, Any]:
        """As the control paths answer it."""
        return {
            "fault_id": self.fault_id,
            **self.wanted.model_dump(mode="json", exclude_none=True),
            "matched": self.matched,
            "hits": self.hits,
            "created_at": show_time(self.created_ms),
        }


class FaultRules:
    """The faults of a service.

    Attributes:
        all: by their ids, in their order.
    """

    def __init__(self, seed: int | None) -> None:
        self._seed = seed
        self.all: dict[str, Rule] = {}
        self._numbers = itertools.count(1)
        self._released = asyncio.Event()
        self._is_closed = False

    def add(self, wanted: NewFault, matcher: Matcher, now_ms: int) -> Rule:
        """A new one, after those that are there.

        Raises:
            ApiError: 409 ``fault_limit_reached``.
        """
        if len(self.all) >= RULES_MAX:
            raise conflict("fault_limit_reached", f"There are {RULES_MAX} faults already: delete some.")
        fault_id = f"f{next(self._numbers)}"
        random = Random() if self._seed is None else Random(f"{self._seed} {fault_id}")  # noqa: S311 - it is no secret
        rule = self.all[fault_id] = Rule(fault_id, wanted, matcher, now_ms, random)
        return rule

    def live(self) -> list[Rule]:
        """Those that may still have an effect."""
        return [rule for rule in self.all.values() if not rule.is_used_up]

    def find(self, fault_id: str) -> Rule:
        """The fault with this id.

        Raises:
            ApiError: 404 ``fault_not_found``.
        """
        if fault_id not in self.all:
            raise not_found("fault", fault_id)
        return self.all[fault_id]

    def clear(self, account: int | None = None) -> None:
        """Delete all, and let go of every request that is held; of an account, only those that name it."""
        kept = [] if account is None else [rule for rule in self.all.values() if rule.matcher.account != account]
        self.all = {rule.fault_id: rule for rule in kept}
        if account is None:
            self._released.set()
            self._released = asyncio.Event()

    def close(self) -> None:
        """The service ends: nothing is held any longer."""
        self._is_closed = True
        self._released.set()

    async def hold(self, wait_s: float, receive: Receive | None = None) -> bool:
        """Wait, or until nothing is to be held; False when ``receive`` says that the caller has left."""
        if self._is_closed:
            return True
        released = asyncio.ensure_future(self._released.wait())
        left = None if receive is None else asyncio.ensure_future(receive())
        waiting: set[asyncio.Future[Any]] = {released} if left is None else {released, left}
        try:
            done, _ = await asyncio.wait(waiting, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waiting:
                one.cancel()
        return left not in done


# --- requests that meet them --------------------------------------------------------------------------------------


class Faults:
    """ASGI middleware that lets requests meet the faults of the service, before keys and quota are looked at."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app = app
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, or the server's start and end."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        header, rules = headers_of(scope).get(FAULT_HEADER), self._service.faults
        is_control = scope["path"].startswith((CONTROL_PREFIX, CONSOLE_PREFIX))
        live = [] if is_control else rules.live()
        if (header is None and not live) or is_observer(self._service, scope):
            await self._app(scope, receive, send)
            return
        met = Meeting(self._service, scope, receive, send)
        try:
            if header is not None:
                met.add(ONE_SHOT, self._read_header(scope, header), Random())  # noqa: S311 - it is no secret
            if met.effect is None and live:
                needs_body = any(rule.wanted.match.device_id is not None for rule in live)
                body = await met.read_body() if needs_body else b""
                if body is None:  # the caller has gone
                    return
                facts = read_facts(self._service, scope, body)
                for rule in rules.live():
                    if met.effect is None and rule.meets(facts):
                        met.add(rule.fault_id, rule.wanted.effect, rule.random)
        except ApiError as error:
            await send_error(send, error)
            return
        if met.fault_ids:
            scope["faults"] = met.fault_ids
            await met.carry_out(self._app)
        else:
            await self._app(scope, met.receive, send)

    def _read_header(self, scope: Scope, header: bytes) -> Effect:
        """The effect that the header names.

        Raises:
            ApiError: 403: it comes from elsewhere; 400: it names none.
        """
        if not (self._service.config.control and is_local(scope)):
            text = "X-Emulator-Fault is for callers on this machine, of a service that has its control paths."
            raise ApiError(403, "control_off", text)
        check_control(self._service, scope, needs_token=True)
        if scope["path"].startswith(CONTROL_PREFIX):
            raise invalid("X-Emulator-Fault", "control paths meet no faults")
        try:
            effect = Effect.model_validate(header.decode("latin-1"))
        except ValidationError as exc:
            raise invalid_all([(f"X-Emulator-Fault {field}", issue) for field, issue in list_faults(exc)]) from None
        if effect.truncate is not None and scope["method"] == "HEAD":
            raise invalid("X-Emulator-Fault", "truncate has no effect: the answer to a HEAD has no body")
        return effect


class Meeting:
    """One request and the faults that it meets, from reading its body to sending its answer.

    Attributes:
        fault_ids: of those that it meets.
        effect: besides latencies; None for none.
    """

    def __init__(self, service: Service, scope: Scope, receive: Receive, send: Send) -> None:
        self.fault_ids: list[str] = []
        self.effect: Effect | None = None
        self._service, self._scope, self._later, self._send = service, scope, receive, send
        self._waits_s: dict[Side, float] = {"request": 0.0, "answer": 0.0}
        self._read: deque[Message] = deque()
        self._is_read = False
        self._left: int | None = None
        """How many bytes of the answer's body still go out, where it is cut and that is known."""
        self._is_over = self._is_ended = False
        """Nothing more is sent; the connection was ended."""

    def add(self, fault_id: str, effect: Effect, random: Random) -> None:
        """Have the request meet this too."""
        self.fault_ids.append(fault_id)
        if effect.latency is None:
            self.effect = effect
        else:
            self._waits_s[effect.latency.of] += effect.latency.draw(random)

    async def read_body(self) -> bytes | None:
        """The whole body, or its beginning where it is larger than the service takes; None when the caller has gone.

        The service reads it all the same, by :meth:`receive`.
        """
        size = sum(len(message.get("body", b"")) for message in self._read)
        while not self._is_read and size <= BODY_BYTES:
            message = await self._later()
            if message["type"] == "http.disconnect":
                return None
            self._read.append(message)
            size += len(message.get("body", b""))
            self._is_read = not message.get("more_body")
        return b"".join(message.get("body", b"") for message in self._read)

    async def receive(self) -> Message:
        """What was read already, then what comes after it."""
        return self._read.popleft() if self._read else await self._later()

    async def carry_out(self, app: ASGIApp) -> None:
        """Let the request meet them."""
        effect = self.effect or Effect.model_construct()
        if effect.refuse:
            await self._end(reset=True)
            await until_gone(self._later)
            return
        # A connection that is closed while something of the request is unread ends with a RST.
        if await self.read_body() is None:
            return
        wait_s = self._waits_s["request"] + (self._waits_s["answer"] if effect.answer is not None else 0.0)
        if wait_s and not await self._service.faults.hold(wait_s, self._later):
            return
        if effect.answer is not None:
            response = effect.answer.response()
            response.headers.setdefault("date", http_date(self._service.clock.now_ms() // 1000).decode())
            await response(self._scope, self.receive, self._send)
        elif "request" in {effect.lose, effect.reset}:
            await self._end(reset=effect.reset is not None)
        else:
            await app(self._scope, self.receive, self._send_on)
        if self._is_ended:
            await until_gone(self._later)

    async def _end(self, *, reset: bool) -> None:
        self._is_over = self._is_ended = True
        await self._service.connections.end(self._scope, reset=reset)

    async def _send_on(self, message: Message) -> None:
        """One message of the service's answer."""
        if self._is_over:
            return
        if message["type"] == "http.response.start" and self._waits_s["answer"]:
            await self._service.faults.hold(self._waits_s["answer"])
        effect = self.effect
        if effect is None:
            await self._send(message)
        elif effect.truncate is None:
            await self._end(reset=effect.reset is not None)
        elif message["type"] == "http.response.start":
            await self._send(self._sized(message, effect.truncate))
        else:
            await self._truncate(message, effect.truncate)

    async def _truncate(self, message: Message, wanted: Truncate) -> None:
        piece: bytes = message.get("body", b"")
        if self._left is None and piece:
            self._left = len(piece) // 2  # of a stream, the first piece that has something in it
        left = len(piece) if self._left is None else self._left
        if len(piece) <= left:
            self._left = None if self._left is None else left - len(piece)
            await self._send(message)
            return
        self._is_over = True
        is_complete = wanted.end == "complete"
        await self._send({"type": "http.response.body", "body": piece[:left], "more_body": not is_complete})
        if not is_complete:
            await self._end(reset=wanted.end == "reset")

    def _sized(self, start: Message, wanted: Truncate) -> Message:
        """Find out where the body ends; with ``complete`` that is its length."""
        self._left = wanted.after_bytes
        length = next((int(value) for name, value in start["headers"] if name == b"content-length"), 0)
        if not length:  # a stream, or nothing that could be cut
            return start
        self._left = length // 2 if self._left is None else min(self._left, length - 1)
        if wanted.end != "complete":
            return start
        others = [one for one in start["headers"] if one[0] != b"content-length"]
        return {**start, "headers": [*others, (b"content-length", b"%d" % self._left)]}


# --- the control paths --------------------------------------------------------------------------------------------

router = Router("faults")
_PATH: Final = f"{CONTROL_PREFIX}faults"


class FaultList(BaseModel):
    """All faults."""

    data: list[Fault]


@router.get(_PATH, response_model=FaultList)
async def list_all_faults(call: CallDep) -> Response:
    """All faults, in the order in which they are asked."""
    return Json({"data": [rule.show() for rule in call.service.faults.all.values()]})


@router.post(_PATH, status_code=201, response_model=Fault, responses=answers(409))
async def add_fault(call: CallDep, body: NewFault) -> Response:
    """Make requests meet a fault, asked after those that are there."""
    matcher = make_matcher(call.service, body.match)
    rule = call.service.faults.add(body, matcher, call.now_ms)
    return created(rule.show(), f"{_PATH}/{rule.fault_id}")


@router.delete(_PATH, status_code=204)
async def remove_faults(call: CallDep) -> Response:
    """Delete all faults; requests that are held go on."""
    call.service.faults.clear()
    return no_content()


@router.get(f"{_PATH}/{{fault_id}}", response_model=Fault, responses=answers(404))
async def show_fault(call: CallDep, fault_id: str) -> Response:
    """One fault, with how often it was met."""
    return Json(call.service.faults.find(fault_id).show())


@router.delete(f"{_PATH}/{{fault_id}}", status_code=204, responses=answers(404))
async def remove_fault(call: CallDep, fault_id: str) -> Response:
    """Delete one fault; what it holds goes on being held."""
    del call.service.faults.all[call.service.faults.find(fault_id).fault_id]
    return no_content()
