"""Every check that looks at this machine alone, in its good and its bad states."""

from __future__ import annotations

import json
import os
import socket
import stat
from contextlib import closing
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

import pytest

from agent.adapters.sqlite_store import FILE_NAME, SqliteStore
from agent.app.lock import StateLock
from agent.app.other_devices import swap_stores
from agent.app.start_notes import FILE_NAME as STARTS
from agent.app.status_file import StatusFile, write_status
from agent.app.version import VERSION
from agent.config.load import load_config
from agent.core.outbox import Bounds
from agent.core.values import CommandState, SendOutcome
from agent.doctor import process, setup, units
from agent.doctor.examination import all_checks, examine
from agent.doctor.findings import CheckStatus, Finding
from agent.runtime.health import Part
from tests.factories import make_entry, make_outcome, make_reading
from tests.fakes import FakeClock
from tests.unit.agent.doctor.conftest import RECORDS


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
    def test_a_configuration_that_is_whole(self, device):
        is_ok(device.look("configuration"), "whole and consistent")

    def test_a_configuration_with_faults_names_the_first_and_counts_the_others(self, device, tmp_path):
        path = tmp_path / "config.yaml"
        path.write_text("service: {base_url: 'ftp://x'}\ndevice: {}\nsensor: []\n")
        device.config = lambda: load_config(path, {})
        finding = device.look("configuration")
        is_bad(finding, "failed", "", "more faults")
        assert str(path) in finding.seen

    def test_a_layer_that_is_left_out_is_told(self, device):
        whole = device.config()
        device.config = lambda: replace(whole, layer_fault="config.d/remote.yaml is damaged: send update_config again")
        is_bad(device.look("configuration"), "warning", "is damaged", "send update_config")

    def test_only_the_owner_may_change_the_file(self, device):
        device.config_path = device.key("config.yaml", "device: {}\n", 0o644)
        is_ok(device.look("config_file"), "mode 644")
        device.config_path.chmod(0o666)
        result = device.examine("config_file", fix=True)
        assert "took the right to write" in result.fixed
        assert stat.S_IMODE(device.config_path.stat().st_mode) == 0o644
        is_ok(result.finding)
        device.config_path.chmod(0o664)
        is_bad(device.look("config_file"), "failed", "others than its owner may change it", "chmod go-w")

    def test_a_secret_in_the_file_also_in_a_comment_is_a_fault(self, device):
        device.config_path = device.key("config.yaml", "# the key is msk_0123456789ab\ndevice: {}\n", 0o600)
        finding = device.look("config_file")
        is_bad(finding, "failed", "looks like a key", "file of mode 600")
        assert "0123456789ab" not in repr(finding)
        device.config_path.write_text("device: {note: 'Bearer s3cret'}\n")
        is_bad(device.look("config_file"), "failed", "looks like a key", "file of mode 600")

    @pytest.mark.parametrize("name", ["agent-http.yaml", "agent-mqtt.yaml"])
    def test_what_init_writes_explains_keys_and_holds_none(self, device, name):
        device.config_path = Path(__file__).parents[4] / "configs" / name
        is_ok(device.look("config_file"), "holds no secret")

    def test_without_a_file_there_is_nothing_to_look_at(self, device):
        is_skipped(device.look("config_file"))

    def test_a_proxy_in_the_environment_is_told_to_be_ignored(self, device):
        is_ok(device.look("proxy_environment"))
        device.environ["HTTPS_PROXY"] = "http://user:secret@proxy:3128"
        finding = device.look("proxy_environment")
        is_bad(finding, "warning", "never uses a proxy", "unset")
        assert "secret" not in repr(finding)

    def test_python_is_new_enough_or_too_old(self, device, monkeypatch):
        is_ok(device.look("python_version"), "Python 3.")
        monkeypatch.setattr(setup, "_OLDEST", (99, 0))
        is_bad(device.look("python_version"), "failed", "needs Python", "virtual environment")

    def test_an_agent_that_was_started_before_the_update_is_told(self, device):
        is_ok(device.look("package_version"), VERSION)
        with StateLock(device.state_dir):
            tell_status(device)
            is_ok(device.look("package_version"), "the same")
            tell_status(device, version="0.0.1")
            is_bad(device.look("package_version"), "warning", "0.0.1", "systemctl restart")

    def test_two_installations_in_one_are_told(self, device, monkeypatch):
        monkeypatch.setattr(setup, "version", lambda _name: "9.9.9")
        is_bad(device.look("package_version"), "failed", "9.9.9", "install device-agent again")


