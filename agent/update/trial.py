"""The trial of a release: each start is counted, what runs is judged from outside, and the one before comes back.

``start`` runs before each start of the service (``ExecStartPre``), ``watch`` is a unit of its own while there is a
trial. Either may be killed at any moment: what was decided is in the state, and the other one, or the same one after
its restart, does the rest.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from agent.update.release import version_key
from agent.update.state import (
    GOING_BACK,
    KEPT,
    REPLACED,
    ROLLED_BACK,
    SERVICE,
    TRYING,
    Places,
    Trial,
    alone,
    boot_id,
    log_line,
    now_s,
    package_program,
    point_link,
    read_trial,
    remove_unused,
    running_program,
    take_back,
    write_trial,
)

_LOOK_EVERY_S: Final = 1.0
_AGAIN_S: Final = 10.0
_SAYS_WITHIN_S: Final = 60.0
"""A service that makes progress says so at least every 45 s: half of the unit's WatchdogSec=."""
_COMMAND_S: Final = 30.0
_MOST_BYTES: Final = 1024 * 1024
_TEXT: Final = 200
_ALIVE: Final = "WatchdogTimestampMonotonic"
_WATCHDOG: Final = "WatchdogUSec"
_LOCAL_PARTS: Final = frozenset({"store", "journal", "outbox", "configuration", "mode"})
"""Of the agent's parts those that no network and no server can spoil."""


def start(places: Places) -> None:
    """Count a start of the service where a release is on trial, and point the link at the version that starts."""
    if not places.releases.is_dir():
        return
    with alone(places):
        trial = read_trial(places)
        if trial is not None and trial.phase == TRYING:
            trial = _count(places, trial)
        if trial is not None and trial.phase == GOING_BACK:
            # What starts now is the release before: the way back is done.
            done = replace(trial, phase=ROLLED_BACK)
            if _write(places, done):
                trial = done
        point_link(places, trial)


def _count(places: Places, trial: Trial) -> Trial:
    if trial.starts >= trial.max_starts:
        log_line(f"release={trial.version} taken back: {trial.starts} starts did not last")
        return take_back(places, trial, f"{trial.starts} starts with it did not last until it had proven itself")
    counted = replace(trial, starts=trial.starts + 1)
    if _write(places, counted):
        return counted
    # What cannot be counted cannot be tried.
    return take_back(places, trial, "the disk refuses: a start could not be counted")


def watch(places: Places, *, sleep: Callable[[float], object] = time.sleep) -> None:
    """Judge the release on trial until its result stands.

    Args:
        places: of this device.
        sleep: waits, seconds.
    """
    judge: Judge | None = None
    asked_s = float("-inf")
    while True:
        with alone(places):
            trial = _begun(places)
            point_link(places, trial)
        if trial is None or trial.is_over:
            break
        if trial.phase == GOING_BACK and look(places).version == running_program(places, trial).version:
            _write(places, replace(trial, phase=ROLLED_BACK))
        elif trial.phase == GOING_BACK or trial.starts == 0:
            # Nobody has started the service since the state was changed, or the one who would was killed.
            if now_s() - asked_s >= _AGAIN_S:
                asked_s = now_s()
                ask_systemd(places, "--no-block", "restart", SERVICE)
        else:
            judge = judge or Judge(trial)
            _act(places, judge.look(look(places), now_s()), judge.missing)
        sleep(_LOOK_EVERY_S)
    with alone(places):
        remove_unused(places, read_trial(places))


def _begun(places: Places) -> Trial | None:
    """The trial, with its deadline counted in this boot."""
    trial = read_trial(places)
    if trial is None or trial.phase != TRYING or trial.boot_id == boot_id(places):
        return trial
    begun = replace(trial, boot_id=boot_id(places), began_s=now_s())
    return begun if _write(places, begun) else trial


def _act(places: Places, verdict: Verdict, reason: str) -> None:
    if verdict is Verdict.WAIT:
        return
    with alone(places):
        trial = read_trial(places)
        if trial is None or trial.phase != TRYING:
            return
        if verdict is Verdict.KEEP:
            if _write(places, replace(trial, phase=KEPT)):
                log_line(f"release={trial.version} kept")
            return
        log_line(f"release={trial.version} taken back: {reason}")
        point_link(places, take_back(places, trial, f"after {now_s() - trial.began_s:.0f} s: {reason}"))


