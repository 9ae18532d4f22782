from __future__ import annotations

import os
import sys
import threading
import time
import tracemalloc
from pathlib import Path

import pytest

from agent.process.bounds import DEFAULT_PATH
from agent.process.running import (
    ProgramEnd,
    ProgramNotStarted,
    ProgramRun,
    last_line,
    program_fault,
    run_program,
    text_of,
)

ENVIRONMENT = {"PATH": DEFAULT_PATH}


def run(*argv: str, timeout_s: float = 60.0, **options) -> ProgramRun:
    options.setdefault("environment", ENVIRONMENT)
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


def is_gone(pid: int) -> bool:
    """Dead, or dead and not yet reaped by whoever inherited it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in {"Z", "X"}
    except (FileNotFoundError, ProcessLookupError):
        return True


def wait_until_gone(pid: int) -> bool:
    for _ in range(6000):
        if is_gone(pid):
            return True
        time.sleep(0.01)  # the kernel's own pace: a killed process disappears in its time
    return False


def test_a_program_gets_its_input_and_gives_its_output_and_exit_code():
    result = shell("cat; echo oops >&2; exit 3", input_bytes=b'{"door": 4}')
    assert result.output == b'{"door": 4}'
    assert result.diagnostics == b"oops\n"
    assert (result.ending, result.exit_code, result.truncated) == (ProgramEnd.EXITED, 3, False)
    assert result.describe_exit() == "exit code 3"


def test_a_program_that_does_not_read_a_large_input_is_not_at_fault():
    result = shell("echo done", input_bytes=b"x" * 1_000_000)
    assert (result.exit_code, result.output) == (0, b"done\n")


def test_a_large_input_and_a_large_output_at_the_same_time_do_not_block_each_other():
    data = os.urandom(500_000)
    assert run("cat", input_bytes=data, output_bytes=len(data)).output == data


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


def test_a_flood_of_diagnostics_keeps_only_its_end():
    result = shell("head -c 3000000 /dev/zero >&2; echo last words >&2", diagnostics_bytes=4096)
    assert len(result.diagnostics) == 4096
    assert last_line(result.diagnostics).endswith("last words")
    assert result.exit_code == 0


def test_output_of_exactly_the_bound_is_not_truncated():
    result = run("head", "-c", "100", "/dev/zero", output_bytes=100)
    assert (len(result.output), result.truncated) == (100, False)


def test_a_hung_program_is_ended_at_its_timeout():
    result = run("sleep", "60", timeout_s=0.1)
    assert (result.ending, result.exit_code) == (ProgramEnd.TIMED_OUT, -15)
    assert result.describe_exit() == "ended by SIGTERM"
    assert result.duration_s < 50


def test_a_program_that_ignores_sigterm_gets_sigkill_after_the_grace():
    script = "trap '' TERM; echo up; while :; do sleep 0.05; done"
    result = timed_out("/bin/sh", "-c", script, grace_s=0.2)
    assert (result.ending, result.exit_code, result.output) == (ProgramEnd.TIMED_OUT, -9, b"up\n")


def test_a_program_may_use_the_grace_to_tidy_up():
    script = "trap 'echo tidied; exit 9' TERM; echo up; while :; do sleep 0.02; done"
    result = timed_out("/bin/sh", "-c", script, grace_s=60)
    assert (result.ending, result.exit_code, result.output) == (ProgramEnd.TIMED_OUT, 9, b"up\ntidied\n")


def test_an_endless_flood_is_ended_at_the_timeout_too():
    result = timed_out("yes", output_bytes=100)
    assert (result.ending, len(result.output), result.truncated) == (ProgramEnd.TIMED_OUT, 100, True)


def test_the_timeout_takes_the_whole_process_group():
    result = timed_out("/bin/sh", "-c", "sleep 60 & echo $!; wait")
    assert result.ending is ProgramEnd.TIMED_OUT
    assert wait_until_gone(int(result.output))


def test_a_fork_that_outlives_its_parent_is_ended_and_nobody_waits_for_it():
    result = shell("sleep 60 & echo $!; exit 0")
    assert (result.ending, result.exit_code) == (ProgramEnd.EXITED, 0)
    assert result.duration_s < 50
    assert wait_until_gone(int(result.output))


def test_a_fork_that_closed_its_pipes_is_ended_too():
    result = shell("sleep 60 >/dev/null 2>&1 </dev/null & echo $!")
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


def test_a_program_that_closes_its_output_and_lives_on_is_waited_for():
    result = shell("exec >&- 2>&-; sleep 0.2; exit 5")
    assert (result.ending, result.exit_code) == (ProgramEnd.EXITED, 5)


def test_stopping_ends_the_program():
    stopping = threading.Event()
    threading.Timer(0.1, stopping.set).start()
    result = run("sleep", "60", stopping=stopping)
    assert (result.ending, result.exit_code) == (ProgramEnd.STOPPED, -15)


def test_the_environment_is_what_was_given_and_nothing_else(monkeypatch):
    monkeypatch.setenv("X_SECRET_KEY", "msk_canary")
    result = run("env", environment={"PATH": DEFAULT_PATH, "DEVICE_ID": "d1"})
    assert sorted(result.output.decode().split()) == ["DEVICE_ID=d1", f"PATH={DEFAULT_PATH}"]


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


def test_a_program_that_is_not_there_says_so_with_the_fix(tmp_path):
    with pytest.raises(ProgramNotStarted, match=r"/does/not/exist does not exist: install it or mend the path"):
        run("/does/not/exist")
    with pytest.raises(ProgramNotStarted, match=r"'no-such-program' was not found in .*: install it"):
        run("no-such-program")
    with pytest.raises(ProgramNotStarted, match=r"working directory .* does not exist"):
        run("true", directory=tmp_path / "gone")


def test_a_program_that_is_not_executable_says_so_with_the_fix(tmp_path):
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\n")
    if os.geteuid() != 0:
        script.chmod(0o200)
    with pytest.raises(ProgramNotStarted, match=r"is not executable for this user: chmod \+x it"):
        run(str(script))
    with pytest.raises(ProgramNotStarted, match="is not a file"):
        run(str(tmp_path))


def test_a_file_that_is_no_program_is_refused_by_the_system_in_one_sentence(tmp_path):
    junk = tmp_path / "junk"
    junk.write_bytes(b"\x00\x01\x02")
    junk.chmod(0o755)
    with pytest.raises(ProgramNotStarted, match="could not be started: Exec format error"):
        run(str(junk))


def test_a_nul_in_an_argument_is_an_error_of_ours_and_not_a_crash():
    with pytest.raises(ProgramNotStarted, match="could not be started"):
        run("echo", "a\0b")


def test_what_looks_good_has_no_fault():
    assert program_fault(("sh",), ENVIRONMENT) is None
    assert program_fault((sys.executable,), {}) is None


def test_bytes_that_are_not_utf_8_become_text_that_json_takes():
    assert text_of(b"caf\xe9 \x00\x1b[0m\tok\n\xc2\xa0", max_bytes=100) == "caf\ufffd \ufffd\ufffd[0m\tok\n\u00a0"


def test_text_is_cut_at_a_character_and_never_longer_than_the_bound():
    assert text_of("äöü".encode(), max_bytes=5) == "äö"
    assert len(text_of(b"\xff" * 100, max_bytes=100).encode()) <= 100


def test_the_last_line_is_the_last_that_says_something():
    assert last_line(b"first\nthe cause\n\n  \n") == "the cause"
    assert last_line(b"") == ""
