"""Installing, counting, judging and going back, with real files; the service manager is given."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import lzma
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from agent.trial import KEPT, ROLLED_BACK, TRYING
from agent.update import install
from agent.update import trial as guard
from agent.update.release import ReleaseRefused, parse_manifest, version_key
from agent.update.trial import (
    COMMAND_ID,
    Places,
    ReleaseTrial,
    Seen,
    point_link,
    read_answer,
    read_trial,
    running_program,
    write_trial,
)
from tests.conftest import require_program
from tests.support.processes import run_program
from tests.support.releases import Maker, write_package


@dataclass
class Machine:
    """One device's files."""

    root: Path
    maker: Maker
    asked: list[tuple[str, ...]] = field(default_factory=list)
    active: str = "active"
    seen: Seen = field(default_factory=lambda: Seen(True, 6, "1.0.0", True, "ok", 1e9))

    @property
    def places(self) -> Places:
        return Places(self.root)

    def install(self, release: Path, command_id: str = "") -> ReleaseTrial | None:
        return install.install(self.places, release, command_id)

    def refusal(self, release: Path, command_id: str = "") -> str:
        before = sorted(path for path in self.root.rglob("*") if ".lock" not in path.name)
        with pytest.raises(ReleaseRefused) as caught:
            self.install(release, command_id)
        assert "\n" not in str(caught.value)
        assert sorted(path for path in self.root.rglob("*") if ".lock" not in path.name) == before
        return caught.value.code

    def runs(self) -> str:
        """The version that the link leads to."""
        return str(self.places.current.readlink()) if self.places.current.is_symlink() else "package"


@pytest.fixture(scope="module")
def maker(tmp_path_factory) -> Maker:
    return Maker(tmp_path_factory.mktemp("maker"), is_real=False)


@pytest.fixture(scope="module")
def release(maker) -> Path:
    return maker.release("1.1.0")


@pytest.fixture
def machine(tmp_path, maker, monkeypatch) -> Iterator[Machine]:
    made = Machine(tmp_path / "root", maker)
    for name in ("etc/device-agent/release-keys", "var/lib/device-agent/update", "var/lib/device-agent-releases"):
        (made.root / name).mkdir(parents=True, mode=0o755)
    write_package(made.root / "usr/lib/device-agent", maker.program("1.0.0"), "1.0.0")
    (made.root / "etc/device-agent/release-keys/maker.pub").write_bytes(maker.public_pem)
    monkeypatch.setattr(install, "service_state", lambda places: {"ActiveState": made.active})
    monkeypatch.setattr(install, "observe", lambda places: made.seen)
    monkeypatch.setattr(guard, "observe", lambda places: made.seen)
    for module in (install, guard):
        monkeypatch.setattr(module, "ask_systemd", lambda places, *words: made.asked.append(words) or "")
    umask = os.umask(0o022)  # as the program itself sets it
    yield made
    os.umask(umask)


# --- refused ----------------------------------------------------------------------------------------------------------


