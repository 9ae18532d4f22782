"""Installer and guard killed at every step that writes: what comes after them finds one version whole, and goes on."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from agent.release import guard, install, unpack
from agent.release.install import REQUEST
from agent.release.judge import Seen
from agent.release.places import Places
from agent.release.state import (
    GOING_BACK,
    KEPT,
    ROLLED_BACK,
    TRYING,
    read_trial,
    running_program,
    take_back,
    version_in_force,
    write_trial,
)
from tests.releases import Maker, write_package

_WRITES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.symlink", "os.chmod", "os.truncate"}
_MANY = 200


def cut_at(step: int, work: Callable[[], object]) -> bool:
    """Do the work in a process of its own that is killed just before its so many-th write; whether it came to that."""
    child = os.fork()
    if child == 0:
        seen = 0

        def hook(event: str, values: tuple[object, ...]) -> None:
            nonlocal seen
            flags = values[2] if event == "open" else None
            is_write = isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
            if event in _WRITES or is_write:
                seen += 1
                if seen == step:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(hook)
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert os.WEXITSTATUS(status) == 0
    return False


def at_every_step(make: Callable[[], object], work: Callable[[], object], judge: Callable[[], object]) -> int:
    """Cut the work at its first write, its second, and so on; how many cuts there were."""
    for step in range(1, _MANY):
        make()
        was_cut = cut_at(step, work)
        judge()
        if not was_cut:
            return step - 1
    raise AssertionError("it never ends")


@pytest.fixture
def places(tmp_path, monkeypatch) -> Iterator[Places]:
    maker = Maker(tmp_path, is_real=False)
    root = tmp_path / "root"
    for name in ("etc/device-agent/release-keys", "var/lib/device-agent/update", "var/lib/device-agent-releases"):
        (root / name).mkdir(parents=True)
    write_package(root / "usr/lib/device-agent", maker.program("1.0.0"), "1.0.0")
    (root / "etc/device-agent/release-keys/maker.pub").write_bytes(maker.public_pem)
    shutil.copy(maker.release("1.1.0"), root / "var/lib/device-agent/update/release")
    (root / "var/lib/device-agent/update" / REQUEST).write_text('{"command_id": "c1", "again": true}')
    monkeypatch.setattr(install, "service_state", lambda places: {"ActiveState": "active"})
    for module in (install, guard):
        monkeypatch.setattr(module, "ask_systemd", lambda places, *words: "")
    # Not what is cut: it changes nothing that anybody reads, and takes long.
    monkeypatch.setattr(unpack, "_compile", lambda tree: None)
    monkeypatch.setattr(unpack.os, "sync", lambda: None)
    return Places(root)


def empty(places: Places) -> None:
    shutil.rmtree(places.releases)
    places.releases.mkdir()


def starts(places: Places) -> None:
    """The service starts: there is one version in force, and all of it is there."""
    guard.start(places)
    trial = read_trial(places)
    version = version_in_force(trial)
    link = str(places.current.readlink()) if places.current.is_symlink() else ""
    assert link == version
    assert running_program(places, trial).version == (version or "1.0.0")
    if version:
        assert (places.releases / version / "common/agent/__init__.py").is_file()
        assert (places.releases / version / "manifest.json").is_file()


def test_an_installation_cut_anywhere_ends_when_it_is_run_again(places):
    def judge() -> None:
        starts(places)
        assert install.serve(places) == 0  # as its unit does
        starts(places)
        trial = read_trial(places)
        assert (trial.phase, trial.version, trial.command_id) == (TRYING, "1.1.0", "c1")
        assert not (places.releases / unpack.INCOMING).exists()

    assert at_every_step(lambda: empty(places), lambda: install.serve(places), judge) >= 20


@pytest.mark.parametrize(
    ("begun", "phases"),
    [
        (1, {TRYING}),
        (3, {ROLLED_BACK}),
        (-1, {ROLLED_BACK}),
    ],
    ids=["counted", "too many starts", "on the way back"],
)
def test_a_start_cut_anywhere_is_made_up_for_by_the_next(places, begun, phases):
    def make() -> None:
        empty(places)
        assert install.serve(places) == 0
        trial = replace(read_trial(places), starts=max(0, begun))
        write_trial(places, trial)
        if begun < 0:
            take_back(places, trial, "no good")

    def judge() -> None:
        starts(places)
        assert read_trial(places).phase in phases

    assert at_every_step(make, lambda: guard.start(places), judge) >= 2


@pytest.mark.parametrize("is_well", [True, False])
def test_a_judgement_cut_anywhere_is_made_by_the_guard_that_comes_after_it(places, monkeypatch, is_well):
    clock = [0.0]
    monkeypatch.setattr(guard, "now_s", lambda: clock[0])
    monkeypatch.setattr(guard, "look", lambda places: Seen(True, 7, "1.1.0", is_well, "deaf", 1e9))

    def watch() -> None:
        def sleep(seconds: float) -> None:
            clock[0] += seconds * 20
            if read_trial(places).phase == GOING_BACK:
                guard.start(places)

        guard.watch(places, sleep=sleep)

    def make() -> None:
        empty(places)
        (places.releases / "0.9.0").mkdir()
        assert install.serve(places) == 0
        clock[0] = read_trial(places).began_s
        guard.start(places)

    def judge() -> None:
        watch()
        starts(places)
        trial = read_trial(places)
        assert trial.phase == (KEPT if is_well else ROLLED_BACK)
        folders = {path.name for path in places.releases.iterdir() if path.is_dir() and not path.is_symlink()}
        assert folders == ({"1.1.0"} if is_well else set())

    assert at_every_step(make, watch, judge) >= 3
