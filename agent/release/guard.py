"""The guard of a release on trial: counts the starts, judges, keeps or takes back.

Two programs use it. ``start`` runs before each start of the service and only touches files; ``watch`` is a unit of its
own while there is a trial. Either may be killed at any moment: what was decided is in the state, and the other one, or
the same one after its restart, does the rest.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from agent.release.judge import Judge, Verdict
from agent.release.outside import ask_systemd, log_line, look
from agent.release.places import SERVICE, Places
from agent.release.state import (
    GOING_BACK,
    KEPT,
    REPLACED,
    ROLLED_BACK,
    TRYING,
    Trial,
    alone,
    boot_id,
    is_older_than_package,
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
        if trial is not None and is_older_than_package(places, trial):
            text = f"the package {package_program(places).version} was installed over it"
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