def test_each_bad_file_is_refused_with_its_reason_and_changes_nothing(machine, maker, release, tmp_path):
    other = maker.release("1.1.0", name="other-key", key=Ed25519PrivateKey.generate())
    assert machine.refusal(other) == "wrong_signature"
    assert machine.refusal(maker.release("1.1.0", name="arm", architecture="arm64")) == "wrong_architecture"
    assert machine.refusal(maker.release("0.9.0")) == "downgrade"
    assert machine.refusal(maker.release("1.1.0", name="format", format=2)) == "unknown_format"
    assert machine.refusal(maker.release("1.1.0", name="schema", store_schema=99)) == "other_schema"
    data = release.read_bytes()
    cut = tmp_path / "cut"
    with tarfile.open(release) as tar:
        end = max(member.offset_data + member.size for member in tar)
    for size in (0, 100, 2000, len(data) // 3, end - 1):
        cut.write_bytes(data[:size])
        assert machine.refusal(cut) in {"truncated", "damaged"}
    assert machine.refusal(tmp_path / "nothing") == "no_file"
    assert machine.runs() == "package"


def test_one_flipped_bit_anywhere_is_found(machine, release, tmp_path):
    data = bytearray(release.read_bytes())
    with tarfile.open(release) as tar:
        places = [(member.offset_data, member.size) for member in tar]
    for begin, size in places:
        for at in (begin, begin + size // 2, begin + size - 1):
            flipped = data.copy()
            flipped[at] ^= 1
            bad = tmp_path / "bad"
            bad.write_bytes(flipped)
            assert machine.refusal(bad) in {"wrong_signature", "damaged"}


def test_only_keys_that_nobody_but_root_may_write_are_trusted(machine, release):
    key = machine.places.keys / "maker.pub"
    key.write_text("nonsense")
    assert machine.refusal(release) == "bad_key"
    key.write_bytes(machine.maker.public_pem)
    for path, mode in ((key, 0o644), (machine.places.keys, 0o755)):
        path.chmod(0o777)
        assert machine.refusal(release) == "bad_key"
        path.chmod(mode)
    key.rename(key.with_suffix(".old"))
    assert machine.refusal(release) == "no_key"


def test_a_disk_that_is_too_small_is_found_before_anything_is_written(machine, release, monkeypatch):
    class Small:
        f_flag, f_frsize, f_bavail = 0, 4096, 100

    monkeypatch.setattr("agent.update.install.os.statvfs", lambda path: Small)
    assert machine.refusal(release) == "not_enough_disk"
    Small.f_flag = os.ST_NOEXEC
    assert machine.refusal(release) == "noexec"


@pytest.mark.parametrize(("name", "value"), [("PROBATION_S", "soon"), ("DEADLINE_S", "0"), ("MAX_STARTS", "0")])
def test_wrong_limits_are_said_and_not_guessed(machine, release, name, value, monkeypatch):
    monkeypatch.setenv(f"DEVICE_AGENT_UPDATE_{name}", value)
    assert machine.refusal(release) == "misconfigured"


def test_what_was_taken_back_is_tried_again_by_root_alone(machine, release):
    write_trial(machine.places, replace(machine.install(release), phase=ROLLED_BACK, starts=1))
    guard.watch(machine.places)
    assert machine.refusal(release, "command-1") == "taken_back_before"
    assert machine.install(release).phase == TRYING


@pytest.mark.parametrize("name", ["../up", "/etc/x", "a/../../x", "common/__pycache__/a.pyc", "a\nb"])
def test_a_path_that_leads_elsewhere_is_refused_also_when_the_maker_signed_it(machine, maker, name):
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:") as tar:
        tar.addfile(tarfile.TarInfo(name))
    content = lzma.compress(packed.getvalue())
    says = {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    signed = maker.release("1.1.0", name="paths", **says)
    path = maker.folder / "leads.release"
    with tarfile.open(signed) as tar, tarfile.open(path, "w:") as out:
        for member in tar:
            data = content if member.name == "content.tar.xz" else tar.extractfile(member).read()
            member.size = len(data)
            out.addfile(member, io.BytesIO(data))
    assert machine.refusal(path) == "damaged"


GOOD = {"kind": "device-agent release", "format": 1, "version": "2.0.0", "architecture": "amd64", "store_schema": 4}
GOOD |= {"downgrade": False, "size": 10, "sha256": "a" * 64, "unpacked_bytes": 3}
WRONG = [("kind", "toaster"), ("version", "1"), ("version", "2.0-rc1"), ("version", "../up"), ("version", 2)]
WRONG += [("size", -1), ("size", 2**40), ("size", "1"), ("unpacked_bytes", 2**31)]


@pytest.mark.parametrize(("name", "value"), WRONG)
def test_a_manifest_that_is_wrong_in_a_member_is_refused(name, value):
    assert parse_manifest(json.dumps(GOOD).encode()).program.version == "2.0.0"
    with pytest.raises(ReleaseRefused, match="malformed: .*build it again"):
        parse_manifest(json.dumps({**GOOD, name: value}).encode())


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b"\xff", b"[" * 100_000, b'{"kind": "x"}'])
def test_what_is_no_manifest_is_refused(data):
    with pytest.raises(ReleaseRefused):
        parse_manifest(data)


def test_versions_are_compared_as_numbers():
    assert version_key("1.10") > version_key("1.9.9") > version_key("1.9") == version_key("1.9.0.0")


# --- installed --------------------------------------------------------------------------------------------------------


def test_the_agents_user_can_read_all_of_it_and_hold_no_lock(machine, release):
    machine.install(release)
    guard.start(machine.places)
    for path in machine.places.releases.rglob("*"):
        mode = path.lstat().st_mode & 0o777
        if path.name.endswith(".lock"):
            assert mode == 0o600
        elif not path.is_symlink():
            assert mode & 0o044 == 0o044, path
            assert mode & 0o022 == 0, path


def test_only_the_release_in_force_and_the_one_before_it_stay(machine, maker):
    for version in ("1.1.0", "1.2.0", "1.3.0"):
        machine.install(maker.release(version))
        guard.start(machine.places)
        machine.seen = well(version=version)
        assert watched(machine).phase == KEPT
    folders = {path.name for path in machine.places.releases.iterdir() if path.is_dir() and not path.is_symlink()}
    assert folders == {"1.2.0", "1.3.0"}
    assert machine.runs() == "1.3.0"
    assert running_program(machine.places, read_trial(machine.places)).version == "1.3.0"


def test_a_newer_package_takes_the_place_of_a_release_and_an_older_one_does_not(machine, release):
    trial = machine.install(release)
    write_trial(machine.places, replace(trial, phase=KEPT))
    guard.after_package(machine.places)
    assert machine.runs() == "1.1.0"
    base = machine.places.base / "release.json"
    base.write_text(base.read_text().replace("1.0.0", "1.1.0"))
    guard.after_package(machine.places)
    assert machine.runs() == "package"
    assert (read_trial(machine.places).phase, read_trial(machine.places).reason) == (
        ROLLED_BACK,
        "the package 1.1.0 was installed over it",
    )
    guard.start(machine.places)
    assert machine.runs() == "package"


# --- judged -----------------------------------------------------------------------------------------------------------


class Clock:
    """A clock that the guard's waits move; each wait is also a chance for the service manager."""

    def __init__(self, machine: Machine, began_s: float = 0.0) -> None:
        self.machine = machine
        self.now_s = began_s

    def now(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        assert self.now_s < 2000, read_trial(self.machine.places)
        if read_trial(self.machine.places).phase == ROLLED_BACK and self.machine.asked:
            guard.start(self.machine.places)  # as the service manager does


def watched(machine: Machine) -> ReleaseTrial:
    """Let the guard watch to the end."""
    clock = Clock(machine)
    guard.watch(machine.places, sleep=clock.sleep, now=clock.now)
    return read_trial(machine.places)


def well(**changes) -> Seen:
    members = {"is_ready": True, "process_id": 7, "version": "1.1.0", "is_connected": True, "detail": "ok"}
    return Seen(**{**members, "alive_s": 1e9, **changes})


WORKING = {"handler:ping": "ready", "sensor:b": "ready", "sensor:a": "failing"}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"is_ready": False}, "not say that it is ready"),
        ({"process_id": 0}, "not say that it is ready"),
        ({"version": "1.0.0"}, "runs version 1.0.0"),
        ({"is_connected": False, "detail": "no route"}, "no exchange with the server (no route)"),
        ({"alive_s": 100.0}, "it hangs"),
        ({"states": {"handler:ping": "ready"}}, "sensor b worked before and does not now: it is gone"),
        ({"states": {"sensor:b": "ready"}}, "handler ping worked before and does not now: it is gone"),
        (
            {"states": {**WORKING, "store": "failing", "handler:new": "not_loaded"}},
            "store worked before and does not now",
        ),
    ],
)
def test_what_does_not_prove_itself_goes_back_with_what_is_missing(machine, release, changes, says):
    machine.seen = replace(machine.seen, states=WORKING)
    machine.install(release)
    guard.start(machine.places)
    machine.seen = well(**{"states": WORKING, **changes})
    lost = watched(machine)
    assert (lost.phase, machine.runs()) == (ROLLED_BACK, "package")
    assert says in lost.reason