class TestClock:
    @pytest.mark.parametrize(
        ("wall_s", "cause"), [(12.0, "never set"), (1_000_000_000.0, "never set"), (5e9, "future")]
    )
    def test_an_impossible_clock(self, device, wall_s, cause):
        device.wall_s = wall_s
        is_bad(device.look("clock_plausible"), "failed", cause, "timedatectl set-ntp true")

    def test_a_possible_clock(self, device):
        is_ok(device.look("clock_plausible"), "2027-01-15")

    def test_a_clock_that_a_time_service_keeps(self, device):
        device.options["is_synchronized"] = Path.exists  # the kernel's word is this machine's, not the device's
        is_bad(device.look("clock_synchronised"), "warning", "no time service", "timedatectl")
        device.put("/run/systemd/timesync/synchronized")
        is_ok(device.look("clock_synchronised"), "in step")

    def test_a_clock_that_agrees_with_the_time_that_the_agent_has_learned(self, device):
        tell_status(device, parts={"clock": Part("ok", 0.0)})
        is_ok(device.look("clock_against_agent"), "agrees")

    @pytest.mark.parametrize(
        ("state", "detail", "cause"),
        [
            ("ok", "the clock is 172800 s ahead of the true time, and so on", "the agent goes by the true time"),
            ("unknown", "nobody has told the time yet", "neither the service nor the gateway"),
        ],
    )
    def test_a_clock_that_differs_from_it(self, device, state, detail, cause):
        tell_status(device, parts={"clock": Part(state, 0.0, detail)})
        is_bad(device.look("clock_against_agent"), "warning", cause, "timedatectl")

    def test_who_kept_something_of_another_device_is_told_how_to_release_it(self, device):
        is_ok(device.look("other_devices"), "nothing waits")
        with closing(SqliteStore(device.state_dir / FILE_NAME, clock=FakeClock())) as store:
            store.journal.put_setting("device_id", "door-1")
            store.outbox.put(make_reading())
        swap_stores(device.state_dir, "door-1", "d1")
        is_bad(device.look("other_devices"), "warning", "device.device_id was changed", "other-devices release")


