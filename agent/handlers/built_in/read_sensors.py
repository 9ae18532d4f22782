"""``read_sensors``: read sensors now, apart from their schedule."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from agent.core.values import Contract, JsonObject
from agent.handlers.base import CommandContext, Handler, HandlerFailed, HandlerPayload, HandlerRejected


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