TRIAL = ReleaseTrial(version="1.1.0", probation_s=60.0, deadline_s=300.0, before={"sensor:t": "ready"})


def test_another_process_begins_its_probation_anew_and_one_exchange_is_enough():
    judge = guard.Judge(replace(TRIAL, before={}), 0.0)
    assert judge.decide(well(), 0) is None
    assert judge.decide(well(process_id=8), 60) is None
    assert judge.decide(well(process_id=8, is_connected=False), 120) is True


def test_a_sensor_and_a_word_to_the_watchdog_that_come_late_are_waited_for():
    judge = guard.Judge(TRIAL, 0.0)
    assert judge.decide(well(), 0) is None
    assert judge.decide(well(), 60) is None
    assert judge.missing == "sensor t worked before and does not now: it is gone"
    good = well(states={"sensor:t": "ready"}, alive_s=59)
    assert judge.decide(good, 61) is None
    assert "it hangs" in judge.missing
    assert judge.decide(replace(good, alive_s=62), 63) is True


def test_a_restart_that_nobody_made_is_asked_for(machine, release):
    machine.install(release)

    def sleep(_seconds: float) -> None:
        if machine.asked:
            raise StopIteration

    with pytest.raises(StopIteration):
        guard.watch(machine.places, sleep=sleep)
    assert machine.asked == [("--no-block", "restart", guard.SERVICE)]
    assert machine.runs() == "1.1.0"


