"""``/_emulator/clock``: the one clock that quota windows, expiry, presence and rules go by."""

from __future__ import annotations

from typing import Annotated, Final, Literal, Self

from pydantic import BaseModel, Field, model_validator
from starlette.responses import Response

from agent.wire.encoding import parse_time
from agent.wire.models import Sent, WireTime
from simulator.service.clock import LATEST_MS, ClockMode
from simulator.service.errors import invalid
from simulator.service.gate import CONTROL_PREFIX
from simulator.service.http import Call, CallDep, Json, Router
from simulator.service.times import show_time

SECONDS_MAX: Final = 100 * 366 * 86_400
_PATH: Final = f"{CONTROL_PREFIX}clock"

router = Router("clock")


class SetClock(Sent):
    """How the clock goes on: as the machine's, from another instant, or standing still."""

    mode: Literal["real", "offset", "frozen"]
    time: Annotated[WireTime | None, Field(description="Where it begins; now without it.")] = None
    offset_s: Annotated[
        float | None,
        Field(ge=-SECONDS_MAX, le=SECONDS_MAX, description="Seconds before the machine's clock, instead of `time`."),
    ] = None

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.offset_s is not None and self.mode != "offset":
            raise ValueError("offset_s belongs to mode offset")
        if self.time is not None and self.mode == "real":
            raise ValueError("mode real has the machine's time: leave time out")
        if self.mode == "offset" and (self.time is None) == (self.offset_s is None):
            raise ValueError("mode offset needs time or offset_s, one of them")
        return self


class AdvanceClock(Sent):
    """By ``seconds``, or ``to`` an instant."""

    seconds: Annotated[float, Field(ge=0, le=SECONDS_MAX)] | None = None
    to: WireTime | None = None

    @model_validator(mode="after")
    def _says_one(self) -> Self:
        if (self.seconds is None) == (self.to is None):
            raise ValueError("give seconds or to, one of them")
        return self


class Clock(BaseModel):
    """What time it is for the service, and for the machine."""

    time: str
    mode: Literal["real", "offset", "frozen"]
    system_time: str


@router.get(_PATH, response_model=Clock)
async def show_clock(call: CallDep) -> Response:
    """What time it is for the service."""
    return _show(call)


@router.put(_PATH, response_model=Clock)
async def set_clock(call: CallDep, body: SetClock) -> Response:
    """Set or stop the clock. Forward, what falls due on the way is carried out first; backward, nothing is undone."""
    clock, mode = call.service.clock, ClockMode(body.mode)
    at_ms = clock.now_ms()
    if mode is ClockMode.REAL:
        at_ms = clock.base_ms()
    elif body.offset_s is not None:
        at_ms = clock.base_ms() + round(body.offset_s * 1000)
    elif body.time is not None:
        at_ms = round(parse_time(body.time) * 1000)
    _check_range(at_ms)
    async with call.service.timers.moving:
        if at_ms > clock.now_ms():
            await call.service.timers.advance(at_ms)
        clock.follow(mode, at_ms)
    call.service.scripted.tick()
    return _show(call)


@router.post(f"{_PATH}/advance", response_model=Clock)
async def advance_clock(call: CallDep, body: AdvanceClock) -> Response:
    """Move the clock forward; what falls due on the way is carried out, oldest first, before the answer."""
    async with call.service.timers.moving:
        now_ms = call.now_ms
        to_ms = round(now_ms + (body.seconds or 0) * 1000 if body.to is None else parse_time(body.to) * 1000)
        if to_ms < now_ms:
            raise invalid("to", f"lies before the service's time, {show_time(now_ms)}: PUT {_PATH} sets it back")
        _check_range(to_ms)
        await call.service.timers.advance(to_ms)
    call.service.scripted.tick()
    return _show(call)


def _check_range(at_ms: int) -> None:
    if not 0 <= at_ms <= LATEST_MS - SECONDS_MAX * 1000:
        raise invalid("time", "the clock goes from 1970 to 9899")


def _show(call: Call) -> Response:
    clock = call.service.clock
    return Json(
        {"time": show_time(clock.now_ms()), "mode": clock.mode.value, "system_time": show_time(clock.base_ms())}
    )