class TestFiles:
    def test_key_files_that_only_their_owner_opens(self, device):
        is_ok(device.look("key_files"), "api_key", "secret_key")

    def test_a_key_file_that_the_agents_group_reads_is_left_as_it_is(self, device):
        device.keys["secret_key"].chmod(0o640)
        is_ok(device.look("key_files"))

    def test_a_key_file_that_a_group_may_change_is_mended(self, device):
        device.keys["secret_key"].chmod(0o660)
        is_bad(device.look("key_files"), "warning", "open or change it", "chmod o=,g-wx")
        result = device.examine("key_files", fix=True)
        assert "took from others" in result.fixed
        assert stat.S_IMODE(device.keys["secret_key"].stat().st_mode) == 0o640
        is_ok(result.finding)

    def test_a_key_file_that_everybody_opens_is_refused_by_the_agent_and_mended(self, device):
        device.keys["secret_key"].chmod(0o644)
        is_bad(device.look("key_files"), "failed", "everybody on this machine", "chmod 600")
        is_ok(device.examine("key_files", fix=True).finding)

    def test_a_key_file_that_is_not_there(self, device):
        device.keys["secret_key"].unlink()
        is_bad(device.look("key_files"), "failed", "secret_key", "create it with mode 600")

    def test_a_private_key_for_the_broker_counts_too(self, device):
        path = device.key("device.key", "pem", 0o644)
        device.values["mqtt"] = {"host": "localhost", "tls": True, "cert_file": path, "key_file": path}
        device.values["auth"] = {"mode": "bearer", "token_file": device.key("token", "dat_1")}
        is_bad(device.look("key_files"), "warning", "open or change it", "device.key")

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
    def test_a_key_file_of_a_stranger(self, device):
        os.chown(device.keys["api_key"], 54321, -1)
        is_bad(device.look("key_files"), "warning", "neither to root nor", "chown root")
        os.chown(device.keys["api_key"], 0, 54321)
        is_ok(device.look("key_files"))
        device.keys["api_key"].chmod(0o640)
        finding = device.look("key_files")
        is_bad(finding, "warning", "neither root's nor the unit's", "chmod g-r")
        assert finding.mend is None

    def test_what_the_unit_hands_over_stands_in_for_files_that_are_not_named(self, device):
        for name in ("api_key", "secret_key"):
            device.put(f"/etc/device-agent/{name}", device.keys[name].read_text()).chmod(0o600)
        device.values["auth"] = {"allow_secret_key_on_device": True}
        device.boot_with_systemd(
            "[Service]\nLoadCredential=api_key:/etc/device-agent/api_key\n"
            "LoadCredential=secret_key:/etc/device-agent/secret_key\n",
            device_agent=GOOD_UNIT,
        )
        is_ok(device.look("key_files"), "secret_key")
        (device.system / "etc/device-agent/secret_key").unlink()
        is_bad(device.look("key_files"), "failed", "secret_key", "")

    def test_credentials_that_only_the_service_can_read(self, device):
        device.put("/etc/x/token.enc", "sealed")
        device.values["auth"] = {"mode": "bearer"}
        device.boot_with_systemd("[Service]\nLoadCredentialEncrypted=token:/etc/x/token.enc\n", device_agent=GOOD_UNIT)
        is_skipped(device.look("key_files"))

    def test_whoever_may_not_read_them_is_told_so(self, device):
        device.options["user_id"] = 54321
        is_skipped(device.look("key_files"))
        is_skipped(device.look("state_dir"))

    def test_a_state_directory_as_it_should_be(self, device):
        is_ok(device.look("state_dir"), "mode 700")

    def test_a_state_directory_that_others_see_is_closed(self, device):
        device.state_dir.chmod(0o755)
        is_bad(device.look("state_dir"), "warning", "look into it", "chmod 700")
        is_ok(device.examine("state_dir", fix=True).finding, "mode 700")

    def test_a_state_directory_that_is_missing_is_made(self, device):
        device.state_dir.rmdir()
        is_bad(device.look("state_dir"), "warning", "never started", "mkdir")
        assert "made" in device.examine("state_dir", fix=True).fixed
        assert stat.S_IMODE(device.state_dir.stat().st_mode) == 0o700

    def test_a_file_in_its_place(self, device):
        device.state_dir.rmdir()
        device.state_dir.write_text("")
        is_bad(device.look("state_dir"), "failed", "something else", "state_dir")

    def test_a_state_directory_that_cannot_be_written(self, device):
        device.values["state_dir"] = "/proc/self/fdinfo"  # not even by root
        is_bad(device.look("state_dir"), "failed", "cannot be written", "state_dir")

    def test_one_that_a_running_agent_uses(self, device):
        with StateLock(device.state_dir):
            is_ok(device.look("state_dir"), "in use by the running agent")

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

    @pytest.mark.parametrize(
        ("free_mb", "inodes", "space", "files"),
        [(500, 9000, "ok", "ok"), (20, 9000, "warning", "ok"), (1, 9000, "failed", "ok"), (500, 10, "ok", "warning")],
    )
    def test_room_on_the_disk(self, device, free_mb, inodes, space, files):
        room = SimpleNamespace(f_bavail=free_mb * 1024, f_frsize=1024, f_files=10_000, f_favail=inodes)
        device.options["room"] = lambda _path: room
        assert device.look("disk_space").verdict == space
        assert device.look("inodes").verdict == files

    def test_a_file_system_without_inodes_of_a_fixed_number(self, device):
        device.options["room"] = lambda _path: SimpleNamespace(f_files=0, f_favail=0)
        is_ok(device.look("inodes"))

    def test_left_over_temporary_files_are_removed_and_nothing_else(self, device):
        is_ok(device.look("stale_files"))
        old, fresh, other = (device.state_dir / name for name in (".token.json.new", "status.json.new", "agent.db"))
        for path, age_s in ((old, 7200), (fresh, 60), (other, 7200)):
            path.write_text("")
            os.utime(path, (device.wall_s - age_s, device.wall_s - age_s))
        is_bad(device.look("stale_files"), "warning", "cut off", "remove it")
        result = device.examine("stale_files", fix=True)
        assert result.fixed == "removed .token.json.new"
        is_ok(result.finding)
        assert fresh.exists()
        assert other.exists()

    def test_without_a_state_directory_nothing_is_left_over(self, device):
        device.state_dir.rmdir()
        is_skipped(device.look("stale_files"))


