"""The command ``open_door``: a handler class with a payload, settings and a check."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from agent import CommandContext, Contract, Handler, HandlerFailed, HandlerPayload, HandlerSettings, JsonObject


class OpenDoor(Handler):
    """Drives the opener for a moment: ``1`` into its value file, then ``0`` again, whatever happens between."""

    name = "open_door"
    description = "Opens the door for some seconds."
    # After a power cut in the middle nobody knows whether the door was open: it must not open a second time unasked.
    contract = Contract.ONCE
    timeout_s = 60.0

    class Payload(HandlerPayload):
        """What comes with the command, beside the member that names it."""

        open_s: float = Field(default=3.0, gt=0, le=30, description="How long it stays open, seconds.")

    class Settings(HandlerSettings):
        """What the configuration says under ``commands.handlers.open_door.settings``."""

        value_file: Path = Field(description="The opener's value file, such as /sys/class/gpio/gpio17/value.")

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._value_file = settings.value_file

    def check(self) -> None:
        """The opener is there and may be written; what is raised here is shown by ``device-agent plugins list``."""
        with self._value_file.open("r+"):
            pass

    def handle(self, payload: Payload, context: CommandContext) -> JsonObject:
        """Open, wait, close. What is returned is the command's ``result``."""
        try:
            self._value_file.write_text("1")
            context.report_progress({"door": "open"})
            # Never time.sleep: `stopping` is set when the command is out of time or the agent stops.
            stopped = context.stopping.wait(payload.open_s)
        except OSError as error:
            raise HandlerFailed("opener_failed", f"{self._value_file} could not be written: {error}") from error
        finally:
            self._value_file.write_text("0")
        if stopped:
            raise HandlerFailed("stopped", "the door was closed early, since the agent had to stop")
        return {"opened_s": payload.open_s}
