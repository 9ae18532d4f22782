"""``reboot``: restart the device, through a unit of systemd that may.

Before it asks it writes down in which boot, and then that the request was taken, so that the process after it can
decide, whatever happens next: in another boot the command has succeeded.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from pydantic import Field

from agent.core.values import Contract, JsonObject
from agent.handlers.base import CommandContext, Handler, HandlerFailed, HandlerPayload, HandlerRejected, HandlerSettings
from agent.handlers.root_request import ask_root

UNIT: Final = "device-agent-reboot.timer"
_NAME: Final = "reboot"
_MAX_DELAY_S: Final = 600.0
_SLACK_S: Final = 30.0


class Reboot(Handler):
    """Restarts the device."""

    name = "reboot"
    description = "Restarts the device through systemd; succeeds once it is back."
    contract = Contract.RESTARTS_DEVICE
    in_safe_mode = True

    class Payload(HandlerPayload):
        """When and why."""

        delay_s: float = Field(default=0.0, ge=0, le=_MAX_DELAY_S, description="Seconds to wait before it.")
        reason: str = Field(default="", max_length=200, description="Written into the agent's log.")

    class Settings(HandlerSettings):
        """How long to wait for whom, and where."""

        answer_timeout_s: float = Field(default=10.0, gt=0, le=60, description="For the request to be taken, seconds.")
        down_timeout_s: float = Field(
            default=90.0, gt=0, le=600, description="For the system to go down after that, seconds."
        )
        request_file: Path = Field(default=Path("/run/device-agent/reboot"), description="What the unit waits for.")
        taken_file: Path = Field(default=Path("/run/device-agent-reboot/taken"), description="What it leaves.")

    def __init__(self, settings: Settings | None = None) -> None:
        super().__init__(settings)
        self.timeout_s = _MAX_DELAY_S + self.settings.answer_timeout_s + self.settings.down_timeout_s + _SLACK_S

    def handle(self, payload: Payload, context: CommandContext) -> JsonObject | None:
        """Before the restart: ask for it, wait for it, return nothing. After it: who is back.

        Raises:
            HandlerRejected: ``not_allowed`` or ``stopped``: nothing was begun.
            HandlerFailed: ``no_reboot``: the device is still in the same boot.
        """
        chosen, controls = self.settings, context.controls
        boot_id = str(controls.identity()["boot_id"])
        noted = controls.recall(_NAME)
        # What an earlier run left: of which command, in which boot, and whether the request was taken.
        command_id, asked_in, was_taken = json.loads(noted) if noted else ("", "", False)
        is_known = command_id == context.command_id
        # In a container the boot id may be the host's, which stays; what lies in /run is gone there as well.
        if is_known and (asked_in != boot_id or (was_taken and not chosen.taken_file.exists())):
            return {"rebooted": True, "identity": controls.identity()}
        if not is_known:
            if payload.delay_s and context.stopping.wait(payload.delay_s):
                raise HandlerRejected("stopped", "the agent stopped before it asked for the restart")
            controls.remember(_NAME, json.dumps([context.command_id, boot_id, False]))
        if not (is_known and was_taken):
            context.log.warning("asks for a restart of the device, reason=%r", payload.reason)
            # In the first five minutes after a start the unit takes none.
            ask_root(chosen.request_file, UNIT, chosen.answer_timeout_s, context.stopping)
            controls.remember(_NAME, json.dumps([context.command_id, boot_id, True]))
        if context.stopping.wait(chosen.down_timeout_s):
            return None
        text = f"it has not gone down within {chosen.down_timeout_s:g} s: journalctl -u device-agent-reboot says why"
        raise HandlerFailed("no_reboot", text)