class TestStore:
    @pytest.fixture
    def store(self, device):
        clock = FakeClock()
        with closing(SqliteStore(device.state_dir / FILE_NAME, clock=clock, bounds=Bounds(max_rows=4))) as store:
            yield store

    def test_before_the_first_start_there_is_none(self, device):
        is_skipped(device.look("database"))
        is_ok(device.look("database_damage"))
        is_ok(device.look("set_aside"))
        is_ok(device.look("gaps"))

    def test_a_store_that_is_well(self, device, store):
        store.outbox.put(make_reading())
        is_ok(device.look("database"), "1 readings wait")
        is_ok(device.look("gaps"))
        is_ok(device.look("set_aside"))

    def test_a_store_that_is_nearly_full_has_dropped_and_set_aside(self, device, store):
        for _ in range(6):
            store.outbox.put(make_reading())
        device.values["outbox"] = {"max_bytes": 1024 * 1024, "reserve_bytes": 0}
        is_ok(device.look("database"))
        finding = device.look("gaps")
        is_bad(finding, "warning", "2 for rows", "outbox.max_bytes")
        assert finding.seen.startswith("2 readings")
        refused = {store.outbox.next_batch(1)[0].key: "validation_error: no such reading"}
        store.outbox.settle(SendOutcome(refused=refused))
        is_bad(device.look("set_aside"), "warning", "no such reading", "device-agent status")

    def test_results_that_are_put_aside(self, device, store):
        is_ok(device.look("put_aside"))
        store.journal.admit([make_entry("c1", CommandState.FINISHED, outcome=make_outcome())])
        store.journal.put_aside({"c1": "405 no such place"})
        is_bad(device.look("put_aside"), "warning", "405 no such place", "service.dialect.results")

    def test_a_store_near_its_bound(self, device):
        clock = FakeClock()
        with closing(SqliteStore(device.state_dir / FILE_NAME, clock=clock, bounds=Bounds(max_rows=100))) as store:
            for _ in range(95):
                store.outbox.put(make_reading())
        device.values["outbox"] = {"max_rows": 100}
        is_bad(device.look("database"), "warning", "soon some are dropped", "max_rows")

    def test_what_is_no_database(self, device):
        (device.state_dir / FILE_NAME).write_bytes(b"SQLite format 3\0" + b"\xff" * 5000)
        is_bad(device.look("database"), "failed", FILE_NAME, "")

    def test_damaged_files_that_were_moved_aside(self, device):
        for ending in ("", "-wal"):
            (device.state_dir / f"{FILE_NAME}.damaged-20260101T000000Z{ending}").write_bytes(b"")
        finding = device.look("database_damage")
        is_bad(finding, "warning", "power cuts", "rm ")
        assert finding.seen.startswith("1 damaged")

    def test_an_incident_is_told_also_when_the_file_is_gone(self, device):
        path = device.state_dir / FILE_NAME
        path.write_bytes(b"SQLite format 3\0" + b"\xff" * 5000)
        with closing(SqliteStore(path, clock=FakeClock())):
            pass
        assert "damaged files" in device.look("database_damage").seen
        for aside in device.state_dir.glob("*.damaged-*"):
            aside.unlink()
        is_bad(device.look("database_damage"), "warning", "", "replace the card")


