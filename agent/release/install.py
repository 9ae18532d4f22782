"""Installs a release beside the running one and puts it on trial."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from agent.error_text import disk_refusal
from agent.release.archive import open_file, read_release, trusted_keys
from agent.release.manifest import ReleaseRefused, judge
from agent.release.outside import ask_systemd, log_line, look, service_state
from agent.release.places import TRIAL_UNIT, Places, read_limits
from agent.release.state import (
    ALREADY_INSTALLED,
    REFUSED,
    TRYING,
    Answer,
    Trial,
    alone,
    begin_trial,
    boot_id,
    now_s,
    read_trial,
    running_program,
    version_in_force,
    write_answer,
)
from agent.release.unpack import put_in_place, unpack

FILE: Final = "release"
"""The file of a release in the agent's download folder."""
REQUEST: Final = "request.json"
"""Beside it: which command brought it."""
_MOST_BYTES: Final = 4096
_TEXT: Final = 200


@dataclass(frozen=True, slots=True)
class InstallRequest:
    """A request to install a release: where it comes from, and its options.

    Attributes:
        command_id: of the command that brings it; empty when root does.
        again: also a release that was taken back before.
    """

    command_id: str = ""
    again: bool = False


def install(places: Places, path: Path, request: InstallRequest) -> Trial | None:
    """Check a release, unpack it beside the running one, and put it on trial.

    Args:
        places: of this device.
        path: the file.
        request: who asks.

    Returns:
        The trial; None when this release runs already.

    Raises:
        ReleaseRefused: it is not taken; nothing was changed.
        OSError: the disk refuses; nothing was changed.
    """
    limits = read_limits(places)
    keys = trusted_keys(places)
    places.releases.mkdir(mode=0o755, exist_ok=True)
    with open_file(path) as file, alone(places, "install"):
        before = read_trial(places)
        running = running_program(places, before)
        release = read_release(file, keys)
        program = release.manifest.program
        if before is not None and not before.is_over:
            if before.digest == release.digest:
                return before  # an earlier run of this was cut off after it had begun
            raise ReleaseRefused("busy", f"version {before.version} is on trial: send this one when that is over")
        if _runs_already(before, release.digest, program.version, running.version):
            return None
        judge(release.manifest, running)
        lost = before.lost if before is not None else ()
        if release.digest in lost and not request.again:
            text = f"version {program.version} was taken back on this device before"
            raise ReleaseRefused("taken_back_before", f"{text}: build a newer one, or ask for it again (--again)")
        _check_service(places)
        previous = version_in_force(before)
        tree = unpack(file, release, places)
        seen = look(places)
        trial = Trial(
            phase=TRYING,
            version=program.version,
            digest=release.digest,
            previous=previous,
            command_id=request.command_id,
            boot_id=boot_id(places),
            began_s=now_s(),
            probation_s=limits.probation_s,
            deadline_s=limits.deadline_s,
            max_starts=limits.max_starts,
            worked_before=tuple(sorted(seen.working)),
            faults_before=tuple(sorted(seen.faults)),
            lost=tuple(each for each in lost if each != release.digest),
        )
        with alone(places):
            put_in_place(tree, program.version, places)
            begin_trial(places, trial)
    log_line(f"release={program.version} installed beside {running.version}, on trial for {limits.probation_s:g} s")
    return trial


def _runs_already(before: Trial | None, digest: str, version: str, running: str) -> bool:
    """Whether this very release is in force.

    Raises:
        ReleaseRefused: ``same_version``: another build of that version runs.
    """
    if version != running:
        return False
    if before is not None and version_in_force(before) == before.version and before.digest != digest:
        raise ReleaseRefused(
            "same_version", f"another build of version {version} runs: give this one a version of its own"
        )
    return True


def _check_service(places: Places) -> None:
    state = service_state(places).get("ActiveState", "")
    if state in {"", "inactive", "failed", "deactivating"}:
        text = f"the service is {state or 'not known to systemd'}, so nothing can prove a new version"
        raise ReleaseRefused("not_running", f"{text}: systemctl start device-agent, or update by apt")


def begin(places: Places) -> None:
    """Start the unit that restarts the service and judges the trial."""
    ask_systemd(places, "--no-block", "start", TRIAL_UNIT)


def serve(places: Places) -> int:
    """Install what the agent has downloaded, and leave an answer for it; the exit code."""
    request = _read_request(places)
    try:
        trial = install(places, places.download / FILE, request)
    except ReleaseRefused as refusal:
        log_line(f"refused {refusal}")
        write_answer(places, Answer(request.command_id, REFUSED, refusal.code, refusal.message))
        return 0
    except OSError as error:
        text = disk_refusal(error) or f"{error.filename or places.releases}: {error.strerror}"
        log_line(f"refused disk: {text}")
        write_answer(places, Answer(request.command_id, REFUSED, "disk", text))
        return 0
    if trial is None:
        version = running_program(places, read_trial(places)).version
        write_answer(places, Answer(request.command_id, ALREADY_INSTALLED, version=version))
    else:
        begin(places)
    return 0


def _read_request(places: Places) -> InstallRequest:
    """The agent's own words: short texts that are only repeated."""
    try:
        fd = os.open(places.download / REQUEST, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(fd, "rb") as file:
            found = json.loads(file.read(_MOST_BYTES))
        return InstallRequest(str(found["command_id"])[:_TEXT], found["again"] is True)
    except (OSError, ValueError, RecursionError, KeyError, TypeError):
        return InstallRequest()
