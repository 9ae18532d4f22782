"""``/_emulator/clock``: the one clock that quota windows, expiry, presence and rules go by."""

from __future__ import annotations

from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from agent.errors import InvalidMessage
from agent.wire.base import Sent, WireTime
from agent.wire.times import parse_time
from simulator.service.addresses import CONTROL_PREFIX
from simulator.service.answers import Answer, ok
from simulator.service.call import Call
from simulator.service.clock import LATEST_MS, ClockMode
from simulator.service.endpoints import ERROR, Endpoint, Reply
from simulator.service.errors import invalid
from simulator.service.records import ClockRecord
from simulator.service.times import show_time

RATE_MAX: Final = 100_000
SECONDS_MAX: Final = 100 * 366 * 86_400
_TAG: Final = "control"
_PATH: Final = f"{CONTROL_PREFIX}clock"


class SetClock(Sent):
    """``PUT /_emulator/clock``.

    Attributes:
        time: the instant to begin at; now when it is missing. Not with ``real``.
        offset_s: seconds between the machine's clock and this one, instead of ``time``; with ``offset`` only.
        rate: seconds for each second of the machine; with ``scaled`` only.
    """

    mode: Literal["real", "offset", "frozen", "scaled"]
    time: WireTime | None = None
    offset_s: Annotated[float, Field(ge=-SECONDS_MAX, le=SECONDS_MAX)] | None = None
    rate: Annotated[float, Field(gt=0, le=RATE_MAX)] | None = None

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if (self.rate is not None) != (self.mode == "scaled"):
            raise ValueError("rate belongs to mode scaled, and is needed there")
        if self.offset_s is not None and self.mode != "offset":
            raise ValueError("offset_s belongs to mode offset")
        if self.time is not None and self.mode == "real":
            raise ValueError("mode real has the machine's time: leave time out")
        if self.mode == "offset" and (self.time is None) == (self.offset_s is None):
            raise ValueError("mode offset needs time or offset_s, one of them")
        return self


class AdvanceClock(Sent):
    """``POST /_emulator/clock/advance``: by ``seconds``, or ``to`` an instant."""

    seconds: Annotated[float, Field(ge=0, le=SECONDS_MAX)] | None = None
    to: WireTime | None = None

    @model_validator(mode="after")
    def _says_one(self) -> Self:
        if (self.seconds is None) == (self.to is None):
            raise ValueError("give seconds or to, one of them")
        return self


async def show_clock(call: Call) -> Answer:
    """What time it is for the service."""
    return ok(_shown(call))


async def set_clock(call: Call) -> Answer:
    """Set the clock. Forward, what falls due on the way is carried out first; backward, nothing is undone."""
    wanted = await call.message(SetClock)
    clock = call.service.clock
    mode = ClockMode(wanted.mode)
    at_ms = clock.now_ms()
    if mode is ClockMode.REAL:
        at_ms = clock.base_ms()
    elif wanted.offset_s is not None:
        at_ms = clock.base_ms() + round(wanted.offset_s * 1000)
    elif wanted.time is not None:
        at_ms = _instant(wanted.time)
    _check_range(at_ms)
    if at_ms > clock.now_ms():
        await _advance(call, at_ms)
    clock.follow(mode, at_ms, wanted.rate or 1.0)
    call.service.scripted.tick(clock.now_ms())
    return ok(_shown(call))


async def advance_clock(call: Call) -> Answer:
    """Move the clock forward; what falls due on the way is carried out, oldest first, before the answer."""
    wanted = await call.message(AdvanceClock)
    now_ms = call.service.clock.now_ms()
    to_ms = now_ms + round((wanted.seconds or 0) * 1000) if wanted.to is None else _instant(wanted.to)
    if to_ms < now_ms:
        raise invalid("to", f"lies before the service's time, {show_time(now_ms)}: PUT {_PATH} sets it back")
    _check_range(to_ms)
    await _advance(call, to_ms)
    call.service.scripted.tick(call.service.clock.now_ms())
    return ok(_shown(call))


async def _advance(call: Call, to_ms: int) -> None:
    """As :meth:`~simulator.service.due.Due.advance`; what devices began before is done before, too."""
    service = call.service
    await service.scripted.finish()
    await service.due.advance(to_ms)
    await service.scripted.finish()


def _instant(time: str | int) -> int:
    try:
        return round(parse_time(time) * 1000)
    except InvalidMessage as exc:
        raise invalid("time", str(exc)) from None


def _check_range(at_ms: int) -> None:
    if not 0 <= at_ms <= LATEST_MS - SECONDS_MAX * 1000:
        raise invalid("time", "the clock goes from 1970 to 9899")


def _shown(call: Call) -> ClockRecord:
    clock = call.service.clock
    return {
        "time": show_time(clock.now_ms()),
        "mode": clock.mode.value,
        "rate": clock.rate,
        "system_time": show_time(clock.base_ms()),
    }


_INVALID: Final = Reply(400, "The body is not valid", ERROR)

ENDPOINTS: Final = (
    Endpoint(
        "GET",
        _PATH,
        show_clock,
        "show_clock",
        "What time it is for the service",
        _TAG,
        (Reply(200, "The clock", ClockRecord),),
        public=True,
    ),
    Endpoint(
        "PUT",
        _PATH,
        set_clock,
        "set_clock",
        "Set, stop or speed up the clock",
        _TAG,
        (Reply(200, "The clock", ClockRecord), _INVALID),
        body=(SetClock,),
        public=True,
    ),
    Endpoint(
        "POST",
        f"{_PATH}/advance",
        advance_clock,
        "advance_clock",
        "Move the clock forward and carry out what falls due",
        _TAG,
        (Reply(200, "The clock", ClockRecord), _INVALID),
        body=(AdvanceClock,),
        public=True,
    ),
)