GOOD_UNIT = {
    "LoadState": "loaded",
    "UnitFileState": "enabled",
    "ActiveState": "active",
    "SubState": "running",
    "Result": "success",
    "FragmentPath": "/etc/systemd/system/device-agent.service",
    "DropInPaths": "/etc/systemd/system/device-agent.service.d/i2c.conf",
    "NeedDaemonReload": "no",
    "Type": "notify",
    "WatchdogUSec": "1min 30s",
    "NRestarts": "0",
    "ControlGroup": "/system.slice/device-agent.service",
    "MemoryMax": "201326592",
}


class TestUnits:
    def test_without_systemd_there_are_none(self, device):
        is_skipped(device.look("unit"))
        is_skipped(device.look("helper_unit"))
        is_skipped(device.look("restarts"))

    def test_a_systemd_that_does_not_answer(self, device):
        device.boot_with_systemd()
        is_skipped(device.look("unit"))

    def test_a_unit_as_it_should_be(self, device):
        device.boot_with_systemd(device_agent=GOOD_UNIT)
        is_ok(device.look("unit"), "enabled", "active (running)")
        is_ok(device.look("unit_drop_ins"), "i2c.conf")
        is_ok(device.look("unit_watchdog"), "1min 30s")
        is_ok(device.look("unit_credentials"), "no credentials")
        is_ok(device.look("restarts"))

    @pytest.mark.parametrize(
        ("check", "changes", "verdict", "why"),
        [
            ("unit", {"LoadState": "not-found"}, "warning", ("at boot", "enable --now")),
            ("unit", {"ActiveState": "failed", "Result": "watchdog"}, "failed", ("watchdog", "journalctl")),
            ("unit", {"UnitFileState": "disabled"}, "warning", ("not started at boot", "systemctl enable")),
            ("unit_drop_ins", {"NeedDaemonReload": "yes"}, "warning", ("was changed", "daemon-reload")),
            ("unit_watchdog", {"WatchdogUSec": "0"}, "warning", ("hangs", "WatchdogSec=90")),
            ("unit_watchdog", {"Type": "simple"}, "warning", ("hangs", "Type=notify")),
            ("restarts", {"NRestarts": "17", "Result": "signal"}, "warning", ("signal", "journalctl")),
        ],
    )
    def test_a_unit_with_a_fault(self, device, check, changes, verdict, why):
        device.boot_with_systemd(device_agent={**GOOD_UNIT, **changes})
        is_bad(device.look(check), verdict, *why)

    def test_the_helper_waits_for_requests_or_is_missing(self, device):
        device.boot_with_systemd(device_agent=GOOD_UNIT)
        device.values["commands"] = {"handlers": {"reboot": {"enabled": False}}}
        is_skipped(device.look("helper_unit"))
        is_ok(units.judge_helper({"LoadState": "loaded", "ActiveState": "active"}))
        is_bad(units.judge_helper({"LoadState": "not-found"}), "warning", "sandbox", "enable --now")
        is_bad(units.judge_helper({"LoadState": "loaded", "ActiveState": "failed"}), "warning", "sandbox", "reboot")

    def test_credentials_that_are_there_or_not(self, device):
        device.boot_with_systemd("[Service]\nLoadCredential=token:/etc/x/token\n", device_agent=GOOD_UNIT)
        is_bad(device.look("unit_credentials"), "failed", "does not exist", "LoadCredential=token")
        device.put("/etc/x/token", "dat_1")
        is_ok(device.look("unit_credentials"), "token")

    def test_a_disabled_unit_is_started_and_enabled(self, device):
        device.boot_with_systemd(
            device_agent={**GOOD_UNIT, "UnitFileState": "disabled", "ActiveState": "inactive", "SubState": "dead"}
        )
        is_bad(device.look("unit"), "failed", "does not run", "systemctl enable --now device-agent")