def after_package(places: Places) -> None:
    """The package was installed: it wins over a release that is not newer than it."""
    if not places.releases.is_dir():
        return
    with alone(places):
        trial = read_trial(places)
        if trial is not None and trial.version_in_force:
            package = package_program(places).version
            if version_key(trial.version_in_force) <= version_key(package):
                text = f"the package {package} was installed over it"
                trial = replace(trial, phase=REPLACED, reason=text, previous="")
                write_trial(places, trial)
        point_link(places, trial)
        remove_unused(places, trial)


def _write(places: Places, trial: Trial) -> bool:
    try:
        write_trial(places, trial)
    except OSError as error:
        log_line(f"release={trial.version} its state cannot be written: {error}")
        return False
    return True


# --- the judgement ----------------------------------------------------------------------------------------------------


class Verdict(StrEnum):
    """The next step of a trial: go on watching, keep the release, or go back."""

    WAIT = "wait"
    KEEP = "keep"
    GO_BACK = "go_back"


@dataclass(frozen=True, slots=True)
class Seen:
    """The service at one moment.

    Attributes:
        is_ready: the service manager has its READY.
        process_id: of its main process; 0 when there is none.
        version: that this process says it is; empty when it said nothing yet.
        is_connected: this process has had an exchange with the server.
        detail: how its connection is, for the reason.
        alive_s: when it last said that it makes progress, seconds of the clock in which the trial began; 0: never.
        working: handlers and sensors that work, such as ``handler:ping``, ``sensor:board``.
        faults: what does not work -> why: handlers and sensors, and the agent's own parts on this device.
    """

    is_ready: bool
    process_id: int
    version: str
    is_connected: bool
    detail: str
    alive_s: float
    working: frozenset[str] = frozenset()
    faults: Mapping[str, str] = field(default_factory=dict)


class Judge:
    """Watches one trial in one boot.

    Args:
        trial: with its limits.

    Attributes:
        missing: what the release has not shown yet, one sentence.
    """

    def __init__(self, trial: Trial) -> None:
        self._trial = trial
        self._process_id = 0
        self._well_since_s: float | None = None
        self._has_exchanged = False
        self.missing = "it was not started"

    def look(self, seen: Seen, now_s: float) -> Verdict:
        """Judge what is seen now.

        Args:
            seen: the service.
            now_s: of the clock in which the trial began, seconds.
        """
        if seen.process_id != self._process_id:
            self._process_id, self._has_exchanged, self._well_since_s = seen.process_id, False, None
        fault = self._fault(seen)
        if fault:
            self.missing, self._well_since_s = fault, None
        elif self._well_since_s is None:
            self._well_since_s = now_s
            self.missing = f"it was not well for {self._trial.probation_s:g} s in a row"
        proven_s = math.inf if self._well_since_s is None else self._well_since_s + self._trial.probation_s
        # A process that hangs looks as well as before: after the probation its own word has to follow.
        hangs = now_s >= proven_s > seen.alive_s
        if hangs:
            self.missing = "it is ready, and has not said since that it makes progress: it hangs"
        elif now_s >= proven_s:
            lost = self._lost(seen)
            if not lost:
                return Verdict.KEEP
            self.missing = "; ".join(
                f"{name.replace(':', ' ')} worked before and does not now: {why}" for name, why in lost.items()
            )
            # Sensors and the store may come to be well; which handlers there are is settled at the start.
            if any(name.startswith("handler:") for name in lost):
                return Verdict.GO_BACK
        end_s = self._trial.began_s + self._trial.deadline_s + (_SAYS_WITHIN_S if hangs else 0.0)
        return Verdict.GO_BACK if now_s >= end_s else Verdict.WAIT

    def _fault(self, seen: Seen) -> str:
        if not seen.process_id or not seen.is_ready:
            return "the service does not say that it is ready"
        if seen.version != self._trial.version:
            return f"the service runs version {seen.version or 'unknown'}"
        self._has_exchanged = self._has_exchanged or seen.is_connected
        return "" if self._has_exchanged else f"it is ready, and has had no exchange with the server ({seen.detail})"

    def _lost(self, seen: Seen) -> dict[str, str]:
        """What worked before the release and does not work with it, by its name -> why."""
        before = self._trial
        lost = {name: seen.faults.get(name, "it is gone") for name in before.worked_before if name not in seen.working}
        # A handler or sensor that did not work before, or is new, is no reason to go back; the agent's own parts are.
        parts = {name: why for name, why in seen.faults.items() if ":" not in name and name not in before.faults_before}
        return lost | parts


