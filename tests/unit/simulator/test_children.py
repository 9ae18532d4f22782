from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from simulator.children import ChildFailed, ChildProcess, Children, program_path
from simulator.exit_codes import ExitCode, exit_code_of

FOREVER = [sys.executable, "-c", "print('up', flush=True)\nimport time\nwhile True: time.sleep(60)"]
STUBBORN = [
    sys.executable,
    "-c",
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)",
]


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"


def gone_within(pid: int, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while alive(pid):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def started(tmp_path: Path, program: list[str]) -> ChildProcess:
    child = ChildProcess("child", tmp_path / "child.log")
    child.start(program)
    child.wait_until(lambda: "up" in (tmp_path / "child.log").read_text(), "it said that it is up", 60)
    return child


def test_a_child_is_ended_by_sigterm(tmp_path):
    child = started(tmp_path, FOREVER)
    pid = child.pid
    assert pid is not None
    assert child.end() == -signal.SIGTERM
    assert not alive(pid)
    assert not child.running
    assert child.end() == -signal.SIGTERM


def test_a_child_that_ignores_sigterm_is_killed(tmp_path):
    child = started(tmp_path, STUBBORN)
    assert child.end(grace_s=0.1) == -signal.SIGKILL


def test_a_killed_child_is_gone_at_once_and_can_be_started_again(tmp_path):
    child = started(tmp_path, FOREVER)
    child.kill()
    assert child.exit_code == -signal.SIGKILL
    child.start(FOREVER)
    assert child.running
    child.end()


def test_every_child_is_ended_when_the_block_fails(tmp_path):
    kept = []

    def fail_with_three_children() -> None:
        with Children() as children:
            for number in range(3):
                child = children.add(ChildProcess("child", tmp_path / f"{number}.log"))
                child.start(FOREVER)
                kept.append(child.pid)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_with_three_children()
    assert len(kept) == 3
    assert [pid for pid in kept if alive(pid)] == []


def test_a_child_that_is_never_ready_is_told_and_can_still_be_ended(tmp_path):
    child = started(tmp_path, FOREVER)
    with pytest.raises(ChildFailed, match=r"it answered did not happen within 0\.05 s"):
        child.wait_until(lambda: False, "it answered", 0.05)
    child.end()


def test_a_program_that_does_not_exist_is_told(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(ChildFailed, match="not installed") as caught:
        program_path("no-such-program-of-ours")
    assert exit_code_of(caught.value) is ExitCode.UNREACHABLE


def test_what_does_not_start_is_out_of_reach_and_what_ends_later_is_a_failed_check(tmp_path):
    child = ChildProcess("service", tmp_path / "log")
    child.start([sys.executable, "-c", "raise SystemExit('port 80 is taken')"])
    with pytest.raises(ChildFailed, match=r"(?s)service ended with 1 before it answered.*port 80 is taken") as early:
        child.wait_until(lambda: False, "it answered", 60)
    with pytest.raises(ChildFailed) as late:
        child.look()
    assert [exit_code_of(one.value) for one in (early, late)] == [ExitCode.UNREACHABLE, ExitCode.CHECK_FAILED]


def test_keys_in_the_environment_do_not_reach_a_child(tmp_path, monkeypatch):
    monkeypatch.setenv("FLEET_SIMULATOR_CANARY", "msk_canary")
    child = ChildProcess("child", tmp_path / "log")
    says = "import os; print('up', 'FLEET_SIMULATOR_CANARY' in os.environ, os.environ['X'])"
    child.start([sys.executable, "-c", says], {"X": "y"})
    while child.running:
        time.sleep(0.01)
    assert (tmp_path / "log").read_text() == "up False y\n"


def test_output_can_be_kept_apart_from_the_log(tmp_path):
    child = ChildProcess("child", tmp_path / "log", tmp_path / "out")
    child.start([sys.executable, "-c", "import sys; sys.stderr.write('err'); print('out')"])
    while child.running:
        time.sleep(0.01)
    assert (tmp_path / "out").read_text() == "out\n"
    assert (tmp_path / "log").read_text() == "err"


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's parent-death signal is Linux's")
def test_children_do_not_outlive_a_parent_that_is_killed(tmp_path):
    parent = f"""
import sys, time
from pathlib import Path
from simulator.children import ChildProcess
child = ChildProcess("child", Path({str(tmp_path / "log")!r}))
child.start({FOREVER!r})
child.wait_until(lambda: "up" in Path({str(tmp_path / "log")!r}).read_text(), "up", 20)
print(child.pid, flush=True)
time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        assert alive(pid)
        process.kill()
    assert gone_within(pid, 60)


def test_a_second_ctrl_c_does_not_leave_a_child_behind(tmp_path):
    child = started(tmp_path, FOREVER)
    pid = child.pid
    children = Children()
    children.add(child)
    original = child.end

    def interrupted_end(grace_s: float = 8.0) -> int | None:
        os.kill(os.getpid(), signal.SIGINT)
        return original(grace_s)

    child.end = interrupted_end
    with children:
        pass
    assert not alive(pid)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