@pytest.mark.parametrize("systemd", ["252", "257"])
class TestRealSystemd:
    """Against what systemd prints, recorded by ``make systemd-records``."""

    def test_it_shows_no_credentials(self, systemd):
        text = (RECORDS / f"systemd-{systemd}" / "credentials.show.txt").read_text()
        assert text.count("[unprintable]") == 3

    def test_the_unit_as_shipped_takes_a_token_or_a_key_pair_or_neither(self, device, systemd):
        device.boot_as_recorded(systemd, "as_shipped")
        is_ok(device.look("unit"), "enabled", "active (running)")
        is_ok(device.look("unit_drop_ins"), "local.conf")
        is_ok(device.look("unit_watchdog"), "1min 30s")
        is_ok(device.look("unit_credentials"), "no api_key, no secret_key, no token")
        device.put("/etc/device-agent/token", "dat_1").chmod(0o600)
        is_ok(device.look("unit_credentials"), "hands over token", "no api_key, no secret_key")
        device.values["auth"] = {"mode": "bearer"}
        is_ok(device.look("key_files"), "token")

    def test_a_token_that_everybody_reads_is_found(self, device, systemd):
        device.boot_as_recorded(systemd, "as_shipped")
        device.values["auth"] = {"mode": "bearer"}
        device.put("/etc/device-agent/token", "dat_1").chmod(0o644)
        is_bad(device.look("key_files"), "failed", "everybody on this machine", "chmod 600")

    def test_a_token_that_is_missing_is_found(self, device, systemd):
        device.boot_as_recorded(systemd, "token_missing", unit="token_drop_in")
        is_bad(device.look("unit"), "failed", "exit-code", "enable --now")
        is_bad(device.look("unit_credentials"), "failed", "/etc/device-agent/token does not exist", "create it")

    def test_a_drop_in_with_a_token_alone_takes_the_others_away(self, device, systemd):
        device.put("/etc/device-agent/token", "dat_1").chmod(0o600)
        device.boot_as_recorded(systemd, "token_drop_in", unit="token_drop_in")
        assert device.look("unit_credentials").seen == "it hands over token, and the files are there"

    def test_a_unit_that_is_disabled_not_reloaded_or_not_there(self, device, systemd):
        device.boot_as_recorded(systemd, "disabled", unit="token_drop_in")
        is_bad(device.look("unit"), "failed", "does not run", "enable --now")
        is_ok(device.look("unit_watchdog"), "90")
        device.boot_as_recorded(systemd, "not_reloaded")
        is_bad(device.look("unit_drop_ins"), "warning", "was changed", "daemon-reload")
        device.boot_as_recorded(systemd, "not_installed")
        is_bad(device.look("unit"), "warning", "at boot", "enable --now")

    def test_what_the_files_of_a_unit_say_is_judged_also_when_it_does_not_run(self, device, systemd):
        names = ("unit", "unit_text", "unit_drop_ins", "unit_watchdog", "unit_credentials", "restarts")
        checks = [check for check in all_checks() if check.id in names]

        def verdicts() -> dict[str, str]:
            return {
                result.check.id: result.finding.verdict.value for result in examine(device.subject(), checks=checks)
            }

        device.boot_as_recorded(systemd, "token_missing", unit="token_drop_in")
        missing = dict.fromkeys(names, "ok") | {"unit": "failed", "unit_credentials": "failed"}
        assert verdicts() == missing
        device.boot_as_recorded(systemd, "disabled", unit="token_drop_in")
        assert verdicts() == missing
        device.put("/etc/device-agent/token", "dat_1").chmod(0o600)
        device.programs["systemctl cat device-agent.service"] += "\n# /etc/x.conf\n[Service]\nWatchdogSec=\n"
        assert verdicts() == dict.fromkeys(names, "ok") | {"unit": "failed", "unit_watchdog": "warning"}
        show = device.programs["systemctl show device-agent.service"]
        device.programs["systemctl show device-agent.service"] = show.replace("Reload=no", "Reload=yes")
        assert verdicts()["unit_drop_ins"] == "warning"
        device.boot_as_recorded(systemd, "not_installed")
        device.programs["systemctl cat device-agent.service"] = None
        assert verdicts() == dict.fromkeys(names, "skipped") | {"unit": "warning"}

    def test_a_watchdog_of_the_last_run_is_not_that_of_the_files(self, device, systemd):
        device.boot_as_recorded(systemd, "token_missing", unit="token_drop_in")
        is_ok(device.look("unit_watchdog"), "90")
        device.programs["systemctl cat device-agent.service"] += "\n# /etc/x.conf\n[Service]\nWatchdogSec=0\n"
        is_bad(device.look("unit_watchdog"), "warning", "hangs", "WatchdogSec=90")

    def test_a_token_of_root_that_the_unit_does_not_hand_over_is_found(self, device, systemd):
        device.options["find_user"] = lambda name: (54321, frozenset({54321})) if name == "device-agent" else None
        device.boot_as_recorded(systemd, "as_shipped")
        path = device.key("token", "dat_1")
        device.values["auth"] = {"mode": "bearer", "token_file": path}
        device.system = device.folder  # whose directories it may enter
        (device.folder / "run/systemd/system").mkdir(parents=True)
        device.folder.chmod(0o755)
        is_bad(device.look("key_files"), "failed", "device-agent may not read", "chown device-agent")
        os.chown(path, 54321, -1)
        assert "may not read" not in device.look("key_files").cause


