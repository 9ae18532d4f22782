"""The checks that look at this machine alone, in their good and their bad states."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agent.app.lock import state_lock
from agent.app.status import StatusFile, write_status
from agent.app.version import VERSION
from agent.core.outbox import Bounds
from agent.doctor import CheckStatus
from agent.errors import ConfigurationError
from agent.health import Part
from agent.store.sqlite import FILE_NAME
from agent.store.store import Store
from tests.support.factories import make_reading
from tests.support.fakes import FakeClock
from tests.unit.agent.doctor.verdicts import is_bad, is_ok


def tell_status(device, *, version: str = VERSION, state: str = "running", **parts: Part) -> None:
    told = StatusFile(state, os.getpid(), version, "d1", 0.0, 1.0, "boot", parts, "SIGTERM received")
    write_status(device.state_dir / "status.json", told)


@pytest.mark.parametrize(("wall_s", "cause"), [(12.0, "never set"), (1_000_000_000.0, "never set"), (5e9, "or wrong")])
def test_an_impossible_clock(device, wall_s, cause):
    device.wall_s = wall_s
    is_bad(device.look("clock"), "failed", cause, "timedatectl set-ntp true")


def test_a_clock_that_a_time_service_keeps(device):
    device.options["is_synchronized"] = Path.exists  # the kernel's word is this machine's, not the device's
    is_bad(device.look("clock"), "warning", "no time service", "timedatectl")
    device.put("/run/systemd/timesync/synchronized")
    is_ok(device.look("clock"), "in step")


class TestKeyFiles:
    def test_one_that_is_not_there_and_one_whose_group_may_write_it(self, device):
        device.keys["api_key"].chmod(0o660)
        is_bad(device.look("key_files"), "warning", "its group", "chmod 600")
        device.keys["secret_key"].unlink()
        loose, gone = device.findings("key_files")
        is_bad(loose, "warning", "its group", "chmod 600")
        is_bad(gone, "failed", "create it with mode 600", "")

    def test_what_the_unit_hands_over_stands_in_for_files_that_are_not_named(self, device):
        device.values["auth"] = {"allow_secret_key_on_device": True}
        is_bad(device.look("key_files"), "failed", "LoadCredential", "")
        device.boot_with_systemd(**GOOD_UNIT)
        assert device.look("key_files").verdict is CheckStatus.SKIPPED  # it does not run
        for name in ("api_key", "secret_key"):
            device.put(f"/run/credentials/device-agent.service/{name}", device.keys[name].read_text()).chmod(0o400)
        is_ok(device.look("key_files"))

    def test_one_that_only_the_service_may_read(self, device, monkeypatch):
        path = device.key("token", "dat_1")
        device.values["auth"] = {"mode": "bearer", "token_file": path}
        monkeypatch.setattr("agent.doctor.checks.os.access", lambda *_: False)
        monkeypatch.setattr("agent.doctor.checks.read_credentials", _refuse)
        is_bad(device.look("key_files"), "failed", "may not be read", "")
        device.boot_with_systemd(**GOOD_UNIT)
        assert device.look("key_files").verdict is CheckStatus.SKIPPED


def _refuse(*_args: object) -> None:
    raise ConfigurationError(["auth.token_file: may not be read by this user"], "credentials")


class TestState:
    @pytest.mark.parametrize(
        ("kind", "options", "why"),
        [("ext4", "rw,noatime", None), ("tmpfs", "rw", ("RAM disk", "state_dir")), ("ext4", "ro", ("read-only", ""))],
    )
    def test_the_file_system_below_it(self, device, kind, options, why):
        device.programs["findmnt"] = f"/var {kind} {options}\n"
        finding = device.findings("disk")[0]
        if why is None:
            is_ok(finding, kind)
        else:
            is_bad(finding, "failed", *why)

    def test_a_store_near_its_bound(self, device):
        with Store(device.state_dir / FILE_NAME, clock=FakeClock(), bounds=Bounds(max_rows=100)) as store:
            for _ in range(95):
                store.outbox.put(make_reading())
        device.values["outbox"] = {"max_rows": 100}
        is_bad(device.look("database"), "warning", "soon some are dropped", "max_rows")

    def test_a_store_that_is_damaged_and_one_that_was(self, device):
        (device.state_dir / FILE_NAME).write_bytes(b"SQLite format 3\0" + b"\xff" * 5000)
        (device.state_dir / f"{FILE_NAME}.damaged-20260101T000000Z").write_bytes(b"")
        broken, before = device.findings("database")
        is_bad(broken, "failed", "", "")
        is_bad(before, "warning", "power cuts", "rm ")


GOOD_UNIT = {"LoadState": "loaded", "UnitFileState": "enabled", "ActiveState": "active"}


def test_a_unit_that_runs_is_also_to_be_started_at_boot(device):
    device.boot_with_systemd(**GOOD_UNIT)
    is_ok(device.look("unit"))
    device.boot_with_systemd(**GOOD_UNIT | {"UnitFileState": "disabled"})
    is_bad(device.look("unit"), "warning", "not started at boot", "systemctl enable")
    device.boot_with_systemd(**GOOD_UNIT | {"ActiveState": "failed"})
    is_bad(device.look("unit"), "failed", "does not run", "journalctl")


class TestAgent:
    def test_plug_ins_that_cannot_be_used_while_no_agent_runs(self, device):
        device.values["executables"] = {"valve": {"argv": ["/nowhere/valve"]}}
        device.values["sensors"] = [{"name": "t", "type": "no_such_type"}]
        is_bad(device.look("handlers"), "failed", "/nowhere/valve", "commands.handlers.valve.enabled: false")
        is_bad(device.look("sensors"), "failed", "no_such_type", "device-agent plugins list")

    def test_beside_one_that_runs_its_word_counts_and_no_sensor_is_read(self, device):
        device.values["sensors"] = [{"name": "t", "type": "no_such_type"}]
        with state_lock(device.state_dir):
            tell_status(device, readings=Part("ok", 0.0))
            is_ok(device.look("sensors"), "as the running agent reports")
            is_ok(device.look("agent"), str(os.getpid()))
            tell_status(device, **{"sensor:t": Part("failing", 0.0, "the bus is dead")})
            is_bad(device.look("agent"), "failed", "the bus is dead", "wiring")
            tell_status(device, readings=Part("unreachable", 0.0, "cannot connect: check the network"))
            is_bad(device.look("agent"), "warning", "cannot connect: check the network", "check of that part")
            tell_status(device, mode=Part("safe", 0.0, "5 start(s) in a row did not stay up"))
            is_bad(device.look("agent"), "failed", "5 start(s)", "restart")
            tell_status(device, version="0.0.1")
            is_bad(device.look("agent"), "warning", VERSION, "systemctl restart")

    def test_one_that_died_one_that_was_stopped_and_one_that_never_ran(self, device):
        is_bad(device.look("agent"), "warning", "not started", "systemctl start")
        tell_status(device)
        is_bad(device.look("agent"), "failed", "killed", "journalctl")
        tell_status(device, state="stopped")
        assert "SIGTERM" in device.look("agent").seen
