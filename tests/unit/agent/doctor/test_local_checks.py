"""Every check that looks at this machine alone, in its good and its bad states."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from agent.app.lock import StateLock
from agent.app.start_counter import FILE_NAME as STARTS
from agent.app.status_file import StatusFile, write_status
from agent.app.version import VERSION
from agent.config.load import load_config
from agent.core.outbox import Bounds
from agent.doctor import CHECKS
from agent.doctor.findings import CheckStatus, Finding, examine
from agent.errors import ConfigurationError
from agent.runtime.health import Part
from agent.store.sqlite import FILE_NAME
from agent.store.writer import Store
from tests.factories import make_reading
from tests.fakes import FakeClock


def is_ok(finding: Finding, *words: str) -> None:
    assert finding.verdict is CheckStatus.OK, finding
    assert all(word in finding.seen for word in words), finding


def is_skipped(finding: Finding) -> None:
    assert finding.verdict is CheckStatus.SKIPPED, finding
    assert finding.seen


def is_bad(finding: Finding, verdict: str, cause: str, fix: str) -> None:
    assert finding.verdict == verdict, finding
    assert cause in finding.cause, finding
    assert fix in finding.fix, finding
    assert finding.seen
    for text in (finding.seen, finding.cause, finding.fix):
        assert "\n" not in text


def tell_status(
    device,
    *,
    version: str = VERSION,
    state: str = "running",
    parts: dict[str, Part] | None = None,
    packages: dict[str, str] | None = None,
) -> None:
    told = StatusFile(
        state, os.getpid(), version, "d1", 0.0, 1.0, "boot", parts or {}, "SIGTERM received", packages or {}
    )
    write_status(device.state_dir / "status.json", told)


class TestSetup:
    def test_each_fault_of_a_configuration_is_a_finding(self, device, tmp_path):
        path = tmp_path / "config.yaml"
        path.write_text("service: {base_url: 'ftp://x'}\ndevice: {}\nsensor: []\n")
        device.config = lambda: load_config(path, {})
        found = device.findings("configuration")
        assert len(found) > 2
        for finding in found:
            is_bad(finding, "failed", "", "device-agent check")
            assert str(path) in finding.seen

    def test_an_agent_that_was_started_before_the_update_is_told(self, device):
        is_ok(device.look("package_version"), VERSION)
        with StateLock(device.state_dir):
            tell_status(device)
            is_ok(device.look("package_version"), "the same")
            tell_status(device, version="0.0.1")
            is_bad(device.look("package_version"), "warning", "0.0.1", "systemctl restart")


class TestClock:
    @pytest.mark.parametrize(
        ("wall_s", "cause"), [(12.0, "never set"), (1_000_000_000.0, "never set"), (5e9, "future")]
    )
    def test_an_impossible_clock(self, device, wall_s, cause):
        device.wall_s = wall_s
        is_bad(device.look("clock"), "failed", cause, "timedatectl set-ntp true")

    def test_a_clock_that_a_time_service_keeps(self, device):
        device.options["is_synchronized"] = Path.exists  # the kernel's word is this machine's, not the device's
        is_bad(device.look("clock"), "warning", "no time service", "timedatectl")
        device.put("/run/systemd/timesync/synchronized")
        is_ok(device.look("clock"), "in step")


class TestFiles:
    def test_a_key_file_that_is_not_there(self, device):
        device.keys["secret_key"].unlink()
        is_bad(device.look("key_files"), "failed", "create it with mode 600", "")

    def test_what_the_unit_hands_over_stands_in_for_files_that_are_not_named(self, device):
        device.values["auth"] = {"allow_secret_key_on_device": True}
        is_bad(device.look("key_files"), "failed", "LoadCredential", "")
        lines = "[Service]\nLoadCredential=api_key:/etc/x\nLoadCredential=secret_key:/etc/y\n"
        device.boot_with_systemd(lines, device_agent=GOOD_UNIT)
        is_bad(device.look("key_files"), "failed", "LoadCredential", "")  # of files that are not there
        lines = "[Service]\nLoadCredentialEncrypted=api_key\nLoadCredentialEncrypted=secret_key\n"
        device.boot_with_systemd(lines, device_agent=GOOD_UNIT)
        is_skipped(device.look("key_files"))  # it does not run
        for name in ("api_key", "secret_key"):
            device.put(f"/run/credentials/device-agent.service/{name}", device.keys[name].read_text()).chmod(0o400)
        is_ok(device.look("key_files"))

    def test_a_key_that_the_agent_may_not_read_and_the_unit_does_not_hand_over(self, device, monkeypatch):
        path = device.key("token", "dat_1")
        device.values["auth"] = {"mode": "bearer", "token_file": path}
        monkeypatch.setattr("agent.doctor.machine.os.access", lambda *_: False)
        monkeypatch.setattr("agent.doctor.device.read_credentials", _refuse)
        device.boot_with_systemd(f"[Service]\nLoadCredential=token:{path}\n", device_agent=GOOD_UNIT)
        is_skipped(device.look("key_files"))
        device.programs["systemctl cat device-agent.service"] += "LoadCredential=\n"
        is_bad(device.look("key_files"), "failed", "device-agent may not read", "chown device-agent")

    @pytest.mark.parametrize(
        ("kind", "options", "verdict", "why"),
        [
            ("ext4", "rw,noatime", "ok", ("", "")),
            ("tmpfs", "rw", "failed", ("RAM disk", "state_dir")),
            ("ext4", "ro", "failed", ("read-only", "dmesg")),
        ],
    )
    def test_the_file_system_below_it(self, device, kind, options, verdict, why):
        is_skipped(device.look("state_dir_durable"))
        device.put(
            "/proc/self/mountinfo",
            "21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/root rw\n"
            f"31 21 8:2 / {device.folder} {options} shared:2 - {kind} /dev/x {options}\n"
            f"32 21 8:2 / {device.folder}/stat rw shared:2 - tmpfs tmpfs rw\n"
            "short line\n",
        )
        finding = device.look("state_dir_durable")
        if verdict == "ok":
            is_ok(finding, kind)
        else:
            is_bad(finding, verdict, *why)


class TestStore:
    def test_a_store_near_its_bound(self, device):
        clock = FakeClock()
        with Store(device.state_dir / FILE_NAME, clock=clock, bounds=Bounds(max_rows=100)) as store:
            for _ in range(95):
                store.outbox.put(make_reading())
        device.values["outbox"] = {"max_rows": 100}
        is_bad(device.look("database"), "warning", "soon some are dropped", "max_rows")

    def test_what_is_no_database(self, device):
        (device.state_dir / FILE_NAME).write_bytes(b"SQLite format 3\0" + b"\xff" * 5000)
        is_bad(device.look("database"), "failed", "", "")

    def test_damaged_files_that_were_moved_aside(self, device):
        for ending in ("", "-wal"):
            (device.state_dir / f"{FILE_NAME}.damaged-20260101T000000Z{ending}").write_bytes(b"")
        finding = device.look("database")
        is_bad(finding, "warning", "power cuts", "rm ")
        assert "1 damaged" in finding.seen


def _refuse(*_args: object) -> None:
    raise ConfigurationError(["auth.token_file: may not be read by this user"], "credentials")


GOOD_UNIT = {
    "User": "device-agent",
    "LoadState": "loaded",
    "UnitFileState": "enabled",
    "ActiveState": "active",
    "SubState": "running",
    "Result": "success",
    "FragmentPath": "/etc/systemd/system/device-agent.service",
}


class TestUnits:
    @pytest.mark.parametrize(
        ("check", "changes", "verdict", "why"),
        [
            ("unit", {"LoadState": "not-found"}, "warning", ("at boot", "enable --now")),
            ("unit", {"ActiveState": "failed", "Result": "watchdog"}, "failed", ("watchdog", "journalctl")),
            ("unit", {"UnitFileState": "disabled"}, "warning", ("not started at boot", "systemctl enable")),
        ],
    )
    def test_a_unit_with_a_fault(self, device, check, changes, verdict, why):
        device.boot_with_systemd(device_agent={**GOOD_UNIT, **changes})
        is_bad(device.look(check), verdict, *why)

    def test_a_request_for_a_reboot_is_taken_or_the_unit_is_missing(self, device):
        device.boot_with_systemd(device_agent=GOOD_UNIT)
        device.values["commands"] = {"handlers": {"reboot": {"enabled": False}}}
        is_skipped(device.look("reboot_unit"))
        device.values["commands"] = {}
        device.programs = {}
        is_bad(device.look("reboot_unit"), "warning", "sandbox", "enable --now")
        for state in ("failed", "active"):
            text = f"LoadState=loaded\nActiveState={state}\n"
            device.programs = {"systemctl show device-agent-reboot.timer": text}
            finding = device.look("reboot_unit")
            if state == "active":
                is_ok(finding)
            else:
                is_bad(finding, "warning", "sandbox", "reboot.enabled: false")


class TestPlugins:
    def test_a_handler_that_cannot_be_used(self, device):
        device.values["executables"] = {"valve": {"argv": ["/nowhere/valve"]}}
        finding = device.look("handlers")
        is_bad(finding, "failed", "/nowhere/valve", "commands.handlers.valve.enabled: false")

    def test_a_sensor_that_cannot_be_used(self, device):
        device.values["sensors"] = [{"name": "t", "type": "no_such_type"}]
        is_bad(device.look("sensors"), "failed", "no_such_type", "device-agent sensors")

    def test_beside_a_running_agent_its_word_counts_and_nothing_is_read(self, device):
        device.values["sensors"] = [{"name": "t", "type": "no_such_type"}]
        with StateLock(device.state_dir):
            tell_status(device, parts={"sensor:t": Part("ok", 0.0)})
            is_ok(device.look("sensors"), "as the running agent reports")
            tell_status(device, parts={"sensor:t": Part("failing", 0.0, "the bus is dead")})
            is_bad(device.look("sensors"), "failed", "the bus is dead", "wiring")

    def test_a_program_that_anybody_may_change(self, device, tmp_path):
        path = tmp_path / "valve"
        path.write_text("#!/bin/sh\n")
        device.values["executables"] = {"valve": {"argv": [str(path)]}}
        path.chmod(0o777)
        is_bad(device.look("programs"), "failed", "everybody", f"chmod o-w {path}")
        path.chmod(0o755)
        is_ok(device.look("programs"), str(path))

    def test_programs_that_are_there(self, device):
        is_skipped(device.look("programs"))
        device.values["executables"] = {"true": {"argv": ["true"]}, "broken": {"argv": []}}
        is_ok(device.look("programs"))


class TestProcess:
    def test_an_agent_that_runs_and_is_well(self, device):
        with StateLock(device.state_dir):
            tell_status(device, parts={"readings": Part("ok", 0.0)})
            is_ok(device.look("agent"), str(os.getpid()))
            tell_status(device, parts={"readings": Part("unreachable", 0.0, "cannot connect: check the network")})
            is_bad(device.look("agent"), "warning", "cannot connect: check the network", "check of that part")

    def test_one_that_died_one_that_was_stopped_and_one_that_never_ran(self, device):
        is_bad(device.look("agent"), "warning", "not started", "systemctl start")
        tell_status(device)
        is_bad(device.look("agent"), "failed", "killed", "journalctl")
        tell_status(device, state="stopped")
        finding = device.look("agent")
        assert finding.verdict is CheckStatus.WARNING
        assert "SIGTERM" in finding.seen

    def test_safe_mode_and_starts_that_came_to_nothing(self, device):
        notes = device.state_dir / STARTS
        notes.write_text(json.dumps({"failed": 2, "reason": "x"}))
        is_bad(device.findings("agent")[1], "warning", "a crash, a kill", "after 5 in a row")
        with StateLock(device.state_dir):
            why = "5 start(s) in a row did not stay up for 60 s; restart_agent or another configuration ends it"
            tell_status(device, parts={"mode": Part("safe", 0.0, why)})
            is_bad(device.look("agent"), "failed", "5 start(s)", "restart")
            tell_status(device, parts={})
            notes.write_text(json.dumps({"failed": 1}))
            is_ok(device.look("agent"))
            notes.write_text("rubbish")
            is_ok(device.look("agent"))


def test_no_finding_of_a_local_check_holds_a_secret(device):

    told = json.dumps([repr(result) for result in examine(device.subject(), CHECKS, offline=True)])
    assert "mk_doctor" not in told
    assert "msk_doctor" not in told
