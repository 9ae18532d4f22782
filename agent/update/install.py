"""Installs a release beside the running one and puts it on trial."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from agent.error_text import disk_refusal
from agent.files import sync_directory
from agent.update.release import (
    CONTENT,
    Release,
    ReleaseRefused,
    check_content,
    check_suits,
    extract,
    open_file,
    read_release,
    trusted_keys,
)
from agent.update.state import (
    INCOMING,
    PACKAGE,
    ROLLED_BACK,
    TRIAL_UNIT,
    TRYING,
    Places,
    Trial,
    alone,
    begin_trial,
    boot_id,
    log_line,
    now_s,
    python_folder,
    read_trial,
    running_program,
    write_answer,
)
from agent.update.trial import ask_systemd, look, service_state

FILE: Final = "release"
"""The file of a release in the agent's download folder."""
COMMAND_ID: Final = "command-id"
"""Beside it: which command brought it."""
LIMIT_PREFIX: Final = "DEVICE_AGENT_UPDATE_"

_TEXT: Final = 200
_DAY_S: Final = 86_400.0
_COMPILE_S: Final = 600.0
# What is compiled takes about as much again; the rest stays free for readings.
_COMPILED_SHARE: Final = 2
_RESERVE_BYTES: Final = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a trial.

    Attributes:
        probation_s: how long a new release must stay well, seconds.
        deadline_s: within so long it must have done so, seconds, counted anew after a boot.
        max_starts: so many starts of the service may begin with it.
    """

    probation_s: float = 120.0
    deadline_s: float = 600.0
    max_starts: int = 3


def read_limits(environ: Mapping[str, str]) -> Limits:
    """The limits in the environment of the installer, such as ``DEVICE_AGENT_UPDATE_DEADLINE_S``; else the defaults.

    Raises:
        ReleaseRefused: ``misconfigured``, with what to mend.
    """
    defaults = Limits()

    def value(name: str, default: float) -> float:
        return float(environ.get(f"{LIMIT_PREFIX}{name}") or default)

    try:
        limits = Limits(
            value("PROBATION_S", defaults.probation_s),
            value("DEADLINE_S", defaults.deadline_s),
            int(value("MAX_STARTS", defaults.max_starts)),
        )
    except ValueError as error:
        raise ReleaseRefused("misconfigured", f"{LIMIT_PREFIX}...: {error}: write a number") from error
    if not 1 <= limits.probation_s <= limits.deadline_s / 2 <= _DAY_S / 2 or not 1 <= limits.max_starts <= 20:
        text = "1 <= PROBATION_S <= half of DEADLINE_S <= half a day, and 1 to 20 MAX_STARTS"
        raise ReleaseRefused("misconfigured", f"{LIMIT_PREFIX}...: the limits are {text}")
    return limits


def install(places: Places, path: Path, command_id: str = "") -> Trial | None:
    """Check a release, unpack it beside the running one, and put it on trial.

    Args:
        places: of this device.
        path: the file.
        command_id: of the command that brings it; empty when root does, who may try again what was taken back.

    Returns:
        The trial; None when this release runs already.

    Raises:
        ReleaseRefused: it is not taken; nothing was changed.
        OSError: the disk refuses; nothing was changed.
    """
    limits = read_limits(os.environ)
    keys = trusted_keys(places.keys, places.root.stat().st_uid)  # root, whatever number a sandbox shows for it
    places.releases.mkdir(mode=0o755, exist_ok=True)
    with open_file(path) as file, alone(places, "install"):
        before = read_trial(places)
        running = running_program(places, before)
        release = read_release(file, keys)
        version = release.program.version
        if before is not None and not before.is_over:
            if before.digest == release.digest:
                return before  # an earlier run of this was cut off after it had begun
            raise ReleaseRefused("busy", f"version {before.version} is on trial: send this one when that is over")
        if _runs_already(before, release, running.version):
            return None
        check_suits(release, running)
        if before is not None and before.phase == ROLLED_BACK and before.digest == release.digest and command_id:
            text = f"version {version} was taken back on this device before"
            raise ReleaseRefused("taken_back_before", f"{text}: build a newer one, or install it by hand as root")
        _check_service(places)
        tree = unpack(file, release, places)
        seen = look(places)
        trial = Trial(
            phase=TRYING,
            version=version,
            digest=release.digest,
            previous="" if before is None else before.version_in_force,
            command_id=command_id,
            boot_id=boot_id(places),
            began_s=now_s(),
            probation_s=limits.probation_s,
            deadline_s=limits.deadline_s,
            max_starts=limits.max_starts,
            worked_before=tuple(sorted(seen.working)),
            faults_before=tuple(sorted(seen.faults)),
        )
        with alone(places):
            _put_in_place(tree, version, places)
            begin_trial(places, trial)
    log_line(f"release={version} installed beside {running.version}, on trial for {limits.probation_s:g} s")
    return trial


def _runs_already(before: Trial | None, release: Release, running: str) -> bool:
    """Whether this very release is in force.

    Raises:
        ReleaseRefused: ``same_version``: another build of that version runs.
    """
    version = release.program.version
    if version != running:
        return False
    if before is not None and before.version_in_force == before.version and before.digest != release.digest:
        raise ReleaseRefused(
            "same_version", f"another build of version {version} runs: give this one a version of its own"
        )
    return True


def _check_service(places: Places) -> None:
    state = service_state(places).get("ActiveState", "")
    if state in {"", "inactive", "failed", "deactivating"}:
        text = f"the service is {state or 'not known to systemd'}, so nothing can prove a new version"
        raise ReleaseRefused("not_running", f"{text}: systemctl start device-agent, or update by apt")


def unpack(file: IO[bytes], release: Release, places: Places) -> Path:
    """Unpack a release, with what is compiled of it, into a folder that is on the disk on return.

    Raises:
        ReleaseRefused: ``damaged``, ``not_enough_disk``, ``noexec`` or ``wrong_python``.
        OSError: the disk refuses.
    """
    _check_room(release, places)
    incoming = places.releases / INCOMING
    tree = incoming / "tree"
    shutil.rmtree(incoming, ignore_errors=True)
    try:
        tree.mkdir(parents=True, mode=0o755)
        with (incoming / CONTENT).open("w+b") as copy:
            # From here on only root's own copy counts.
            check_content(file, release, copy)
            copy.seek(0)
            extract(copy, release.unpacked_bytes, tree)
        if not (tree / python_folder()).is_dir():
            text = f"it has no libraries for Python {sys.version_info.major}.{sys.version_info.minor}"
            raise ReleaseRefused("wrong_python", f"{text}: take a release that has them")
        says = {"version": release.program.version, "architecture": release.program.architecture}
        (tree / PACKAGE).write_text(json.dumps({**says, "store_schema": release.program.store_schema}))
        # Compiled modules make the start quick; a module that cannot be compiled shows in the trial.
        folders = [str(tree / name) for name in ("common", python_folder())]
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            subprocess.run(
                (sys.executable, "-I", "-m", "compileall", "-q", *folders),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_COMPILE_S,
                check=False,
            )
        os.sync()
    except BaseException:
        shutil.rmtree(incoming, ignore_errors=True)
        raise
    return tree


def _check_room(release: Release, places: Places) -> None:
    found = os.statvfs(places.releases)
    if found.f_flag & os.ST_NOEXEC:
        raise ReleaseRefused("noexec", f"{places.releases} is mounted noexec: mount it with exec, or update by apt")
    needed = release.size + _COMPILED_SHARE * release.unpacked_bytes + _RESERVE_BYTES
    free = found.f_bavail * found.f_frsize
    if free < needed:
        raise not_enough_disk(places.releases, needed, free)


def not_enough_disk(folder: Path, needed: int, free: int) -> ReleaseRefused:
    """The refusal of a disk that has not the room, in bytes, that the folder needs."""
    mb = 1_000_000
    text = f"{folder} has {free / mb:.0f} MB free, and the update needs {needed / mb:.0f} MB: free some"
    return ReleaseRefused("not_enough_disk", text)


def _put_in_place(tree: Path, version: str, places: Places) -> None:
    target = places.releases / version
    shutil.rmtree(target, ignore_errors=True)
    tree.rename(target)
    sync_directory(places.releases)
    shutil.rmtree(places.releases / INCOMING, ignore_errors=True)


def begin(places: Places) -> None:
    """Start the unit that restarts the service and judges the trial."""
    ask_systemd(places, "--no-block", "start", TRIAL_UNIT)


def serve(places: Places) -> int:
    """Install what the agent has downloaded, and leave an answer for it; the exit code."""
    command_id = _command_id(places.download / COMMAND_ID)
    try:
        trial = install(places, places.download / FILE, command_id)
    except ReleaseRefused as refusal:
        log_line(f"refused {refusal}")
        write_answer(places, command_id, code=refusal.code, message=refusal.message)
    except OSError as error:
        text = disk_refusal(error) or f"{error.filename or places.releases}: {error.strerror}"
        log_line(f"refused disk: {text}")
        write_answer(places, command_id, code="disk", message=text)
    else:
        if trial is None:
            write_answer(places, command_id, version=running_program(places, read_trial(places)).version)
        else:
            begin(places)
    return 0


def _command_id(path: Path) -> str:
    """The agent's own words: a short text that is only repeated."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(fd, "rb") as file:
            return file.read(_TEXT).decode("utf-8", "replace")
    except OSError:
        return ""
