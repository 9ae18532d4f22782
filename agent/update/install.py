"""Installs a release beside the running one and puts it on trial; the program of root's part."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import IO, Final

from agent.files import sync_directory
from agent.text import disk_refusal
from agent.trial import ROLLED_BACK
from agent.update.release import (
    CONTENT,
    MAX_BYTES,
    Release,
    ReleaseRefused,
    check_suits,
    copy_content,
    extract,
    open_plain,
    read_release,
    trusted_keys,
)
from agent.update.trial import (
    COMMAND_ID,
    FILE,
    INCOMING,
    PACKAGE,
    TRIAL_UNIT,
    Places,
    ReleaseTrial,
    after_package,
    alone,
    ask_systemd,
    log_line,
    observe,
    python_folder,
    read_trial,
    running_program,
    service_state,
    start,
    watch,
    write_answer,
    write_trial,
)

LIMIT_PREFIX: Final = "DEVICE_AGENT_UPDATE_"
"""Of the variables with the limits of a trial: PROBATION_S, DEADLINE_S, MAX_STARTS."""

_ID_BYTES: Final = 200
_COMPILE_S: Final = 600.0
# What is compiled takes about as much again; the rest stays free for readings.
_COMPILED_SHARE: Final = 2
_RESERVE_BYTES: Final = 16 * 1024 * 1024
_MB: Final = 1_000_000


def main() -> int:
    """``device-agent-update``; the exit code: 0 good, 1 refused, 2 usage."""
    parser = argparse.ArgumentParser(prog="device-agent-update", description="Releases of device-agent.")
    parser.add_argument("--root", type=Path, default=Path("/"), help="where the file system of the device begins")
    words = parser.add_subparsers(dest="word", required=True)
    by_hand = words.add_parser("install", help="install a file and put it on trial")
    by_hand.add_argument("file", type=Path)
    words.add_parser("serve", help="install what the agent has downloaded")
    words.add_parser("start", help="before a start of the service: count it")
    words.add_parser("watch", help="judge the release on trial")
    words.add_parser("after-package", help="after the package was installed")
    arguments = parser.parse_args()
    # The agent's user reads what is written here, whatever root's own habit is.
    os.umask(0o022)
    places = Places(arguments.root)
    try:
        if arguments.word == "install":
            _install_by_hand(places, arguments.file)
        else:
            {"serve": serve, "start": start, "watch": watch, "after-package": after_package}[arguments.word](places)
    except ReleaseRefused as refusal:
        log_line(f"refused: {refusal}")
        return 1
    except OSError as error:
        log_line(f"refused: {disk_refusal(error) or error}")
        return 1
    return 0


def _install_by_hand(places: Places, path: Path) -> None:
    trial = install(places, path)
    if trial is None:
        log_line("already installed: this release runs; nothing was done")
        return
    ask_systemd(places, "--no-block", "start", TRIAL_UNIT)
    log_line(f"it has {trial.deadline_s:g} s to prove itself; how that ends: journalctl -f -u {TRIAL_UNIT}")


def serve(places: Places) -> None:
    """Install what the agent has downloaded, and leave an answer for it."""
    command_id = ""
    with contextlib.suppress(OSError), open_plain(places.download / COMMAND_ID) as file:
        # The agent's own words: a short text that is only repeated.
        command_id = file.read(_ID_BYTES).decode("utf-8", "replace")
    try:
        trial = install(places, places.download / FILE, command_id)
    except ReleaseRefused as refusal:
        log_line(f"refused: {refusal}")
        write_answer(places, command_id, code=refusal.code, message=refusal.message)
    except OSError as error:
        text = disk_refusal(error) or f"{error.filename or places.releases}: {error.strerror}"
        log_line(f"refused: disk: {text}")
        write_answer(places, command_id, code="disk", message=text)
    else:
        if trial is None:
            write_answer(places, command_id, version=running_program(places, read_trial(places)).version)
        else:
            ask_systemd(places, "--no-block", "start", TRIAL_UNIT)


def install(places: Places, path: Path, command_id: str = "") -> ReleaseTrial | None:
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
    probation_s, deadline_s, max_starts = _limit("PROBATION_S", 120), _limit("DEADLINE_S", 600), _limit("MAX_STARTS", 3)
    keys = trusted_keys(places.keys, places.root.stat().st_uid)  # root, whatever number a sandbox shows for it
    places.releases.mkdir(mode=0o755, exist_ok=True)
    with _open(path) as file, alone(places, "install"):
        before = read_trial(places)
        running = running_program(places, before)
        release = read_release(file, keys)
        version = release.program.version
        if before is not None and not before.is_over:
            if (before.version, before.command_id) == (version, command_id):
                return before  # an earlier run of this was cut off after it had begun
            raise ReleaseRefused("busy", f"version {before.version} is on trial: send this one when that is over")
        if version == running.version:
            return None
        check_suits(release, running)
        if before is not None and before.phase == ROLLED_BACK and before.version == version and command_id:
            text = f"version {version} was taken back on this device before"
            raise ReleaseRefused("taken_back_before", f"{text}: build a newer one, or install it by hand as root")
        state = service_state(places).get("ActiveState", "")
        if state in {"", "inactive", "failed", "deactivating"}:
            text = f"the service is {state or 'not known to systemd'}, so nothing can prove a new version"
            raise ReleaseRefused("not_running", f"{text}: systemctl start device-agent, or update by apt")
        tree = _unpack(file, release, places)
        trial = ReleaseTrial(
            version=version,
            previous="" if before is None else before.version_in_force,
            command_id=command_id,
            probation_s=probation_s,
            deadline_s=deadline_s,
            max_starts=int(max_starts),
            before=observe(places).states,
        )
        with alone(places):
            shutil.rmtree(places.releases / version, ignore_errors=True)
            tree.rename(places.releases / version)
            sync_directory(places.releases)
            write_trial(places, trial)  # from here on each start of the service runs it
        shutil.rmtree(places.releases / INCOMING, ignore_errors=True)
    log_line(f"release={version} installed beside {running.version}, on trial for {probation_s:g} s")
    return trial


def _limit(name: str, default: float) -> float:
    text = os.environ.get(f"{LIMIT_PREFIX}{name}") or default
    with contextlib.suppress(ValueError):
        if float(text) >= 1:
            return float(text)
    raise ReleaseRefused("misconfigured", f"{LIMIT_PREFIX}{name} is {text!r}: write a number of at least 1")


def _open(path: Path) -> IO[bytes]:
    try:
        file = open_plain(path)
    except OSError as error:
        raise ReleaseRefused("no_file", f"{path} cannot be opened: {error.strerror}") from error
    if os.fstat(file.fileno()).st_size > MAX_BYTES:
        file.close()
        raise ReleaseRefused("too_large", f"{path} has more than {MAX_BYTES} bytes")
    return file


def _unpack(file: IO[bytes], release: Release, places: Places) -> Path:
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
            copy_content(file, release, copy)
            copy.seek(0)
            extract(copy, release.unpacked_bytes, tree)
        if not (tree / python_folder()).is_dir():
            text = f"it has no libraries for Python {sys.version_info.major}.{sys.version_info.minor}"
            raise ReleaseRefused("wrong_python", f"{text}: take a release that has them")
        (tree / PACKAGE).write_text(json.dumps(asdict(release.program)))
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
        text = f"{places.releases} has {free / _MB:.0f} MB free, and the update needs {needed / _MB:.0f} MB: free some"
        raise ReleaseRefused("not_enough_disk", text)
