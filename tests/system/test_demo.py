"""``fleet-simulator demo`` as its users run it: real processes, and nothing left of them afterwards."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import IO

import pytest

from tests.support.processes import run_program

DEMO = [str(Path(sys.executable).with_name("fleet-simulator")), "demo"]


def of_this_run(out: Path) -> list[str]:
    """Command lines of processes that name this run's folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if str(out) in line:
                found.append(line)
    return found


def all_gone(out: Path, within_s: float = 60) -> bool:
    deadline = time.monotonic() + within_s
    while of_this_run(out):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def start(out: Path, *options: str, devices: int = 6) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*DEMO, "--out", str(out), "--devices", str(devices), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def read_until(stream: IO[str], text: str) -> str:
    seen = ""
    for line in stream:
        seen += line
        if text in line:
            return seen
    pytest.fail(f"{text!r} was never printed:\n{seen}")


def processor_time_s() -> float:
    """Of all processes below this one that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_the_demo_holds_and_leaves_a_report_a_verdict_and_no_key_where_none_belongs(tmp_path):
    out = tmp_path / "out"
    begun_s = processor_time_s()
    done = run_program([*DEMO, "--out", str(out), "--devices", "8"], timeout=300)
    # What it takes on a machine that has nothing else to do; this one may be busy with other tests.
    assert processor_time_s() - begun_s < 60
    logs = "\n".join(path.read_text() for path in sorted((out / "logs").glob("*.log")))
    assert done.returncode == 0, f"{logs}\n{done.stdout}"
    assert all_gone(out)
    verdict = json.loads((out / "verdict.json").read_text())
    assert (verdict["held"], verdict["fleet"], verdict["failures"]) == (True, 0, [])
    assert Path(verdict["report"]).read_text().startswith("<!doctype html>")
    secret = (out / "up" / "keys" / "secret_key").read_text().strip()
    assert secret not in Path(verdict["report"]).read_text() + done.stdout + done.stderr + logs
    assert all(secret not in file.read_text(errors="replace") for file in (out / "agent").rglob("*") if file.is_file())
    assert "SIGKILL in the middle of two commands" in done.stdout


@pytest.mark.parametrize(
    ("damage", "code", "said"),
    [
        ("self.effects.write_text(self.effects.read_text() * 2)", 1, "open_valve: its program began 2 times, not 1"),
        ("self.witness.write_text(self.witness.read_text().replace('\"check\": ', '\"check\": 1'))", 4, "was altered"),
    ],
    ids=["ran-twice", "altered"],
)
def test_what_the_agents_books_do_not_agree_with_fails(tmp_path, damage, code, said):
    """The demo as it is, with books that are changed before they are compared."""
    change = f"""
import sys
from simulator.demo.agent import RealAgent
from simulator.demo.story import Demo
judge = Demo._judge
def damaged(demo, verdict):
    self = demo._agent
    {damage}
    judge(demo, verdict)
Demo._judge = damaged
from simulator.cli import main
main(sys.argv[1:])
"""
    done = run_program(
        [sys.executable, "-c", change, "demo", "--out", str(tmp_path / "out"), "--devices", "3"], timeout=200
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert said in done.stdout
    assert "Everything held. Nothing was lost" not in done.stdout


@pytest.mark.parametrize(
    ("number", "moment"),
    [(signal.SIGINT, "listens on"), (signal.SIGTERM, "virtual devices measure")],
    ids=["ctrl-c", "sigterm"],
)
def test_an_interrupted_demo_leaves_no_process_behind(tmp_path, number, moment):
    out = tmp_path / "out"
    with start(out) as process:
        read_until(process.stdout, moment)
        assert of_this_run(out)
        process.send_signal(number)
        _, errors = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "Traceback" not in errors
    assert all_gone(out)


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's parent-death signal is Linux's")
def test_a_demo_that_is_killed_leaves_no_process_behind(tmp_path):
    out = tmp_path / "out"
    with start(out) as process:
        read_until(process.stdout, "virtual devices measure")
        process.kill()
        process.communicate(timeout=120)
    assert all_gone(out)


def test_a_service_that_cannot_start_ends_with_5_and_one_clear_line(tmp_path):
    out = tmp_path / "out"
    shim = tmp_path / "bin"
    shim.mkdir()
    # The demo looks for its programs beside its Python: here the service is a program that fails.
    (shim / "python").symlink_to(sys.executable)
    (shim / "fleet-simulator").write_text("#!/bin/sh\necho 'no disk' >&2\nexit 3\n")
    (shim / "fleet-simulator").chmod(0o755)
    run = "import sys; sys.executable = sys.argv.pop(1); from simulator.cli import main; main(sys.argv[1:])"
    done = run_program(
        [sys.executable, "-c", run, str(shim / "python"), "demo", "--out", str(out)],
        timeout=120,
    )
    assert done.returncode == 5
    assert "fleet-simulator up ended with 3 before the service stood" in done.stderr
    assert "no disk" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_folder_of_somebody_else_is_refused_with_2(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    done = run_program([*DEMO, "--out", str(tmp_path)], timeout=120)
    assert done.returncode == 2
    assert done.stderr.strip().count("\n") == 0
    assert (tmp_path / "mine.txt").read_text() == "mine"
