"""The agent under a real systemd: a Debian that boots, installed as docs/operations.md says.

``SYSTEMD_RELEASE=13`` boots Debian 13 (systemd 257) instead of Debian 12 (systemd 252).
On CI all of them run on Debian 12, and those of the doctor on Debian 13 too.

Each test has a machine of its own, made from one tree, and talks to a service on this machine's loopback.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from agent.wire.models import CommandRecord
from simulator.pytest_plugin.control import ServiceUnderTest
from tests.conftest import do_without, require_program
from tests.support.debian_tree import PYTHON, shared_tree
from tests.support.nspawn import Container
from tests.system.agent_bench import PROMPT_S, SECRET_KEY, AgentBench

# The tree is made within the first test's time.
pytestmark = [pytest.mark.timeout(900), pytest.mark.long]

UNIT = "device-agent.service"
PROGRAM = "/opt/device-agent/bin/device-agent"
REBOOT = "device-agent-reboot"
REQUEST = "/run/device-agent/reboot"
STATE = "/var/lib/device-agent"

APPEND = """#!/bin/sh
# One line for each run, on the disk before the run is over.
echo "$COMMAND_ID" >> /var/lib/device-agent/effects && sync /var/lib/device-agent/effects && echo '{}'
"""


@pytest.fixture(scope="module")
def tree(request) -> Iterator[Path]:
    for program, package in (("debootstrap", None), ("systemd-nspawn", "systemd-container")):
        require_program(program, package)
    if os.geteuid() != 0:
        do_without("a container is booted, which only root may do", "run the build as root")
    release = os.environ.get("SYSTEMD_RELEASE", "12")
    if release == "12" and sys.version_info[:2] != PYTHON:
        do_without("the tree has Python 3.11, this environment another one", "run the tests with Python 3.11")
    run_id = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))
    with shared_tree(run_id, release) as made:
        yield made


class Device:
    """A booted Debian with the agent in it, and the service outside."""

    def __init__(self, machine: Container, bench: AgentBench, service: ServiceUnderTest) -> None:
        self.machine = machine
        self.bench = bench
        self.service = service

    def install(self, **configuration: object) -> None:
        """The steps of docs/operations.md after the virtual environment: keys, configuration, user, units."""
        machine = self.machine
        machine.run("cp", "/opt/systemd/sysusers.d/device-agent.conf", "/usr/lib/sysusers.d/")
        machine.run("systemd-sysusers")
        self.bench.configure(machine, **configuration)
        machine.run("cp", f"/opt/systemd/{UNIT}", "/etc/systemd/system/")
        machine.run("systemctl", "daemon-reload")

    def allow_reboot(self, after: str) -> None:
        """The steps of "Reboot by command", with so long after a boot."""
        machine = self.machine
        units = [f"/opt/systemd/{REBOOT}.{kind}" for kind in ("timer", "path", "service")]
        machine.run("cp", *units, "/etc/systemd/system/")
        machine.write(f"/etc/systemd/system/{REBOOT}.timer.d/local.conf", f"[Timer]\nOnBootSec=\nOnBootSec={after}\n")
        machine.run("systemctl", "daemon-reload")
        machine.run("systemctl", "enable", "--now", f"{REBOOT}.timer")

    def start(self) -> None:
        """``systemctl enable --now`` returns only after READY."""
        self.machine.run("systemctl", "enable", "--now", UNIT)
        assert self.machine.show(UNIT, "ActiveState") == "active"

    def drop_in(self, text: str) -> None:
        """As ``systemctl edit`` would."""
        self.machine.write(f"/etc/systemd/system/{UNIT}.d/local.conf", f"[Service]\n{text}\n")
        self.machine.run("systemctl", "daemon-reload")

    def main_pid(self) -> str:
        return self.machine.show(UNIT, "MainPID")

    def do(self, **payload: object) -> CommandRecord:
        """Send a command and wait for its end."""
        return self.wait_for(self.bench.send(**payload))

    def wait_for(self, command_id: str) -> CommandRecord:
        def look() -> CommandRecord | None:
            record = self.bench.commands()[command_id]
            return record if record.status in {"succeeded", "failed", "rejected"} else None

        return self.machine.wait_until(look, f"command {command_id} is over")

    def reports(self, command_id: str) -> int:
        """How often its result was reported; what it told while it ran is not counted."""
        path = f"/devices/{self.bench.device_id}/commands/{command_id}/result"
        return len(self.service.requests("POST", path))


@pytest.fixture
def device(tree, service, bench) -> Iterator[Device]:
    control = ServiceUnderTest(service.base_url)
    with (
        closing(control),
        tempfile.TemporaryDirectory(prefix="device-agent-root-") as folder,
        Container(tree, Path(folder)) as machine,
    ):
        yield Device(machine, bench, control)


def test_installed_as_documented_it_gets_ready_works_keeps_its_keys_to_itself_and_stops_in_time(device):
    machine = device.machine
    device.install(sensors=[{"name": "board", "type": "system", "interval_s": 3600}])
    device.start()
    assert machine.show(UNIT, "NotifyAccess") == "main"
    assert machine.show(UNIT, "StatusText") != ""
    assert "agent=ready" in machine.log(UNIT)
    assert device.do(command="ping", echo="hello").result["echo"] == "hello"
    machine.wait_until(lambda: list(device.bench.client.sensor_data(device.bench.device_id)), "a reading arrives")

    # The agent has its keys from systemd's memory. On the disk only root changes them, and nobody else gets at either.
    key, credential = "/etc/device-agent/secret_key", f"/run/credentials/{UNIT}/secret_key"
    digest = hashlib.sha256(SECRET_KEY.encode()).hexdigest()
    assert machine.as_user("device-agent", "sha256sum", credential).startswith(digest)
    assert machine.run("stat", "--format=%U:%G %a", key) == "root:device-agent 640"
    for path in (key, credential):
        assert "Permission denied" in machine.as_user("nobody", "sha256sum", path)
    for change in (f"echo x > {key}", f"mv {key} {key}.old", f"rm -f {key}"):
        assert "Permission denied" in machine.as_user("device-agent", "sh", "-c", change)
    assert machine.run("sha256sum", key).startswith(digest)
    pid = device.main_pid()
    for place in ("environ", "cmdline"):
        assert SECRET_KEY not in machine.run("cat", f"/proc/{pid}/{place}")
    assert "Permission denied" in machine.as_user("nobody", "ls", STATE)
    # What the sandbox promises, as the process itself has it.
    status = machine.run("cat", f"/proc/{pid}/status")
    for line in ("CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"):
        assert line in status

    begun_s = time.monotonic()
    machine.run("systemctl", "stop", UNIT)
    assert time.monotonic() - begun_s < PROMPT_S
    assert machine.show(UNIT, "ActiveState") == "inactive"
    assert machine.show(UNIT, "Result") == "success"
    assert machine.show(UNIT, "NRestarts") == "0"
    assert "agent=stopped exit_code=0" in machine.log(UNIT)
    assert SECRET_KEY not in machine.run("journalctl", "--no-pager")

    # What was sent meanwhile is done at the next start.
    waiting = device.bench.send(command="ping")
    machine.run("systemctl", "start", UNIT)
    assert device.wait_for(waiting).status == "succeeded"


def test_the_unit_as_shipped_takes_a_token_and_doctor_sees_what_is_wrong_with_it(device):
    machine = device.machine
    device.install(auth={"mode": "bearer", "token_file": "/etc/device-agent/token"})
    machine.run("rm", "/etc/device-agent/api_key", "/etc/device-agent/secret_key")

    def finding(check: str) -> dict[str, str]:
        return next(each for each in json.loads(machine.ask(PROGRAM, "doctor", "--json")) if each["id"] == check)

    # Without a token it says so and is not started again and again; systemd itself has no fault to find.
    machine.ask("systemctl", "start", UNIT)
    machine.wait_until(lambda: machine.show(UNIT, "ActiveState") == "failed", "it has ended")
    assert machine.show(UNIT, "ExecMainStatus") == "2"
    assert "/etc/device-agent/token: there is no such file" in machine.log(UNIT)
    assert finding("key_files")["verdict"] == "failed"
    machine.write("/etc/device-agent/token", "dat_0123456789abcdef", 0o640)
    machine.run("chgrp", "device-agent", "/etc/device-agent/token")
    device.start()
    digest = hashlib.sha256(b"dat_0123456789abcdef").hexdigest()
    assert machine.as_user("device-agent", "sha256sum", f"/run/credentials/{UNIT}/token").startswith(digest)
    assert finding("key_files")["verdict"] == "ok"
    machine.run("chmod", "644", "/etc/device-agent/token")
    assert finding("key_files")["verdict"] == "failed"
    assert "chmod" in finding("key_files")["fix"]


SITE = "/opt/device-agent/lib/python3*/site-packages"
BROKEN_PLUGIN = f"""cd {SITE} && mkdir broken-1.dist-info && echo 'raise SystemExit(3)' > broken.py &&
printf 'Name: broken\\nVersion: 1\\n' > broken-1.dist-info/METADATA &&
printf '[agent.handlers]\\nbroken = broken:x\\n' > broken-1.dist-info/entry_points.txt"""

# What somebody does to the machine, the check that finds it, its verdict, and some of its words. What begins as a line
# of a unit goes into a drop-in. Faults of one round do not touch each other: one examination finds them all.
ROUNDS = (
    (
        ("chmod 644 /etc/device-agent/secret_key", "key_files", "failed", "everybody on this machine"),
        ("systemctl disable device-agent", "unit", "failed", "systemctl enable --now"),
        ("sed -i 's|http://|https://|' /etc/device-agent/config.yaml", "connection", "failed", "may not speak TLS"),
    ),
    (
        ("mv /etc/device-agent/secret_key /etc/device-agent/gone", "key_files", "failed", "auth.secret_key_file"),
        (f"mkdir {STATE} && mount -t tmpfs -o size=64k tmpfs {STATE}", "disk", "failed", "the disk is full"),
        (BROKEN_PLUGIN, "handlers", "failed", "broken"),
    ),
)


def test_doctor_finds_what_somebody_did_to_an_installation(device):
    machine = device.machine
    device.install(sensors=[{"name": "t", "type": "file", "settings": {"path": "/sys/x"}}])
    # The one that is looked at may be gone.
    machine.run("cp", "--archive", PROGRAM, "/opt/device-agent/bin/doctor")
    device.drop_in("")
    machine.run("systemctl", "enable", UNIT)

    def findings() -> dict[str, dict[str, str]]:
        # Before it, on the other stream, stands each plug-in that is imported.
        text = machine.ask("/opt/device-agent/bin/doctor", "doctor", "--json")
        return {each["id"]: each for each in json.loads(text[text.index("[\n") :])}

    kept = "/etc/device-agent /etc/systemd/system /opt/device-agent/bin"
    machine.run("sh", "-c", f"tar -cpf /kept.tar {kept}")
    before = findings()
    for faults in ROUNDS:
        checks = {check for _, check, _, _ in faults}
        # Nobody has started it, and so there is no state directory either.
        assert {check for check in checks if before[check]["verdict"] != "ok"} <= {"unit", "connection"}
        lines = [fault for fault, *_ in faults if re.match(r"[A-Z]\w+=", fault)]
        if lines:
            device.drop_in("\n".join(lines))
        for fault, *_ in faults:
            if fault not in lines:
                machine.run("sh", "-c", fault)
        found = findings()
        for fault, check, verdict, word in faults:
            finding = found[check]
            assert finding["verdict"] == verdict, (fault, finding)
            assert word in f"{finding['seen']} {finding['cause']} {finding['fix']}", (fault, finding)
        gone = f"{kept} {STATE} {SITE}/broken*"
        machine.ask("umount", STATE)
        machine.run("sh", "-c", f"rm -rf {gone} && tar -xpf /kept.tar -C / && systemctl daemon-reload")


def test_an_agent_that_hangs_is_ended_by_the_watchdog_and_goes_on(device):
    machine = device.machine
    device.install()
    device.drop_in("WatchdogSec=10\nRestartSec=100ms")
    device.start()
    before = device.main_pid()
    fed = machine.show(UNIT, "WatchdogTimestampMonotonic")
    device.do(command="ping")
    # It is fed as it goes on.
    machine.wait_until(lambda: machine.show(UNIT, "WatchdogTimestampMonotonic") != fed, "it is fed again")
    assert device.main_pid() == before
    machine.run("systemctl", "kill", "--signal=STOP", UNIT)
    command_id = device.bench.send(command="ping")
    assert device.wait_for(command_id).status == "succeeded"
    assert device.main_pid() != before
    assert machine.show(UNIT, "NRestarts") == "1"
    assert "Watchdog timeout" in machine.log(UNIT)
    assert device.reports(command_id) == 1


def test_a_killed_agent_comes_back_and_nothing_is_lost_or_done_twice(device):
    machine = device.machine
    machine.write("/usr/local/bin/append", APPEND, 0o755)
    append = {"argv": ["/usr/local/bin/append"], "contract": "once"}
    device.install(executables={"append": append})
    device.drop_in("RestartSec=100ms")
    device.start()
    sent = [device.bench.send(command="append", number=number) for number in range(30)]
    for kills in range(1, 4):
        machine.wait_until(lambda wanted=kills * 5: len(effects(machine)) >= wanted, "some of the commands have run")
        machine.run("systemctl", "kill", "--signal=KILL", UNIT)
        machine.wait_until(lambda wanted=str(kills): machine.show(UNIT, "NRestarts") == wanted, "it is started again")
    records = [device.wait_for(command_id) for command_id in sent]
    done = effects(machine)
    assert len(done) == len(set(done)), "a command that may run once ran twice"
    for record in records:
        if record.status == "succeeded":
            assert record.id in done
        else:
            assert "indeterminate" in (record.error or record.status_reason or "")
    assert sum(record.status == "succeeded" for record in records) >= len(sent) - 3


def test_a_reboot_by_command_happens_once_is_reported_once_and_only_where_it_is_allowed(device):
    machine = device.machine
    device.install(commands=polling(answer_timeout_s=3))
    device.start()
    refused = device.do(command="reboot")
    assert (refused.status, code_of(refused)) == ("rejected", "not_allowed")
    assert "nobody took the request" in (refused.error or refused.status_reason or "")

    device.install(commands=polling(answer_timeout_s=60))  # from here on somebody answers
    machine.run("systemctl", "restart", UNIT)
    device.allow_reboot("1d")
    assert machine.show(f"{REBOOT}.path", "ActiveState") == "inactive"
    machine.run("systemctl", "stop", f"{REBOOT}.timer")
    device.allow_reboot("1s")
    assert machine.show(f"{REBOOT}.path", "ActiveState") == "active"
    before = machine.run("cat", "/proc/sys/kernel/random/boot_id")
    command_id = device.bench.send(command="reboot", reason="a test")
    machine.wait_for_reboot()
    after = machine.run("cat", "/proc/sys/kernel/random/boot_id")
    assert before != after
    record = device.wait_for(command_id)
    assert record.status == "succeeded"
    assert record.result["rebooted"] is True
    assert device.reports(command_id) == 1
    assert machine.show(UNIT, "NRestarts") == "0"

    # Neither a restart of the agent nor another boot does it or tells it again.
    machine.run("systemctl", "restart", UNIT)
    assert device.do(command="ping").status == "succeeded"
    machine.run("systemctl", "reboot")
    machine.wait_for_reboot()
    assert device.do(command="ping").status == "succeeded"
    assert device.reports(command_id) == 1
    assert machine.ask("ls", REQUEST).endswith("No such file or directory")


def test_nothing_that_a_stolen_agent_writes_is_read_by_root(device):
    machine = device.machine
    device.install()
    device.allow_reboot("1s")
    clean = "/usr/bin/rm -rf --one-file-system /run/device-agent/reboot"
    assert clean in machine.run("cat", f"/etc/systemd/system/{REBOOT}.service")
    machine.write(f"/etc/systemd/system/{REBOOT}.service.d/local.conf", f"[Service]\nExecStart=\nExecStart={clean}\n")
    machine.run("systemctl", "daemon-reload")
    device.start()
    machine.write("/etc/secret", "root's own\n", 0o600)
    machine.run("mkdir", "-p", "/etc/kept")
    machine.write("/etc/kept/file", "root's own\n", 0o600)
    for script in (
        f"ln -s /etc/secret {REQUEST}",
        f"ln -s /etc/kept {REQUEST}",
        f"mkfifo -m 600 {REQUEST}",
        f"mkdir -p {REQUEST}/a && ln -s /etc/kept {REQUEST}/a/b",
        f"head -c 100000 /dev/zero > {REQUEST}",
    ):
        machine.as_user("device-agent", "sh", "-c", script)
        machine.wait_until(lambda: machine.ask("ls", REQUEST).endswith("No such file or directory"), "it is taken away")
    assert machine.run("cat", "/etc/secret") == "root's own"
    assert machine.run("cat", "/etc/kept/file") == "root's own"
    assert "Permission denied" in machine.as_user("nobody", "sh", "-c", f"echo x > {REQUEST}")
    assert "Permission denied" in machine.as_user("device-agent", "sh", "-c", "echo x > /run/device-agent-reboot/taken")


def effects(machine: Container) -> list[str]:
    return machine.ask("cat", f"{STATE}/effects").split() if "effects" in machine.ask("ls", STATE) else []


def polling(**settings: object) -> dict[str, object]:
    return {
        "poll": {"fast_s": 0.2, "idle_s": 1, "spread_s": 0},
        "handlers": {"reboot": {"settings": settings}},
    }


def code_of(record: CommandRecord) -> str:
    return (record.error or record.status_reason or "").partition(":")[0]