class TestPlugins:
    def test_handlers_that_can_be_used(self, device):
        is_ok(device.look("handlers"), "ping", "restart_agent")

    def test_a_handler_that_cannot_be_used(self, device):
        device.values["executables"] = {"valve": {"argv": ["/nowhere/valve"]}}
        finding = device.look("handlers")
        is_bad(finding, "warning", "/nowhere/valve", "enabled: false")
        assert "not valve" in finding.seen

    def test_a_package_that_was_changed_under_the_running_agent_is_told(self, device):
        is_skipped(device.look("plugin_versions"))
        with StateLock(device.state_dir):
            tell_status(device)
            is_ok(device.look("plugin_versions"), "no package")
            tell_status(device, packages={"pydantic": version("pydantic")})
            is_ok(device.look("plugin_versions"), "1 packages")
            tell_status(device, packages={"pydantic": "0.0.1", "door-plugin": "1.2.0"})
            finding = device.look("plugin_versions")
            is_bad(finding, "warning", "the old code still runs", "restart")
            assert "pydantic 0.0.1 runs" in finding.seen
            assert "door-plugin 1.2.0 runs, and is not installed any more" in finding.seen

    def test_sensors_are_read_once(self, device):
        is_ok(device.look("sensors"), "none")
        device.values["sensors"] = [{"name": "t", "type": "simulated"}]
        is_ok(device.look("sensors"), "each read once")

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

    def test_programs_that_are_there(self, device):
        is_skipped(device.look("programs"))
        device.values["executables"] = {"true": {"argv": ["true"]}, "broken": {"argv": []}}
        is_ok(device.look("programs"))

    def test_a_program_that_is_missing_or_may_not_be_started(self, device, tmp_path):
        program = tmp_path / "valve"
        device.values["executables"] = {"valve": {"argv": [str(program)]}}
        is_bad(device.look("programs"), "failed", "does not exist", "install it")
        program.write_text("#!/bin/sh\n")
        program.chmod(0o644)
        is_bad(device.look("programs"), "failed", "not executable", "chmod +x")
        program.chmod(0o755)
        is_ok(device.look("programs"))

    def test_a_program_that_anybody_may_change(self, device, tmp_path):
        program = tmp_path / "probe"
        program.write_text("#!/bin/sh\n")
        program.chmod(0o777)
        device.values["sensors"] = [{"name": "p", "type": "program", "settings": {"argv": [str(program)]}}]
        is_bad(device.look("programs"), "failed", "everybody on this machine", "chmod o-w")


