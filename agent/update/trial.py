"""The trial of a release: each start is counted, what runs is judged from outside, and the one before comes back.

``start`` runs before each start of the service (``ExecStartPre``), ``watch`` is a unit of its own while there is a
trial. Either may be killed at any moment: what was decided is in the state, and the other one, or the same one after
its restart, does the rest.
"""

from __future__ import annotations

import math
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from agent.update.release import version_key
from agent.update.state import (
    GOING_BACK,
    KEPT,
    ROLLED_BACK,
    TRYING,
    Places,
    Trial,
    alone,
    log_line,
    package_program,
    point_link,
    read_json,
    read_trial,
    remove_unused,
    running_program,
    take_back,
    write_trial,
)

SERVICE: Final = "device-agent.service"
TRIAL_UNIT: Final = "device-agent-trial.service"

_CHECK_EVERY_S: Final = 1.0
_ASK_AGAIN_S: Final = 10.0
_COMMAND_S: Final = 30.0
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
            trial = _write(places, replace(trial, phase=ROLLED_BACK)) or trial
        point_link(places, trial)


def _count(places: Places, trial: Trial) -> Trial:
    if trial.starts >= trial.max_starts:
        return take_back(places, trial, f"{trial.starts} starts with it did not last until it had proven itself")
    counted = _write(places, replace(trial, starts=trial.starts + 1))
    # What cannot be counted cannot be tried.
    return counted or take_back(places, trial, "the disk refuses: a start could not be counted")


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
        if trial.phase == GOING_BACK and observe(places).version == running_program(places, trial).version:
            _write(places, replace(trial, phase=ROLLED_BACK))
        elif trial.phase == GOING_BACK or trial.starts == 0:
            # Nobody has started the service since the state was changed, or the one who would was killed.
            if now() - asked_s >= _ASK_AGAIN_S:
                asked_s = now()
                ask_systemd(places, "--no-block", "restart", SERVICE)
        else:
            _conclude(places, judge.decide(observe(places), now()), judge.missing)
        sleep(_CHECK_EVERY_S)
    with alone(places):
        remove_unused(places, read_trial(places))


def _conclude(places: Places, is_kept: bool | None, missing: str) -> None:
    if is_kept is None:
        return
    with alone(places):
        trial = read_trial(places)
        if trial is None or trial.phase != TRYING:
            return
        if not is_kept:
            point_link(places, take_back(places, trial, missing))
        elif _write(places, replace(trial, phase=KEPT)):
            log_line(f"release={trial.version} kept")


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
                trial = replace(trial, phase=ROLLED_BACK, reason=text, previous="")
                write_trial(places, trial)
        point_link(places, trial)
        remove_unused(places, trial)


def _write(places: Places, trial: Trial) -> Trial | None:
    """The trial as it is on the disk now; None when the disk refused it."""
    try:
        write_trial(places, trial)
    except OSError as error:
        log_line(f"release={trial.version} its state cannot be written: {error}")
        return None
    return trial


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
    """Judges one trial.

    Args:
        trial: with its limits.
        now_s: when it begins, seconds of ``CLOCK_MONOTONIC``.

    Attributes:
        missing: what the release has not shown yet, one sentence.
    """

    def __init__(self, trial: Trial, now_s: float) -> None:
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
        else:
            self._well_since_s = now_s if self._well_since_s is None else self._well_since_s
            proven_s = self._well_since_s + self._trial.probation_s
            lost = self._lost(seen)
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
    """The service as it is now."""
    state = service_state(places)
    number, alive = state.get("MainPID", "0"), state.get(_ALIVE, "")
    process_id = int(number) if number.isdecimal() else 0
    # Without a watchdog it has nobody to report to, and is taken to be alive.
    is_watched = state.get(_WATCHDOG) not in {"0", "infinity"}
    status = read_json(places.status)
    if status.get("process_id") != process_id:
        status = {}
    parts = {name: part for name, part in _members(status, "parts").items() if isinstance(part, dict)}
    plugins = {name: str(state)[:_TEXT] for name, state in _members(status, "plugins").items()}
    faults = {name: state for name, state in plugins.items() if state != "ready"}
    faults |= {name: _why(parts[name]) for name in _LOCAL_PARTS & parts.keys() if parts[name].get("state") != "ok"}
    link = parts.get("commands", {})
    return Seen(
        is_ready=state.get("ActiveState") in {"active", "reloading"},
        process_id=process_id,
        version=str(status.get("version", "")),
        is_connected=link.get("state") == "ok",
        detail=_why(link) or "nothing heard",
        alive_s=math.inf if not is_watched else int(alive) / 1e6 if alive.isdecimal() else 0.0,
        working=frozenset(plugins.keys() - faults.keys()),
        faults=faults,
    )


def _members(status: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = status.get(name)
    return found if isinstance(found, dict) else {}


def _why(part: Mapping[str, Any]) -> str:
    return " ".join(f"{part.get('state', '')} {part.get('detail', '')}".split())[:_TEXT]
