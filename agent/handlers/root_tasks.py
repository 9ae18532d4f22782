"""``reboot`` and ``update_agent``: what only root may do, asked for by a file.

A path unit of systemd waits for the file and starts a unit that root wrote. The file is empty: its name is all that it
says, so there is nothing in it for root to believe. It lies on a RAM disk, so a power cut forgets it. Whoever deletes
it has it: root's unit to act on it, the agent to withdraw it.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import threading
import time
from pathlib import Path
from typing import Final

from pydantic import Field

from agent.core.values import Contract, JsonObject
from agent.files import replace_file
from agent.handlers.base import CommandContext, Handler, HandlerFailed, HandlerPayload, HandlerRejected, HandlerSettings
from agent.text import disk_refusal
from agent.trial import KEPT
from agent.update.trial import COMMAND_ID, FILE, NOT_PACKAGED, Places, ReleaseTrial, read_answer, read_trial

REBOOT_UNIT: Final = "device-agent-reboot.timer"
UPDATE_UNIT: Final = "device-agent-update.path"
_CHECK_EVERY_S: Final = 0.1

_NAME: Final = "reboot"
_MAX_DELAY_S: Final = 600.0
_SLACK_S: Final = 30.0

_ID_CHARACTERS: Final = 200
"""Of a command's id, as the installer keeps it (agent.update.install)."""
_RESULT_EVERY_S: Final = 0.5
_ASK_AGAIN_S: Final = 30.0
_MOST_TRIAL_S: Final = 2 * 86_400.0
_MOST_STARTS: Final = 100


def ask_root(request: Path, unit: str, timeout_s: float, stopping: threading.Event) -> None:
    """Put the request down and wait until it is taken.

    Args:
        request: the file, in the agent's runtime directory.
        unit: which has to be enabled for it.
        timeout_s: how long to wait, seconds.
        stopping: ends the wait early.

    Raises:
        HandlerRejected: ``not_allowed`` or ``stopped``: nobody took it, and it is withdrawn, so nothing was done or
            will be.
    """
    try:
        request.touch(0o600)
    except OSError as error:
        text = f"the request cannot be written to {request}: {error.strerror}; run the agent by device-agent.service"
        raise HandlerRejected("not_allowed", text) from error
    for _ in range(max(1, round(timeout_s / _CHECK_EVERY_S))):
        if stopping.wait(_CHECK_EVERY_S) or not request.exists():
            break
    try:
        request.unlink()
    except FileNotFoundError:
        return
    if stopping.is_set():
        raise HandlerRejected("stopped", "the agent stopped before anybody took the request")
    text = f"nobody took the request within {timeout_s:g} s: systemctl enable --now {unit}"
    raise HandlerRejected("not_allowed", text)


class Reboot(Handler):
    """Restarts the device.

    Before it asks it writes down in which boot, and then that the request was taken, so that the process after it can
    decide, whatever happens next: in another boot the command has succeeded.
    """

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
            ask_root(chosen.request_file, REBOOT_UNIT, chosen.answer_timeout_s, context.stopping)
            controls.remember(_NAME, json.dumps([context.command_id, boot_id, True]))
        if context.stopping.wait(chosen.down_timeout_s):
            return None
        text = f"it has not gone down within {chosen.down_timeout_s:g} s: journalctl -u device-agent-reboot says why"
        raise HandlerFailed("no_reboot", text)


