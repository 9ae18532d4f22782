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
from agent.wire.base import describe_faults
from agent.wire.times import to_rfc3339
from simulator.fleet.signals import DeviceRandom, salt_of

HANDLER_KEY: Final = "command"
SENSOR: Final = "climate"
"""The one sensor of a climate node, as commands call it."""


@dataclass(frozen=True, slots=True)
class Firmware:
    """A model's firmware.

    Attributes:
        versions: to their weights.
        update_s: how long an update takes.
        failure_share: which part of them fails.
    """

    versions: Mapping[str, float]
    update_s: float = 60.0
    failure_share: float = 0.0

    def factory_version(self, device: DeviceRandom) -> str:
        """What the device left the factory with."""
        place = device.fraction(salt_of("firmware")) * sum(self.versions.values())
        for version, weight in self.versions.items():
            place -= weight
            if place < 0:
                return version
        return list(self.versions)[-1]

    def fails(self, device_id: str, version: str) -> bool:
        """Whether an update to this version fails on this device; it fails there each time."""
        return DeviceRandom(0, device_id).uniform(salt_of("firmware", "update", version), 0) < self.failure_share


class UpdatePayload(HandlerPayload):
    """Which firmware to have."""

    version: str = Field(min_length=1, max_length=64)


class SlowPayload(HandlerPayload):
    """How long the work takes."""

    seconds: float = Field(default=1.0, ge=0, le=600)


@dataclass(frozen=True, slots=True)
class HandlerContext:
    """What a handler may see of its device.

    Attributes:
        now: this instant.
        values: what its sensors read now.
        interval_s: how often they are read by default.
        version: of its firmware; empty where it does not report one.
        firmware: how its updates go; None where there are none.
    """

    device_id: str
    now: Moment
    values: Mapping[str, float]
    interval_s: float
    version: str = ""
    firmware: Firmware | None = None


@dataclass(frozen=True, slots=True)
class Work:
    """What a handler does with a command.

    Attributes:
        duration_s: how long it takes.
        outcome: how it ends.
        interval_s: the new period of the sensors; None leaves it.
        version: the new firmware at its end; None leaves it.
    """

    outcome: Outcome
    duration_s: float = 0.0
    interval_s: float | None = None
    version: str | None = None


Handle = Callable[[Any, HandlerContext], Work]


@dataclass(frozen=True, slots=True)
class VirtualHandler:
    """One word of the vocabulary.

    Attributes:
        contract: decides what losing the power in the middle of it means.
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
    if around.version:
        result["firmware"] = around.version
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


def _update_firmware(payload: UpdatePayload, around: HandlerContext) -> Work:
    if around.firmware is None:
        return _rejected("no_firmware", "this device has no firmware that could be updated")
    takes_s = around.firmware.update_s
    if around.firmware.fails(around.device_id, payload.version):
        sentence = f"version {payload.version} could not be written; it has {around.version} still"
        return Work(Outcome(OutcomeStatus.FAILED, error=f"update_failed: {sentence}"), takes_s)
    result = {"version": payload.version, "previous": around.version}
    return Work(Outcome(OutcomeStatus.SUCCEEDED, result), takes_s, version=payload.version)


VOCABULARY: Final[Mapping[str, VirtualHandler]] = MappingProxyType(
    {
        "ping": VirtualHandler(Contract.IDEMPOTENT, Ping.Payload, _ping),
        "read_sensors": VirtualHandler(Contract.IDEMPOTENT, ReadSensors.Payload, _read_sensors),
        "set_interval": VirtualHandler(Contract.IDEMPOTENT, SetInterval.Payload, _set_interval),
        "open_valve": VirtualHandler(Contract.ONCE, SlowPayload, _open_valve),
        "self_test": VirtualHandler(Contract.IDEMPOTENT, SlowPayload, _self_test),
        "update_firmware": VirtualHandler(Contract.IDEMPOTENT, UpdatePayload, _update_firmware),
    }
)
"""The climate node's handlers; each has a lane of its own."""


def _judge(payload: JsonObject) -> str | None:
    handler = VOCABULARY.get(str(payload.get(HANDLER_KEY)))
    return None if handler is None else payload_fault(handler, payload)


RULES: Final = CommandRules(
    {name: HandlerRule(handler.contract, name) for name, handler in VOCABULARY.items()}, _judge, HANDLER_KEY
)
"""What the core's admission goes by for devices with these handlers."""


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
