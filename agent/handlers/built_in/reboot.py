"""``reboot``: restart the device, through the helper that may.

The agent may not do it and asks :mod:`agent.helper`. Before it asks it writes down in which boot, and then that the
helper accepted, so that the process after it can decide, whatever happens next: in another boot the command has
succeeded; in the same one it goes by the helper's answer, and asks again only when there is none.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from pydantic import BaseModel, Field

from agent.core.values import Contract, JsonObject
from agent.handlers.base import CommandContext, Handler, HandlerFailed, HandlerPayload, HandlerRejected, HandlerSettings

if TYPE_CHECKING:
    from agent.helper.asking import HelperCall
    from agent.helper.exchange import HelperAnswer

_NAME: Final = "reboot"
_MAX_DELAY_S: Final = 600.0
_SLACK_S: Final = 30.0


class Reboot(Handler):
    """Restarts the device."""

    name = "reboot"
    description = "Restarts the device through its helper; succeeds once it is back."
    contract = Contract.RESTARTS_DEVICE
    in_safe_mode = True

    class Payload(HandlerPayload):
        """When and why."""

        delay_s: float = Field(default=0.0, ge=0, le=_MAX_DELAY_S, description="Seconds to wait before it.")
        reason: str = Field(default="", max_length=200, description="Written into the agent's log.")

    class Settings(HandlerSettings):
        """How long to wait for whom, and where."""

        answer_timeout_s: float = Field(default=10.0, gt=0, le=60, description="For the helper's answer, seconds.")
        down_timeout_s: float = Field(
            default=90.0, gt=0, le=600, description="For the system to go down once the helper accepted, seconds."
        )
        request_file: Path | None = Field(default=None, description="By default where the helper looks.")
        answer_file: Path | None = Field(default=None, description="By default where the helper writes.")

    def __init__(self, settings: BaseModel | None = None) -> None:
        super().__init__(settings)
        self._chosen = settings if isinstance(settings, Reboot.Settings) else Reboot.Settings()

    def run_timeout_s(self) -> float:
        """Long enough for every wait of one run."""
        return _MAX_DELAY_S + self._chosen.answer_timeout_s + self._chosen.down_timeout_s + _SLACK_S

    def handle(self, payload: Payload, context: CommandContext) -> JsonObject | None:
        """Before the restart: ask for it, wait for it, return nothing. After it: who is back.

        Raises:
            HandlerRejected: ``no_helper``, ``stopped``, or the helper's own code: nothing was begun.
            HandlerFailed: ``no_answer``, ``no_reboot``, ``action_failed``: the device is still in the same boot.
        """
        # Here, since most devices never restart by command and need not carry it.
        from agent.helper.asking import HelperCall, request_id_of
        from agent.helper.exchange import ACCEPTED

        chosen, controls = self._chosen, context.controls
        asking = HelperCall(
            request_id_of(context.command_id),
            self.name,
            context.stopping,
            request_file=chosen.request_file,
            answer_file=chosen.answer_file,
        )
        boot_id = str(controls.identity()["boot_id"])
        note = _Note.of(context)
        answer = asking.answer()
        if note is not None and (note.boot_id != boot_id or (note.accepted and answer is None)):
            return {"rebooted": True, "identity": controls.identity()}
        if note is None:
            if payload.delay_s and context.stopping.wait(payload.delay_s):
                raise HandlerRejected("stopped", "the agent stopped before it asked for the restart")
            note = _Note(boot_id)
            note.write(context)
        if answer is None:
            context.log.warning("asks for a restart of the device, reason=%r", payload.reason)
            answer = _ask(asking, context, chosen.answer_timeout_s)
            if answer is None:
                return None
        if answer.state == ACCEPTED and not note.accepted:
            _Note(boot_id, accepted=True).write(context)
        _wait_for_end(asking, chosen.down_timeout_s)
        return None


class _Note(NamedTuple):
    """What an earlier run of a command leaves for a later one.

    Attributes:
        boot_id: of the boot in which it asks.
        accepted: the helper said so. Its answer is gone with that boot: where it is missing, the system has been
            started anew. In a container it is the only sign, since the kernel and its boot id are the host's.
    """

    boot_id: str
    accepted: bool = False

    @classmethod
    def of(cls, context: CommandContext) -> _Note | None:
        """The note of this very command."""
        text = context.controls.recall(_NAME)
        command_id, *rest = json.loads(text) if text else ("",)
        return cls(*rest) if command_id == context.command_id else None

    def write(self, context: CommandContext) -> None:
        context.controls.remember(_NAME, json.dumps([context.command_id, *self]))


def _ask(asking: HelperCall, context: CommandContext, timeout_s: float) -> HelperAnswer | None:
    """None when the agent stops before the helper said anything: what became of it shows after the start."""
    from agent.helper.asking import NoHelper

    try:
        answer = asking.ask(timeout_s)
    except NoHelper as error:
        code = "stopped" if context.stopping.is_set() else "no_helper"
        raise HandlerRejected(code, str(error)) from error
    if answer is None and not context.stopping.is_set():
        raise HandlerFailed("no_answer", "the helper took the request and said nothing: see its log on the device")
    return answer


def _wait_for_end(asking: HelperCall, timeout_s: float) -> None:
    from agent.helper.exchange import FAILED, REFUSED

    answer = asking.wait_for_end(timeout_s)
    if answer is None:
        return
    if answer.state == REFUSED:
        raise HandlerRejected(answer.code, answer.message)
    if answer.state == FAILED:
        raise HandlerFailed(answer.code, answer.message)
    text = f"the helper accepted, and the device has not gone down within {timeout_s:g} s: something holds it up"
    raise HandlerFailed("no_reboot", text)
