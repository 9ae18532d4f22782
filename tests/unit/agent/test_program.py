from __future__ import annotations

import os
import sys
import time
import tracemalloc
from pathlib import Path

import pytest

from agent.program import ProgramNotStarted, ProgramRun, run_program
from tests.support.processes import is_gone


def run(*argv: str, timeout_s: float = 60.0, **options) -> ProgramRun:
    return run_program(argv, timeout_s=timeout_s, **options)


def shell(script: str, **options) -> ProgramRun:
    return run("/bin/sh", "-c", script, **options)


def timed_out(*argv: str, **options) -> ProgramRun:
    """A program that goes on until its timeout, which it is given once more if it was too late to say anything."""
    for timeout_s in (0.2, 2.0, 20.0):
        result = run(*argv, timeout_s=timeout_s, **options)
        if result.output:
            break
    return result


def wait_until_gone(pid: int) -> bool:
    for _ in range(6000):
        if is_gone(pid):
            return True
        time.sleep(0.01)  # the kernel's own pace: a killed process disappears in its time
    return False


def test_a_large_input_and_a_large_output_at_the_same_time_do_not_block_each_other():
    data = os.urandom(500_000)
    assert run("cat", input_bytes=data, output_bytes=len(data)).output == data


def test_the_whole_input_is_in_a_file_before_the_program_starts_whatever_becomes_of_the_agent():
    """Through a pipe it would read an empty or a cut input from an agent that is killed after the start."""
    code = "import os, stat; print(stat.S_ISREG(os.fstat(0).st_mode), os.fstat(0).st_size)"
    assert run(sys.executable, "-c", code, input_bytes=b"x" * 200_000).output == b"True 200000\n"
    assert run("cat").output == b""


def test_a_machine_without_memory_files_gives_the_input_as_well(monkeypatch):
    monkeypatch.delattr("os.memfd_create")
    assert run("cat", input_bytes=b"payload").output == b"payload"


def test_100_megabytes_of_output_are_drained_and_do_not_stay_in_memory():
    tracemalloc.start()
    try:
        result = run("head", "-c", "100000000", "/dev/zero", output_bytes=65536)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert result.exit_code == 0
    assert len(result.output) == 65536
    assert result.truncated
    assert peak_bytes < 1_000_000


def test_a_program_that_ignores_sigterm_gets_sigkill_after_the_grace():
    script = "trap '' TERM; echo up; while :; do sleep 0.05; done"
    result = timed_out("/bin/sh", "-c", script, grace_s=0.2)
    assert (result.ended_for, result.exit_code, result.output) == ("timeout", -9, b"up\n")


def test_the_timeout_takes_the_whole_process_group():
    result = timed_out("/bin/sh", "-c", "sleep 60 & echo $!; wait")
    assert result.ended_for == "timeout"
    assert wait_until_gone(int(result.output))


def test_a_fork_that_outlives_its_parent_is_ended_and_nobody_waits_for_it():
    result = shell("sleep 60 & echo $!; exit 0")
    assert result.exited_with(0)
    assert result.duration_s < 50
    assert wait_until_gone(int(result.output))


def test_a_daemon_in_a_session_of_its_own_that_holds_the_pipes_does_not_hold_us():
    script = (
        "import os, time\npid = os.fork()\n"
        "if pid: print(pid, flush=True); time.sleep(0.2); os._exit(0)\n"
        "os.setsid(); time.sleep(60)"
    )
    result = run(sys.executable, "-c", script)
    daemon = int(result.output)
    try:
        assert result.exit_code == 0
        assert result.duration_s < 50
        assert not is_gone(daemon)
    finally:
        os.kill(daemon, 9)


def test_no_descriptor_of_ours_reaches_the_program_and_none_is_left_behind(tmp_path):
    run("true")
    with (tmp_path / "journal").open("w") as file:
        os.set_inheritable(file.fileno(), True)
        before = set(Path("/proc/self/fd").iterdir())
        listed = shell("ls /proc/self/fd; exit 0").output.split()
        run("sleep", "60", timeout_s=0.05)
        with pytest.raises(ProgramNotStarted):
            run("/does/not/exist")
        assert set(Path("/proc/self/fd").iterdir()) == before
    assert len(listed) <= 4  # its three pipes and the directory that ls reads


def test_a_program_that_cannot_be_started_says_so_with_the_fix(tmp_path):
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\n")
    for program in ("/does/not/exist", str(script), str(tmp_path), "no-such-program"):
        with pytest.raises(ProgramNotStarted, match=rf"{program} is not .*: install it or correct the path"):
            run(program)
    with pytest.raises(ProgramNotStarted, match=r"working directory .* does not exist"):
        run("true", directory=tmp_path / "gone")
