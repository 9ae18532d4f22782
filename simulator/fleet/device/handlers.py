"""Commands that a virtual device understands: the handlers of a climate node, and how long each takes.

The payloads are checked as in the real agent, and the words for refusals are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from pydantic import BaseModel, Field, ValidationError

from agent.core.admission import CommandRules
from agent.core.commands import HandlerRule
from agent.core.values import Contract, JsonObject, Moment, Outcome, OutcomeStatus
from agent.handlers.base import HandlerPayload
from agent.handlers.basic import Ping, ReadSensors, SetInterval
from agent.wire.encoding import to_rfc3339
from agent.wire.models import describe_faults

HANDLER_KEY: Final = "command"
SENSOR: Final = "climate"
"""The one sensor of a climate node, as commands call it."""


class SlowPayload(HandlerPayload):
    """The payload of work that takes time."""

    seconds: float = Field(default=1.0, ge=0, le=600)


@dataclass(frozen=True, slots=True)
class HandlerContext:
    """What a handler knows of its device.

    Attributes:
        now: the current time.
        values: what its sensors read now.
        interval_s: how often they are read by default.
    """

    device_id: str
    now: Moment
    values: Mapping[str, float]
    interval_s: float


@dataclass(frozen=True, slots=True)
class Work:
    """What a handler does with a command.

    Attributes:
        duration_s: how long it takes.
        outcome: how it ends.
        interval_s: the new period of the sensors; None leaves it.
    """

    outcome: Outcome
    duration_s: float = 0.0
    interval_s: float | None = None


Handle = Callable[[Any, HandlerContext], Work]


@dataclass(frozen=True, slots=True)
class VirtualHandler:
    """One handler.

    Attributes:
        contract: decides what happens after a power loss in the middle of it.
        payload: the model of the payload without the member that names the handler.
        handle: does the work; pure.
    """

    contract: Contract
    payload: type[BaseModel]
    handle: Handle


def _succeeded(result: JsonObject, duration_s: float = 0.0, interval_s: float | None = None) -> Work:
    return Work(Outcome(OutcomeStatus.SUCCEEDED, result), duration_s, interval_s)


def _rejected(code: str, sentence: str) -> Work:
    return Work(Outcome(OutcomeStatus.REJECTED, error=f"{code}: {sentence}"))


def _ping(payload: Ping.Payload, around: HandlerContext) -> Work:
    result = {"pong": True, "echo": payload.echo, "agent_time": to_rfc3339(around.now.wall_s)}
    return _succeeded({**result, "device_id": around.device_id})


def _read_sensors(payload: ReadSensors.Payload, around: HandlerContext) -> Work:
    for name in payload.names or ():
        if name != SENSOR:
            return _rejected("unknown_sensor", f"this device has no sensor named {name[:80]!r}: it has {SENSOR!r}")
    return _succeeded({"readings": {SENSOR: dict(around.values)}, "errors": {}}, duration_s=0.05)


def _set_interval(payload: SetInterval.Payload, around: HandlerContext) -> Work:
    if payload.name != SENSOR:
        return _rejected("unknown_name", f"this device has no interval named {payload.name[:80]!r}: it has {SENSOR!r}")
    interval_s = around.interval_s if payload.interval_s is None else payload.interval_s
    return _succeeded({"name": payload.name, "interval_s": interval_s}, interval_s=interval_s)


def _open_valve(payload: SlowPayload, _: HandlerContext) -> Work:
    return _succeeded({"opened_s": payload.seconds}, duration_s=payload.seconds)


def _self_test(payload: SlowPayload, around: HandlerContext) -> Work:
    return _succeeded({"passed": True, "checked": sorted(around.values)}, duration_s=payload.seconds)


VOCABULARY: Final[Mapping[str, VirtualHandler]] = MappingProxyType(
    {
        "ping": VirtualHandler(Contract.IDEMPOTENT, Ping.Payload, _ping),
        "read_sensors": VirtualHandler(Contract.IDEMPOTENT, ReadSensors.Payload, _read_sensors),
        "set_interval": VirtualHandler(Contract.IDEMPOTENT, SetInterval.Payload, _set_interval),
        "open_valve": VirtualHandler(Contract.ONCE, SlowPayload, _open_valve),
        "self_test": VirtualHandler(Contract.IDEMPOTENT, SlowPayload, _self_test),
    }
)
"""The climate node's handlers; each has a lane of its own."""


def _judge(payload: JsonObject) -> str | None:
    handler = VOCABULARY.get(str(payload.get(HANDLER_KEY)))
    return None if handler is None else payload_fault(handler, payload)


RULES: Final = CommandRules(
    {name: HandlerRule(handler.contract, name) for name, handler in VOCABULARY.items()}, _judge, HANDLER_KEY
)
"""The rules of the core's admission for devices with these handlers."""


def parse_payload(handler: VirtualHandler, payload: JsonObject) -> BaseModel:
    """The payload as the handler's model.

    Raises:
        ValidationError: it is not what the model asks for.
    """
    return handler.payload.model_validate({name: value for name, value in payload.items() if name != HANDLER_KEY})


def payload_fault(handler: VirtualHandler, payload: JsonObject) -> str | None:
    """Why the handler cannot take this payload, as ``invalid_payload: sentence``; None when it can."""
    try:
        parse_payload(handler, payload)
    except ValidationError as error:
        return f"invalid_payload: {describe_faults(error)}"
    return None