# --- the service from outside -----------------------------------------------------------------------------------------


def ask_systemd(places: Places, *words: str) -> str:
    """Run ``systemctl`` with these arguments; what it printed, and nothing when it failed."""
    command = (str(places.systemctl), *words)
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_COMMAND_S, check=False, errors="replace"
        )
    except (OSError, subprocess.SubprocessError) as error:
        log_line(f"{' '.join(command)}: {error}")
        return ""
    if done.returncode != 0:
        log_line(f"{' '.join(command)}: {done.stderr.strip()[:_TEXT]}")
    return done.stdout


def service_state(places: Places) -> Mapping[str, str]:
    """``ActiveState``, ``MainPID``, watchdog and its last message; empty when the service manager does not answer."""
    text = ask_systemd(places, "show", f"--property=ActiveState,MainPID,{_WATCHDOG},{_ALIVE}", SERVICE)
    return dict(line.partition("=")[::2] for line in text.splitlines())


def look(places: Places) -> Seen:
    """The service as it is now."""
    state = service_state(places)
    number = state.get("MainPID", "0")
    process_id = int(number) if number.isdecimal() else 0
    status = _status(places.runtime / "status.json")
    if status.get("process_id") != process_id:
        status = {}
    parts = {str(name): part for name, part in _members(status, "parts").items() if isinstance(part, dict)}
    working, faults = _plugins(_members(status, "plugins"), parts)
    faults |= {name: _why(parts[name]) for name in _LOCAL_PARTS & parts.keys() if parts[name].get("state") != "ok"}
    link = parts.get("commands", {})
    return Seen(
        is_ready=state.get("ActiveState") in {"active", "reloading"},
        process_id=process_id,
        version=str(status.get("version", "")),
        is_connected=link.get("state") == "ok",
        detail=_why(link) or "nothing heard",
        alive_s=_alive_s(state),
        working=frozenset(working),
        faults=faults,
    )


def _members(status: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = status.get(name)
    return found if isinstance(found, dict) else {}


def _plugins(states: Mapping[str, Any], parts: Mapping[str, Mapping[str, Any]]) -> tuple[set[str], dict[str, str]]:
    """The handlers and sensors that work, and why the others do not. A sensor works once it has been read."""
    working: set[str] = set()
    faults: dict[str, str] = {}
    for name, state in states.items():
        part = parts.get(name, {"state": "not read yet"}) if name.startswith("sensor:") else {"state": "ok"}
        if state == "ready" and part.get("state") == "ok":
            working.add(name)
        else:
            faults[name] = _why(part) if state == "ready" else str(state)[:_TEXT]
    return working, faults


def _why(part: Mapping[str, Any]) -> str:
    return " ".join(f"{part.get('state', '')} {part.get('detail', '')}".split())[:_TEXT]


def _alive_s(state: Mapping[str, str]) -> float:
    """When the service last said that it makes progress, seconds of :func:`agent.update.state.now_s`; 0: never.

    Without a watchdog it has nobody to say it to, and is taken to be alive.
    """
    if state.get(_WATCHDOG) in {"0", "infinity"}:
        return math.inf
    text = state.get(_ALIVE, "")
    if not text.isdecimal() or int(text) == 0:
        return 0.0
    return int(text) / 1e6 + now_s() - time.clock_gettime(time.CLOCK_MONOTONIC)


def _status(path: Path) -> dict[str, Any]:
    """The agent's status file, at most so many bytes of it, and no link: the agent's user may put anything there."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(fd, "rb") as file:
            found = json.loads(file.read(_MOST_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
