"""The files of updates on this device: which release is on trial, which was kept, and what came of the last one.

``state.json`` is the truth, and the link ``current`` follows it (:func:`point_link`): each is replaced whole, so a
power cut leaves the one or the other, and the next start of the service finishes the step. Everybody may read both.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Final

from agent.files import replace_file, sync_directory
from agent.update.release import Program, ReleaseRefused, open_plain, parse_program

FILE: Final = "release"
"""The file of a release in the agent's download folder."""
COMMAND_ID: Final = "command-id"
"""Beside it: which command brought it."""
INCOMING: Final = "incoming"
PACKAGE: Final = "release.json"
"""Version, architecture and schema of a program, beside its libraries."""
NOT_PACKAGED: Final = (
    "this agent was not installed by the Debian package, so no launcher can go back to the version before: "
    "update it by pip, or install the package"
)

TRYING: Final = "trying"
KEPT: Final = "kept"
GOING_BACK: Final = "going_back"
"""The release before counts again, and the service still has to be restarted with it."""
ROLLED_BACK: Final = "rolled_back"
_PHASES: Final = (TRYING, KEPT, GOING_BACK, ROLLED_BACK)

_STATE: Final = "state.json"
_ANSWER: Final = "answer.json"
_FALLBACK: Final = "fallback.json"
_MOST_BYTES: Final = 1024 * 1024
_REASON_CHARACTERS: Final = 500


