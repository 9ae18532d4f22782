"""``set_interval``: how often a sensor is read, or the service is asked for commands."""

from __future__ import annotations

from pydantic import Field

from agent.core.values import Contract, JsonObject
from agent.handlers.base import CommandContext, Handler, HandlerPayload, HandlerRejected


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
