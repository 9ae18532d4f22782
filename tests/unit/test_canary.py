"""The watch for secrets does find them: each leak here is planted in a small test run of its own."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from agent.wire.signed_keys import SigningKey
from tests import canary
from tests.e2e.agent_bench import wait_until

# Written apart, so that this file's own failures and the command lines below do not hold the mark.
HEAD = """
import base64, logging, os, subprocess, sys
SECRET = "msk_x_" + "Canary" + "Secret7f3a9c"
"""
CONFTEST = "from tests import canary\npytest_configure = canary.install\n"
pytestmark = pytest.mark.timeout(300)

PLANTED = """
import pytest

def test_a_log_file(tmp_path):
    (tmp_path / "agent.log").write_text("key " + SECRET)

def test_a_database(tmp_path):
    (tmp_path / "agent.db").write_bytes(bytes(3000000) + SECRET.encode())

@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("wider")

def test_a_folder_of_a_wider_fixture(folder):
    (folder / "status.json").write_text(SECRET)

def test_base64(tmp_path):
    (tmp_path / "trace").write_bytes(base64.b64encode(("user:" + SECRET).encode()))

def test_a_made_key(tmp_path):
    (tmp_path / "made.yaml").write_text("msk_" + "local_" + "0a" * 20)

def test_a_device_token(tmp_path):
    (tmp_path / "device.yaml").write_text("dat_" + "0a" * 20)

def test_standard_output():
    print(SECRET)

def test_the_log():
    logging.getLogger().warning("%s", SECRET)

def test_a_programs_output():
    subprocess.run([sys.executable, "-c", "print('Canary' + 'Secret7f3a9c')"], capture_output=True)

def test_a_command_line():
    subprocess.run(["/bin/true", SECRET])

def test_an_environment():
    subprocess.run(["/bin/true"], env={"KEY": SECRET})

@pytest.mark.xfail(strict=True)
def test_a_traceback():
    raise ValueError("the key is " + SECRET)
"""
FOUND = [
    "agent.log: the canary",
    "agent.db: the canary",
    "status.json: the canary",
    "trace: the canary",
    "made.yaml: a secret that begins with msk_local",
    "device.yaml: a secret that begins with dat_",
    "test_standard_output: what it printed, logged or raised: the canary",
    "test_the_log: what it printed, logged or raised: the canary",
    "test_a_programs_output: what a program printed: the canary",
    "test_a_command_line: the arguments of a process: the canary",
    "test_an_environment: the environment of a process: the canary",
    "test_a_traceback: what it printed, logged or raised: the canary",
]
CLEAN = """
def test_it(tmp_path):
    (tmp_path / "secret_key").write_text(SECRET)
    (tmp_path / "agent.log").write_text("nothing")
    print("nothing")
    subprocess.run(["/bin/true"])
"""


def run_pytest(folder: Path, source: str, *options: str) -> subprocess.CompletedProcess[str]:
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_it.py").write_text(HEAD + source)
    base = folder / "base"
    words = ["-q", "-p", "no:cacheprovider", "--rootdir", folder, f"--basetemp={base}", *options, folder / "test_it.py"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *map(str, words)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
        # A compiled module holds in one piece what stands in two in its source.
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )
    shutil.rmtree(base)  # or this run's own watch would find it
    return done


@pytest.mark.parametrize("processes", [[], ["-n", "1"]], ids=["in one process", "in a worker"])
def test_planted_leaks_fail_the_run_and_are_named_without_being_repeated(tmp_path, processes):
    done = run_pytest(tmp_path, PLANTED, *processes)
    told = done.stdout + done.stderr
    assert done.returncode == 1, told
    assert "11 passed, 1 xfailed" in told
    assert [each for each in FOUND if each not in told] == []
    assert canary.MARK not in told.partition("secrets where they do not belong")[2]


def test_a_secret_in_the_file_that_is_meant_to_hold_it_is_none(tmp_path):
    done = run_pytest(tmp_path, CLEAN)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_senders_private_key_is_known_by_its_form(tmp_path):
    key = SigningKey.make()
    key.write(tmp_path / "k.key")
    content = (tmp_path / "k.key").read_bytes()
    assert canary.leaks_in(content) == ["a secret that begins with MC4CAQAwB"]
    assert canary.is_meant_to_hold(tmp_path / "k.key")


def test_a_running_process_is_looked_at_with_its_children():
    script = "sleep 60 & echo started; wait"
    popen = subprocess.Popen(["/bin/sh", "-c", script, "sh"], stdout=subprocess.PIPE, start_new_session=True)
    try:
        assert popen.stdout is not None
        popen.stdout.readline()
        assert list(canary.leaks_of_process(popen.pid)) == []
        canary.watch("sleep\x0060", "a word for this test")
        # The child may still be the shell that has not become "sleep" yet.
        wait_until(lambda: any("a word for this test" in leak for leak in canary.leaks_of_process(popen.pid)))
    finally:
        canary.forget("a word for this test")
        os.killpg(popen.pid, signal.SIGKILL)
        popen.communicate()
