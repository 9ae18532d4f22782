"""The trial of a release: its files, the starts that count, the judgement from outside, and the way back.

``start`` runs before each start of the service (``ExecStartPre``), ``watch`` is a unit of its own while there is a
trial. Either may be killed at any moment: what was decided is in ``state.json``, and the other one, or the same one
after its restart, does the rest. The link ``current`` follows that file. Both are replaced whole, and everybody may
read them.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import math
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from agent.files import replace_file, sync_directory
from agent.trial import KEPT, ROLLED_BACK, TRYING, Trial
from agent.update.release import Program, ReleaseRefused, open_plain, version_key

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
SERVICE: Final = "device-agent.service"
TRIAL_UNIT: Final = "device-agent-trial.service"

_STATE: Final = "state.json"
_ANSWER: Final = "answer.json"
_MOST_BYTES: Final = 1024 * 1024
_CHECK_EVERY_S: Final = 1.0
_ASK_AGAIN_S: Final = 10.0
_COMMAND_S: Final = 30.0
_TEXT: Final = 200
_WELL: Final = ("ok", "ready")
_ALIVE: Final = "WatchdogTimestampMonotonic"
_WATCHDOG: Final = "WatchdogUSec"
_LOCAL_PARTS: Final = frozenset({"store", "journal", "outbox", "configuration", "mode"})
"""Of the agent's parts those that no network and no server can spoil."""


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


# --- the state --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReleaseTrial(Trial):
    """A release that was installed, and what became of it.

    Attributes:
        version: of the release; the name of its folder.
        previous: the version of the release before it; empty for the package.
        deadline_s: within so long it must have proven itself, seconds; counted anew after a boot.
        max_starts: so many starts of the service may begin with it.
        before: handler, sensor or local part of the agent -> how it was before the release; see :attr:`Seen.states`.
    """

    version: str = ""
    previous: str = ""
    deadline_s: float = 600.0
    max_starts: int = 3
    before: Mapping[str, str] = field(default_factory=dict)

    @property
    def needs_restart(self) -> bool:
        """Whether another version counts since the last start of the service."""
        return self.starts == 0 and self.phase != KEPT

    @property
    def is_over(self) -> bool:
        """Whether its result stands, and what it left in force runs."""
        return self.phase != TRYING and not self.needs_restart

    @property
    def version_in_force(self) -> str:
        """The version of the release that the next start runs; empty for the package."""
        return self.previous if self.phase == ROLLED_BACK else self.version


def read_trial(places: Places) -> ReleaseTrial | None:
    """The last release that was installed; None when there was none.

    Of a state that cannot be read the link tells which release is in force: nothing is taken from a device because its
    state was damaged.
    """
    trial = ReleaseTrial.read(read_json(places.releases / _STATE))
    if trial is not None and trial.version:
        return trial
    try:
        return ReleaseTrial(KEPT, version=str(places.current.readlink()))
    except OSError:
        return None


def write_trial(places: Places, trial: ReleaseTrial) -> None:
    """Replace the state; it is on the disk on return.

    Raises:
        OSError: it could not be written.
    """
    _write(places.releases / _STATE, asdict(trial))


def _take_back(places: Places, trial: ReleaseTrial, reason: str) -> ReleaseTrial:
    """The release did not do: the one before counts again.

    Raises:
        OSError: the disk refuses, and not for want of room.
    """
    log_line(f"release={trial.version} taken back: {reason}")
    lost = trial.taken_back(reason)
    try:
        write_trial(places, lost)
    except OSError as error:
        if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
            raise
        shutil.rmtree(places.releases / trial.version, ignore_errors=True)  # what is given up makes room
        write_trial(places, lost)
    return lost


def _try_to_write(places: Places, trial: ReleaseTrial) -> bool:
    try:
        write_trial(places, trial)
    except OSError as error:
        log_line(f"release={trial.version} its state cannot be written: {error}")
        return False
    return True


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