class TestProcess:
    def test_an_agent_that_runs_and_is_well(self, device):
        with StateLock(device.state_dir):
            tell_status(device, parts={"readings": Part("ok", 0.0)})
            is_ok(device.look("agent"), str(os.getpid()))
            tell_status(device, parts={"readings": Part("unreachable", 0.0, "cannot connect: check the network")})
            is_bad(device.look("agent"), "warning", "cannot connect", "check the network")

    def test_one_that_died_one_that_was_stopped_and_one_that_never_ran(self, device):
        is_bad(device.look("agent"), "warning", "not started", "systemctl start")
        tell_status(device)
        is_bad(device.look("agent"), "failed", "killed", "journalctl")
        tell_status(device, state="stopped")
        finding = device.look("agent")
        assert finding.verdict is CheckStatus.WARNING
        assert "SIGTERM" in finding.seen

    def test_safe_mode_and_starts_that_came_to_nothing(self, device):
        is_ok(device.look("safe_mode"))
        notes = device.state_dir / STARTS
        notes.write_text(json.dumps({"starts": [["b", 1.0], ["b", 9.0]], "rounds": 0, "reason": "x"}))
        is_bad(device.look("safe_mode"), "warning", "a crash, a kill", "after 5 in a row")
        with StateLock(device.state_dir):
            why = "5 start(s) in a row did not stay up for 60 s; restart_agent or another configuration ends it"
            tell_status(device, parts={"mode": Part("safe", 0.0, why)})
            is_bad(device.look("safe_mode"), "failed", "5 start(s)", "restart_agent")
            tell_status(device, parts={})
            notes.write_text(json.dumps({"starts": [["b", 1.0]]}))
            is_ok(device.look("safe_mode"))
        notes.write_text("rubbish")
        is_ok(device.look("safe_mode"))

    def test_memory(self, device):
        is_skipped(device.look("memory"))
        device.put("/proc/meminfo", "MemTotal:  1000000 kB\nMemAvailable:  500000 kB\nrubbish\n")
        is_ok(device.look("memory"), "488 of 976 MB")
        device.put("/proc/meminfo", "MemTotal:  1000000 kB\nMemAvailable:  20000 kB\n")
        is_bad(device.look("memory"), "warning", "short of memory", "max_lanes")

    def test_processes_that_the_kernel_killed(self, device):
        is_skipped(device.look("oom_kills"))
        device.put("/proc/vmstat", "pgfault 5\noom_kill 0\n")
        is_ok(device.look("oom_kills"))
        device.put("/proc/vmstat", "oom_kill 3\n")
        is_bad(device.look("oom_kills"), "warning", "ran out of memory", "journalctl -k")
        device.boot_with_systemd(device_agent=GOOD_UNIT)
        device.put("/sys/fs/cgroup/system.slice/device-agent.service/memory.events", "oom 1\noom_kill 2\n")
        is_bad(device.look("oom_kills"), "failed", "201326592", "MemoryMax")


class TestMetrics:
    def test_none_are_configured(self, device):
        is_skipped(device.look("metrics"))

    def test_without_the_library(self, device, monkeypatch):
        device.values["metrics"] = {"port": 9465}
        monkeypatch.setattr(process, "find_spec", lambda _name: None)
        is_bad(device.look("metrics"), "failed", "prometheus-client", ".[metrics]")

    def test_while_the_agent_runs_somebody_must_answer_there(self, device):
        with socket.create_server(("127.0.0.1", 0)) as server, StateLock(device.state_dir):
            device.values["metrics"] = {"port": server.getsockname()[1]}
            is_ok(device.look("metrics"), "are served at")
            device.values["metrics"] = {"socket": str(device.folder / "m.sock")}
            is_bad(device.look("metrics"), "warning", "nobody answers", "restart")
        is_ok(device.look("metrics"), "while the agent runs")


def test_no_finding_of_a_local_check_holds_a_secret(device):
    from agent.doctor.examination import examine

    device.config_path = device.key("config.yaml", "x")
    told = json.dumps([repr(result) for result in examine(device.subject(), offline=True)])
    assert "mk_doctor" not in told
    assert "msk_doctor" not in told