class Places:
    """The files of an update.

    Args:
        root: where the file system of this device begins.

    Attributes:
        base: the libraries that came in the package.
        releases: one folder for each release, the state, and the link ``current``.
        current: the link to the release that runs; without it the package runs.
        keys: the public keys of makers.
        download: the agent's folder for a release that a command brings.
        status: what the agent says about itself; its user may put anything there.
        request: the agent's request to have a download installed, which the path unit waits for.
        systemctl: the service manager's program.
        installer: the program that installs a release; only the package has it.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        self.root = root
        self.base = root / "usr/lib/device-agent"
        self.releases = root / "var/lib/device-agent-releases"
        self.current = self.releases / "current"
        self.keys = root / "etc/device-agent/release-keys"
        self.download = root / "var/lib/device-agent/update"
        self.status = root / "run/device-agent/status.json"
        self.request = root / "run/device-agent/update"
        self.systemctl = root / "usr/bin/systemctl"
        self.installer = root / "usr/libexec/device-agent-update"


@dataclass(frozen=True, slots=True)
class Trial:
    """A release that was installed, and what became of it.

    Attributes:
        phase: :data:`TRYING`, :data:`KEPT`, :data:`GOING_BACK` or :data:`ROLLED_BACK`.
        version: of the release; the name of its folder.
        previous: the version of the release before it; empty for the package.
        command_id: of the command that brought it; empty when root did.
        reason: why it was taken back, one sentence.
        starts: how many starts of the service began with it.
        probation_s: how long it must stay well, seconds.
        deadline_s: within so long it must have done so, seconds; counted anew after a boot.
        max_starts: so many starts of the service may begin with it.
        worked_before: handlers and sensors that worked before it; each has to work with it.
        faults_before: what did not work before it.
    """

    phase: str
    version: str
    previous: str = ""
    command_id: str = ""
    reason: str = ""
    starts: int = 0
    probation_s: float = 120.0
    deadline_s: float = 600.0
    max_starts: int = 3
    worked_before: tuple[str, ...] = ()
    faults_before: tuple[str, ...] = ()

    @property
    def is_over(self) -> bool:
        """Whether its result stands."""
        return self.phase in {KEPT, ROLLED_BACK}

    @property
    def version_in_force(self) -> str:
        """The version of the release that the next start runs; empty for the package."""
        return self.version if self.phase in {TRYING, KEPT} else self.previous


def read_trial(places: Places) -> Trial | None:
    """The last release that was installed; None when there was none.

    Members that this version does not know are left out. Of a state that cannot be read the link tells which release
    is in force: nothing is taken from a device because its state was damaged.
    """
    with contextlib.suppress(TypeError, KeyError):
        names = {each.name for each in fields(Trial)}
        members = {name: value for name, value in read_json(places.releases / _STATE).items() if name in names}
        for name in ("worked_before", "faults_before"):
            members[name] = tuple(map(str, members[name]))
        trial = Trial(**members)
        if trial.phase in _PHASES and isinstance(trial.version, str):
            return trial
    try:
        return Trial(KEPT, str(places.current.readlink()))
    except OSError:
        return None


def write_trial(places: Places, trial: Trial) -> None:
    """Replace the state; it is on the disk on return.

    Raises:
        OSError: it could not be written.
    """
    _write(places.releases / _STATE, asdict(trial))


def begin_trial(places: Places, trial: Trial) -> None:
    """The release is on trial from now on; on a disk that fills up later there is a way back already.

    Raises:
        OSError: it could not be written; nothing has begun.
    """
    reason = "the disk is full, or refuses: what came of the trial could not be written"
    _write(places.releases / _FALLBACK, asdict(replace(trial, phase=GOING_BACK, reason=reason)))
    write_trial(places, trial)


def take_back(places: Places, trial: Trial, reason: str) -> Trial:
    """The release did not do: the one before counts again. Also on a full disk.

    Raises:
        OSError: even a rename fails.
    """
    log_line(f"release={trial.version} taken back: {reason}")
    lost = replace(trial, phase=GOING_BACK, reason=" ".join(reason.split())[:_REASON_CHARACTERS])
    try:
        write_trial(places, lost)
    except OSError as error:
        if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
            raise
        (places.releases / _FALLBACK).replace(places.releases / _STATE)
        lost = read_trial(places) or lost
    return lost


def read_answer(places: Places, command_id: str) -> dict[str, str] | None:
    """The outcome of an ``update_agent`` command that began no trial; None while it has none.

    It has ``code`` and ``message`` of the refusal, or the ``version`` that was installed already.
    """
    answer = {name: str(text) for name, text in read_json(places.releases / _ANSWER).items()}
    return answer if answer.get("command_id") == command_id else None


def write_answer(places: Places, command_id: str, **members: str) -> None:
    """Replace the answer to the last ``update_agent`` command.

    Raises:
        OSError: it could not be written.
    """
    _write(places.releases / _ANSWER, {"command_id": command_id, **members})


def point_link(places: Places, trial: Trial | None) -> None:
    """Let the link say what the state says.

    Raises:
        OSError: it cannot be changed.
    """
    wanted = "" if trial is None else trial.version_in_force
    try:
        found = str(places.current.readlink())
    except OSError:
        found = ""
    if found == wanted:
        return
    if wanted:
        new = places.releases / ".current.new"
        new.unlink(missing_ok=True)
        new.symlink_to(wanted)
        new.replace(places.current)
    else:
        places.current.unlink(missing_ok=True)
    sync_directory(places.releases)


def python_folder() -> str:
    """The folder of the libraries for this Python."""
    return f"cp{sys.version_info.major}{sys.version_info.minor}"


def package_program(places: Places) -> Program:
    """The program that came in the package.

    Raises:
        ReleaseRefused: ``not_packaged``.
    """
    return _program_in(places.base)


def running_program(places: Places, trial: Trial | None) -> Program:
    """The program that the next start runs.

    Raises:
        ReleaseRefused: ``not_packaged``: there is neither a release nor a package.
    """
    version = "" if trial is None else trial.version_in_force
    folder = places.releases / version
    # Where a release has no libraries for this Python, the launcher takes the package.
    has_release = version and (folder / python_folder()).is_dir()
    return _program_in(folder if has_release else places.base)


def remove_unused(places: Places, trial: Trial | None) -> None:
    """Remove all releases but the one in force and the one before it."""
    keep = {INCOMING, *(() if trial is None else (trial.version_in_force, trial.previous))}
    for path in places.releases.iterdir():
        if path.is_dir() and not path.is_symlink() and path.name not in keep:
            shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def alone(places: Places, name: str = "state") -> Iterator[None]:
    """Whoever changes the state has it alone; so has who installs, under another name.

    Raises:
        OSError: there is no folder for releases, or it cannot be written.
    """
    # For root alone: whoever can open the file could hold the lock, and with it each start of the service.
    fd = os.open(places.releases / f".{name}.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a plain file; empty when there is none."""
    try:
        with open_plain(path) as file:
            found = json.loads(file.read(_MOST_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def log_line(text: str) -> None:
    """A line for the journal of the unit, or for the terminal."""
    print(text, file=sys.stderr, flush=True)  # noqa: T201 - that is where it goes


def _write(path: Path, members: dict[str, Any]) -> None:
    replace_file(path, json.dumps(members), 0o644, durable=True)


def _program_in(folder: Path) -> Program:
    try:
        return parse_program(read_json(folder / PACKAGE))
    except ReleaseRefused:
        raise ReleaseRefused("not_packaged", NOT_PACKAGED) from None