def _write(path: Path, members: dict[str, Any]) -> None:
    replace_file(path, json.dumps(members), 0o644, durable=True)


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a plain file; empty when there is none."""
    try:
        with open_plain(path) as file:
            found = json.loads(file.read(_MOST_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def point_link(places: Places, trial: ReleaseTrial | None) -> None:
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


def running_program(places: Places, trial: ReleaseTrial | None) -> Program:
    """The program that the next start runs; without a trial that of the package.

    Raises:
        ReleaseRefused: ``not_packaged``: there is neither a release nor a package.
    """
    version = "" if trial is None else trial.version_in_force
    folder = places.releases / version
    # Where a release has no libraries for this Python, the launcher takes the package.
    has_release = version and (folder / python_folder()).is_dir()
    found = read_json((folder if has_release else places.base) / PACKAGE)
    try:
        return Program(found["version"], found["architecture"], found["store_schema"])
    except KeyError:
        raise ReleaseRefused("not_packaged", NOT_PACKAGED) from None


def _remove_unused(places: Places, trial: ReleaseTrial | None) -> None:
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


def log_line(text: str) -> None:
    """A line for the journal of the unit, or for the terminal."""
    print(text, file=sys.stderr, flush=True)  # noqa: T201 - that is where it goes


# --- the guard --------------------------------------------------------------------------------------------------------


def start(places: Places) -> None:
    """Count a start of the service where a release is on trial, and point the link at the version that starts."""
    if not places.releases.is_dir():
        return
    with alone(places):
        trial = read_trial(places)
        if trial is not None and trial.phase == TRYING:
            counted = trial.started(trial.max_starts)
            if counted.phase == ROLLED_BACK:
                trial = _take_back(places, trial, counted.reason)
            elif _try_to_write(places, counted):
                trial = counted
            else:
                trial = _take_back(places, trial, "the disk refuses: a start could not be counted")
        if trial is not None and trial.needs_restart:
            _try_to_write(
                places, replace(trial, starts=1)
            )  # what starts now is the release before: the way back is done
        point_link(places, trial)


def watch(
    places: Places, *, sleep: Callable[[float], object] = time.sleep, now: Callable[[], float] = time.monotonic
) -> None:
    """Judge the release on trial until its result stands.

    Args:
        places: of this device.
        sleep: waits, seconds.
        now: of ``CLOCK_MONOTONIC``, seconds.
    """
    judge: Judge | None = None
    asked_s = -math.inf
    while True:
        with alone(places):
            trial = read_trial(places)
            point_link(places, trial)
        if trial is None or trial.is_over:
            break
        judge = judge or Judge(trial, now())
        seen = observe(places)
        if trial.phase == TRYING and trial.starts:
            _conclude(places, judge.decide(seen, now()), judge.missing)
        elif trial.phase == ROLLED_BACK and seen.version == running_program(places, trial).version:
            _try_to_write(places, replace(trial, starts=1))
        elif now() - asked_s >= _ASK_AGAIN_S:
            # Nobody has started the service since the state was changed, or the one who would was killed.
            asked_s = now()
            ask_systemd(places, "--no-block", "restart", SERVICE)
        sleep(_CHECK_EVERY_S)
    with alone(places):
        _remove_unused(places, read_trial(places))


def _conclude(places: Places, is_kept: bool | None, missing: str) -> None:
    if is_kept is None:
        return
    with alone(places):
        trial = read_trial(places)
        if trial is None or trial.phase != TRYING:
            return
        if not is_kept:
            point_link(places, _take_back(places, trial, missing))
        elif _try_to_write(places, replace(trial, phase=KEPT)):
            log_line(f"release={trial.version} kept")


def after_package(places: Places) -> None:
    """The package was installed: it wins over a release that is not newer than it."""
    if not places.releases.is_dir():
        return
    with alone(places):
        trial = read_trial(places)
        if trial is not None and trial.version_in_force:
            package = running_program(places, None).version
            if version_key(trial.version_in_force) <= version_key(package):
                text = f"the package {package} was installed over it"
                trial = replace(trial.taken_back(text), starts=1, previous="")
                write_trial(places, trial)
        point_link(places, trial)
        _remove_unused(places, trial)


# --- the judgement ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Seen:
    """The service at one moment.

    Attributes:
        is_ready: the service manager has its READY.
        process_id: of its main process; 0 when there is none.
        version: that this process says it is; empty when it said nothing yet.
        is_connected: this process has had an exchange with the server.
        detail: how its connection is, for the reason.
        alive_s: when it last reported progress to the watchdog, seconds of ``CLOCK_MONOTONIC``; 0: never.
        states: handlers, sensors and local parts, such as ``handler:ping`` -> ``ready`` or ``ok``, or why it is not.
    """

    is_ready: bool
    process_id: int
    version: str
    is_connected: bool
    detail: str
    alive_s: float
    states: Mapping[str, str] = field(default_factory=dict)


class Judge:
    """Judges one trial.

    Args:
        trial: with its limits.
        now_s: when it begins, seconds of ``CLOCK_MONOTONIC``.

    Attributes:
        missing: what the release has not shown yet, one sentence.
    """

    def __init__(self, trial: ReleaseTrial, now_s: float) -> None:
        self._trial = trial
        self._deadline_s = now_s + trial.deadline_s
        self._process_id = 0
        self._well_since_s: float | None = None
        self._has_exchanged = False
        self.missing = "it was not started"

    def decide(self, seen: Seen, now_s: float) -> bool | None:
        """True: keep it. False: go back. None: go on watching.

        Args:
            seen: the service now.
            now_s: seconds of ``CLOCK_MONOTONIC``.
        """
        if seen.process_id != self._process_id:
            self._process_id, self._has_exchanged, self._well_since_s = seen.process_id, False, None
        self.missing = self._fault(seen)
        if self.missing:
            self._well_since_s = None
            return False if now_s >= self._deadline_s else None
        if self._well_since_s is None:
            self._well_since_s = now_s
        proven_s = self._well_since_s + self._trial.probation_s
        lost = self._lost(seen.states)
        if now_s < proven_s:
            self.missing = f"it was not well for {self._trial.probation_s:g} s in a row"
        elif seen.alive_s < proven_s:
            # A process that hangs looks as well as before.
            self.missing = "it is ready, and has not reported progress to the watchdog since: it hangs"
        elif not lost:
            return True
        else:
            self.missing = "; ".join(
                f"{name.replace(':', ' ')} worked before and does not now: {why}" for name, why in lost.items()
            )
            # Sensors and the store may come to be well; which handlers there are is settled at the start.
            if any(name.startswith("handler:") for name in lost):
                return False
        return False if now_s >= self._deadline_s else None

    def _fault(self, seen: Seen) -> str:
        if not seen.process_id or not seen.is_ready:
            return "the service does not say that it is ready"
        if seen.version != self._trial.version:
            return f"the service runs version {seen.version or 'unknown'}"
        self._has_exchanged = self._has_exchanged or seen.is_connected
        return "" if self._has_exchanged else f"it is ready, and has had no exchange with the server ({seen.detail})"

    def _lost(self, now: Mapping[str, str]) -> dict[str, str]:
        """What worked before the release and does not work with it, by its name -> why.

        A handler or sensor that did not work before, or is new, is no reason to go back. Of a part of the agent
        nothing is heard until something is wrong.
        """
        before = self._trial.before
        plugins = [name for name, state in before.items() if ":" in name and state in _WELL]
        parts = [name for name in now if ":" not in name and before.get(name, "ok") in _WELL]
        return {name: now.get(name, "it is gone") for name in [*plugins, *parts] if now.get(name) not in _WELL}


# --- the service from outside -----------------------------------------------------------------------------------------


def ask_systemd(places: Places, *words: str) -> str:
    """Run ``systemctl`` with these arguments; what it printed, and nothing when it failed."""
    command = (str(places.systemctl), *words)
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_COMMAND_S, check=True, errors="replace"
        )
    except (OSError, subprocess.SubprocessError) as error:
        log_line(f"{' '.join(command)}: {error}")
        return ""
    return done.stdout


def service_state(places: Places) -> Mapping[str, str]:
    """``ActiveState``, ``MainPID``, watchdog and its last message; empty when the service manager does not answer."""
    text = ask_systemd(places, "show", f"--property=ActiveState,MainPID,{_WATCHDOG},{_ALIVE}", SERVICE)
    return dict(line.partition("=")[::2] for line in text.splitlines())


def observe(places: Places) -> Seen:
    """The service as it is now. Of what the agent says about itself nothing is believed to have a certain form."""
    state = service_state(places)
    number, alive = state.get("MainPID", "0"), state.get(_ALIVE, "")
    process_id = int(number) if number.isdecimal() else 0
    # Without a watchdog it has nobody to report to, and is taken to be alive.
    is_watched = state.get(_WATCHDOG) not in {"0", "infinity"}
    status = read_json(places.status)
    if status.get("process_id") != process_id:
        status = {}
    plugins, parts = (found if isinstance(found := status.get(name), dict) else {} for name in ("plugins", "parts"))
    states = {name: str(text)[:_TEXT] for name, text in plugins.items()}
    states |= {name: _described(parts[name]) for name in _LOCAL_PARTS & parts.keys()}
    link = _described(parts["commands"]) if "commands" in parts else "nothing heard"
    return Seen(
        is_ready=state.get("ActiveState") in {"active", "reloading"},
        process_id=process_id,
        version=str(status.get("version", "")),
        is_connected=link == "ok",
        detail=link,
        alive_s=math.inf if not is_watched else int(alive) / 1e6 if alive.isdecimal() else 0.0,
        states=states,
    )


def _described(part: Any) -> str:
    if not isinstance(part, dict):
        return "unknown"
    state = str(part.get("state", ""))
    return state if state in _WELL else " ".join(f"{state} {part.get('detail', '')}".split())[:_TEXT]