def test_on_a_full_disk_the_release_that_is_given_up_makes_room_for_the_way_back(machine, release, monkeypatch):
    machine.install(release)
    guard.start(machine.places)
    write = guard.replace_file

    def full(*arguments: object, **options: object) -> None:
        if (machine.places.releases / "1.1.0").exists():
            raise OSError(errno.ENOSPC, "No space left on device")
        write(*arguments, **options)

    monkeypatch.setattr(guard, "replace_file", full)
    guard.start(machine.places)  # it cannot be counted
    assert machine.runs() == "package"
    assert read_trial(machine.places).phase == ROLLED_BACK
    assert "could not be counted" in read_trial(machine.places).reason


@pytest.mark.parametrize(
    ("watchdog", "message", "alive_s"),
    [("1min 30s", "5000000", 5.0), ("1min 30s", "[not set]", 0.0), ("1min 30s", "0", 0.0), ("infinity", "0", 1e99)],
)
def test_what_systemctl_says_is_read(tmp_path, watchdog, message, alive_s):
    shown = f"ActiveState=active\nMainPID=7\nWatchdogUSec={watchdog}\nWatchdogTimestampMonotonic={message}\n"
    places = Places(tmp_path)
    places.systemctl.parent.mkdir(parents=True)
    places.systemctl.write_text(f"#!/bin/sh\nprintf '%s' '{shown}'\n")
    places.systemctl.chmod(0o755)
    seen = guard.observe(places)
    assert (seen.is_ready, seen.process_id, min(seen.alive_s, 1e99)) == (True, 7, alive_s)


# --- what a cut leaves ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("link", [None, "1.1.0", "1.0.9", "nowhere"])
def test_whatever_the_link_says_it_follows_the_state(machine, link):
    places = machine.places
    if link:
        places.current.symlink_to(link)
    (places.releases / ".current.new").symlink_to("half")
    for phase, version in {TRYING: "1.1.0", ROLLED_BACK: "1.0.9", KEPT: "1.1.0"}.items():
        point_link(places, ReleaseTrial(phase, version="1.1.0", previous="1.0.9"))
        assert machine.runs() == version


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"phase": 1}', b"\xff" * 100, None])
def test_a_state_that_cannot_be_read_takes_no_release_out_of_force(machine, release, data):
    path = machine.places.releases / "state.json"
    write_trial(machine.places, replace(machine.install(release), phase=KEPT))
    guard.start(machine.places)
    # First a member that is not known.
    path.write_text(json.dumps({**json.loads(path.read_bytes()), "since": "a later version"}))
    assert read_trial(machine.places).probation_s == 120
    path.unlink()
    if data is not None:
        path.write_bytes(data)
    guard.start(machine.places)
    guard.watch(machine.places)
    assert machine.runs() == "1.1.0"
    assert running_program(machine.places, read_trial(machine.places)).version == "1.1.0"


# --- for the agent ----------------------------------------------------------------------------------------------------


def test_a_refusal_is_answered_under_the_commands_name_and_no_link_is_followed(machine, release, tmp_path):
    folder = machine.places.download
    install.serve(machine.places)
    assert read_answer(machine.places, "")["code"] == "no_file"
    (folder / COMMAND_ID).write_text("c9")
    (folder / "release").symlink_to(release)
    install.serve(machine.places)
    assert read_answer(machine.places, "c9")["code"] == "no_file"
    (folder / "release").unlink()
    (folder / "release").write_bytes(b"nonsense")
    install.serve(machine.places)
    assert read_answer(machine.places, "c9")["code"] == "truncated"
    assert read_answer(machine.places, "c8") is None


def run(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return run_program([sys.executable, "-I", "-m", "agent.update", "--root", root, *words])


def test_the_program_says_a_refusal_in_one_line_and_has_nothing_to_do_without_releases(tmp_path, release):
    found = run(tmp_path, "install", str(release))
    assert (found.returncode, found.stdout) == (1, "")
    assert found.stderr.startswith("refused: no_key: ")
    assert len(found.stderr.splitlines()) == 1
    for word in ("start", "after-package"):
        found = run(tmp_path, word)
        assert (found.returncode, found.stdout, found.stderr) == (0, "", "")


# --- the maker's side -------------------------------------------------------------------------------------------------


def test_the_same_content_gives_the_same_bytes_and_openssl_believes_the_signature(maker, tmp_path):
    openssl = require_program("openssl")
    first = maker.release("1.1.0", name="first").read_bytes()
    path = maker.release("1.1.0", name="second")
    assert path.read_bytes() == first
    with tarfile.open(path) as tar:
        tar.extractall(tmp_path, filter="data")
    (tmp_path / "maker.pub").write_bytes(maker.public_pem)
    verify = ("pkeyutl", "-verify", "-rawin", "-pubin", "-inkey", "maker.pub", "-sigfile", "manifest.sig")
    done = run_program([openssl, *verify, "-in", "manifest.json"], cwd=tmp_path)
    assert "Verified Successfully" in done.stdout + done.stderr
