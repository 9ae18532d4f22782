"""The small handlers: is the device there, who is it, what does it measure; its intervals, cancel, restart."""

from __future__ import annotations

import time
from typing import Annotated, Any

from pydantic import Field

from agent.core.values import Contract, JsonObject
from agent.handlers.base import CommandContext, Handler, HandlerFailed, HandlerPayload, HandlerRejected, NoPayload
from agent.wire.encoding import to_rfc3339


class Ping(Handler):
    """Answers at once."""

    name = "ping"
    description = "Answers with the echo, the device's time and the agent's uptime."
    contract = Contract.IDEMPOTENT
    timeout_s = 10.0
    in_safe_mode = True

    class Payload(HandlerPayload):
        """Any value, which the result repeats."""

        echo: Any = Field(default=None, description="Comes back unchanged; any JSON value.")

    def handle(self, payload: Payload, context: CommandContext) -> JsonObject:
        """The echo, the device's wall clock (RFC 3339) and seconds since the agent started."""
        return {
            "pong": True,
            "echo": payload.echo,
            "agent_time": to_rfc3339(time.time()),
            "agent_uptime_s": context.controls.identity()["agent_uptime_s"],
            "device_id": context.device_id,
        }


class Identify(Handler):
    """Answers with the device's identity."""

    name = "identify"
    description = "Answers with the device's identity."
    contract = Contract.IDEMPOTENT
    in_safe_mode = True

    def handle(self, payload: NoPayload, context: CommandContext) -> JsonObject:
        """The identity."""
        del payload
        return dict(context.controls.identity())


class ReadSensors(Handler):
    """Reads all sensors or some by name."""

    name = "read_sensors"
    description = "Reads sensors now and answers with their readings."
    contract = Contract.IDEMPOTENT
    timeout_s = 60.0

    class Payload(HandlerPayload):
        """The payload: the sensors to read."""

        names: Annotated[list[str], Field(min_length=1, max_length=100)] | None = Field(
            default=None, description="The sensors' names in the configuration; all of them by default."
        )

    def handle(self, payload: Payload, context: CommandContext) -> JsonObject:
        """Readings by sensor, and a sentence for each sensor that could not be read.

        Raises:
            HandlerRejected: ``unknown_sensor``.
            HandlerFailed: ``sensors_unreadable``, when not one of them could be read.
        """
        try:
            outcomes = context.controls.read_sensors(payload.names)
        except KeyError as error:
            raise HandlerRejected("unknown_sensor", f"this device has no sensor named {error.args[0]!r}") from error
        readings = {name: dict(found) for name, found in outcomes.items() if not isinstance(found, str)}
        errors = {name: found for name, found in outcomes.items() if isinstance(found, str)}
        if errors and not readings:
            raise HandlerFailed("sensors_unreadable", "; ".join(f"{name}: {why}" for name, why in errors.items()))
        return {"readings": readings, "errors": errors}


class SetInterval(Handler):
    """Changes one interval; it survives a restart."""

    name = "set_interval"
    description = "Sets how often a sensor is read, or with the name 'poll' how often commands are asked for."
    contract = Contract.IDEMPOTENT
    timeout_s = 10.0

    class Payload(HandlerPayload):
        """What, and how often."""

        name: str = Field(min_length=1, description="A sensor's name in the configuration, or 'poll'.")
        interval_s: float | None = Field(
            gt=0, allow_inf_nan=False, description="Seconds; null goes back to what the configuration says."
        )

    def handle(self, payload: Payload, context: CommandContext) -> JsonObject:
        """The interval that is in force from now on.

        Raises:
            HandlerRejected: ``unknown_name`` or ``interval_out_of_bounds``.
        """
        try:
            interval_s = context.controls.set_interval(payload.name, payload.interval_s)
        except KeyError as error:
            raise HandlerRejected("unknown_name", f"this device has no interval named {payload.name!r}") from error
        except ValueError as error:
            raise HandlerRejected("interval_out_of_bounds", str(error)) from error
        return {"name": payload.name, "interval_s": interval_s}


class Cancel(Handler):
    """Takes another command of this device back.

    It has a lane of its own that no other handler shares, so it gets through while others run, hang or wait. A command
    that waits is concluded as ``rejected`` and never runs; one that runs is asked to end, and ends as ``failed``, both
    with the reason ``canceled``. Either is remembered over a crash.
    """

    name = "cancel"
    description = "Takes another command back: one that waits never runs, one that runs is ended."
    contract = Contract.IDEMPOTENT
    timeout_s = 30.0
    lane = "cancel"
    in_safe_mode = True

    class Payload(HandlerPayload):
        """The payload: the command to cancel."""

        command_id: str = Field(min_length=1, max_length=255, description="The service's id of the command.")

    def handle(self, payload: Payload, context: CommandContext) -> JsonObject:
        """How the command was found: ``waiting``, ``running``, ``over`` or ``unknown``; what ended says so itself.

        Raises:
            HandlerRejected: ``cannot_cancel_itself``.
        """
        if payload.command_id == context.command_id:
            raise HandlerRejected("cannot_cancel_itself", "name another command")
        found = context.controls.cancel_command(payload.command_id, f"by command {context.command_id}")
        return {"command_id": payload.command_id, "found": found, "canceled": found in {"waiting", "running"}}


class RestartAgent(Handler):
    """Ends the agent's process in order; the service manager starts it again.

    The command is concluded by the process that comes after: it finds the command started by a process that is no more
    and runs the handler again with ``context.restarted``, so ``succeeded`` is reported once and only if the agent is
    back.
    """

    name = "restart_agent"
    description = "Restarts the agent; succeeds once it is back."
    contract = Contract.RESTARTS_DEVICE
    timeout_s = 60.0
    in_safe_mode = True

    class Payload(HandlerPayload):
        """Why."""

        reason: str = Field(default="", max_length=200, description="Written into the agent's log.")

    def handle(self, payload: Payload, context: CommandContext) -> JsonObject | None:
        """Before the restart: ask for it and return nothing. After it: the identity of the agent that is back."""
        if context.restarted:
            return {"restarted": True, "identity": context.controls.identity()}
        reason = f"command {context.command_id}: {payload.reason or 'restart_agent'}"
        context.controls.request_restart(reason)
        return None