class UpdateAgent(Handler):
    """Updates the agent; the new version is kept only if it proves itself.

    The agent downloads the release and asks to have it installed; root's own programs check it and do the rest
    (:mod:`agent.update`). The result is in root's state file, under this command's id, so whichever version runs when
    it stands there reports it; the journal takes one outcome.
    """

    name = "update_agent"
    description = "Installs a signed release of the agent; kept only if it proves itself, else taken back."
    contract = Contract.RESTARTS_DEVICE
    # Each start of a release that crashes counts, until it is taken back.
    max_attempts = _MOST_STARTS
    in_safe_mode = True

    class Payload(HandlerPayload):
        """Which release."""

        url: str = Field(pattern=r"^https?://[^\s]{1,2000}$", description="Where the release is.")
        sha256: str = Field(pattern=r"^[0-9a-f]{64}$", description="Of the file.")

    class Settings(HandlerSettings):
        """How large and how long."""

        max_bytes: int = Field(default=67_108_864, ge=1024, le=268_435_456, description="Of the file, bytes.")
        give_up_s: float = Field(
            default=3600.0, gt=0, le=604_800, description="So long the download is tried again while it fails, s."
        )
        answer_timeout_s: float = Field(default=10.0, gt=0, le=60, description="For the request to be taken, s.")
        install_timeout_s: float = Field(default=900.0, gt=0, le=7200, description="For the installation, s.")
        root: Path = Field(default=Path("/"), description="Where the file system of this device begins.")

    def __init__(self, settings: Settings | None = None) -> None:
        super().__init__(settings)
        # Long enough for the download, the installation and the trial.
        self.timeout_s = self.settings.give_up_s + self.settings.install_timeout_s + _MOST_TRIAL_S

    def handle(self, payload: Payload, context: CommandContext) -> JsonObject | None:
        """Have it installed, once; then wait for its result, in whichever process.

        Raises:
            HandlerRejected: it was not installed; nothing was changed.
            HandlerFailed: it was installed and taken back, or nobody says what became of it.
        """
        places = Places(self.settings.root)
        if not places.installer.exists():
            raise HandlerRejected("not_packaged", NOT_PACKAGED)
        request_id = context.command_id[:_ID_CHARACTERS]
        if _record(places, request_id) is None:
            if not self._download(payload, context, places, request_id):
                return None
            ask_root(places.request, UPDATE_UNIT, self.settings.answer_timeout_s, context.stopping)
            context.report_progress({"phase": "installing"})
        result = self._wait(context, places, request_id)
        if result is not None:
            context.no_restart()
        return result

    def _download(self, payload: Payload, context: CommandContext, places: Places, request_id: str) -> bool:
        """Put the file where root's installer finds it; False when the agent stops before that is done."""
        from agent.handlers.download import download  # httpx, which a device on MQTT alone does not need

        try:
            places.download.mkdir(mode=0o700, exist_ok=True)
            if not download(payload.url, payload.sha256, places.download / FILE, self.settings, context):
                return False
            replace_file(places.download / COMMAND_ID, request_id, 0o600)
        except (HandlerRejected, OSError) as error:
            shutil.rmtree(places.download, ignore_errors=True)
            if isinstance(error, OSError):
                raise HandlerRejected("disk", disk_refusal(error) or str(error)) from error
            raise
        return True

    def _wait(self, context: CommandContext, places: Places, request_id: str) -> JsonObject | None:
        """The result, once it stands; None when this process ends before that."""
        begun_s = time.monotonic()
        deadline_s, ask_s = begun_s + self.settings.install_timeout_s, begun_s + _ASK_AGAIN_S
        reported = -1
        while not context.stopping.wait(_RESULT_EVERY_S):
            found = _record(places, request_id)
            if isinstance(found, ReleaseTrial) and not found.is_over:
                if found.starts != reported:
                    reported = found.starts
                    context.report_progress({"phase": "on_trial", "version": found.version, "starts": reported})
            elif found is not None:
                shutil.rmtree(places.download, ignore_errors=True)
                return _result(found)
            elif time.monotonic() > deadline_s:
                text = f"nobody installed it within {self.settings.install_timeout_s:g} s"
                raise HandlerFailed("no_answer", f"{text}: journalctl -u device-agent-update says why")
            elif time.monotonic() > ask_s:
                # The unit may have been killed once it had the request. What goes on is not disturbed.
                with contextlib.suppress(HandlerRejected):
                    ask_root(places.request, UPDATE_UNIT, self.settings.answer_timeout_s, context.stopping)
                ask_s = time.monotonic() + _ASK_AGAIN_S
        return None


def _record(places: Places, request_id: str) -> ReleaseTrial | dict[str, str] | None:
    """The outcome of the update that this command asked for, as installer and guard have stored it."""
    trial = read_trial(places)
    return trial if trial is not None and trial.command_id == request_id else read_answer(places, request_id)


def _result(found: ReleaseTrial | dict[str, str]) -> JsonObject:
    if isinstance(found, dict):
        if "code" in found:
            raise HandlerRejected(found["code"], found.get("message", ""))
        return {"version": found.get("version", ""), "already_installed": True}
    if found.phase == KEPT:
        return {"version": found.version, "previous": found.previous or "package", "starts": found.starts}
    raise HandlerFailed(found.phase, f"version {found.version}: {found.reason}")
