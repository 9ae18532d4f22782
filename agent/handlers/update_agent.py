"""``update_agent``: another version of the agent, kept only if it proves itself.

The agent downloads the release and asks to have it installed; root's own programs check it and do the rest
(:mod:`agent.update`). The result is in root's state file, under this command's id, so whichever version runs when it
stands there reports it; the journal takes one outcome.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from pathlib import Path
from typing import Final

from pydantic import Field

from agent.core.values import Contract, JsonObject
from agent.files import replace_file
from agent.handlers.base import CommandContext, Handler, HandlerFailed, HandlerPayload, HandlerRejected, HandlerSettings
from agent.handlers.root_request import ask_root
from agent.text import disk_refusal
from agent.trial import KEPT
from agent.update.trial import COMMAND_ID, FILE, NOT_PACKAGED, Places, ReleaseTrial, read_answer, read_trial

UNIT: Final = "device-agent-update.path"
_ID_CHARACTERS: Final = 200
"""Of a command's id, as the installer keeps it (agent.update.install)."""
_CHECK_EVERY_S: Final = 0.5
_ASK_AGAIN_S: Final = 30.0
_MOST_TRIAL_S: Final = 2 * 86_400.0
_MOST_STARTS: Final = 100


class UpdateAgent(Handler):
    """Updates the agent."""

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
            ask_root(places.request, UNIT, self.settings.answer_timeout_s, context.stopping)
            context.report_progress({"phase": "installing"})
        result = self._wait(context, places, request_id)
        if result is not None:
            context.no_restart()
        return result

    def _download(self, payload: Payload, context: CommandContext, places: Places, request_id: str) -> bool:
        """Put the file where root's installer finds it; False when the agent stops before that is done."""
        from agent.handlers.download import download  # httpx, which a device on MQTT alone does not need

        def report(done: int, whole: int) -> None:
            context.report_progress({"phase": "downloading", "bytes": done, "of": whole})

        try:
            places.download.mkdir(mode=0o700, exist_ok=True)
            is_there = download(
                payload.url,
                payload.sha256,
                places.download / FILE,
                max_bytes=self.settings.max_bytes,
                give_up_s=self.settings.give_up_s,
                ca_file=context.controls.upkeep.ca_file,
                stopping=context.stopping,
                report=report,
            )
            if not is_there:
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
        while not context.stopping.wait(_CHECK_EVERY_S):
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
                    ask_root(places.request, UNIT, self.settings.answer_timeout_s, context.stopping)
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
