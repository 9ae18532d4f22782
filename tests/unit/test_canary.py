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
from tests.unit.test_guards import CONFTEST

# Written apart, so that this file's own failures and the command lines below do not hold the mark.
HEAD = """
import base64, logging, os, subprocess, sys
SECRET = "msk_x_" + "Canary" + "Secret7f3a9c"
"""
PLANTED = {
    "a log file": 'def test_it(tmp_path):\n    (tmp_path / "agent.log").write_text("key " + SECRET)',
    "a database": 'def test_it(tmp_path):\n    (tmp_path / "agent.db").write_bytes(bytes(3000000) + SECRET.encode())',
    "a folder of a wider fixture": (
        "import pytest\n@pytest.fixture(scope='session')\ndef folder(tmp_path_factory):\n"
        "    return tmp_path_factory.mktemp('x')\n"
        "def test_it(folder):\n    (folder / 'status.json').write_text(SECRET)"
    ),
    "base64": (
        'def test_it(tmp_path):\n    text = base64.b64encode(("user:" + SECRET).encode())\n'
        '    (tmp_path / "trace").write_bytes(text)'
    ),
    "standard output": "def test_it():\n    print(SECRET)",
    "the log": "def test_it():\n    logging.getLogger().warning('%s', SECRET)",
    "a program's output": (
        'def test_it():\n    code = \'print("Canary" + "Secret7f3a9c")\'\n'
        "    subprocess.run([sys.executable, '-c', code], capture_output=True)"
    ),
    "a command line": "def test_it():\n    subprocess.run(['/bin/true', SECRET])",
    "an environment": "def test_it():\n    subprocess.run(['/bin/true'], env={'KEY': SECRET})",
    "a made key": 'def test_it(tmp_path):\n    (tmp_path / "config.yaml").write_text("msk_" + "local_" + "0a" * 20)',
    "a device token": 'def test_it(tmp_path):\n    (tmp_path / "config.yaml").write_text("dat_" + "0a" * 20)',
}
CLEAN = """
def test_it(tmp_path):
    (tmp_path / "secret_key").write_text(SECRET)
    (tmp_path / "agent.log").write_text("nothing")
    print("nothing")
    subprocess.run(["/bin/true"])
"""


def run_pytest(folder: Path, source: str, *options: str) -> subprocess.CompletedProcess[str]:
    shutil.copy(CONFTEST, folder / "conftest.py")
    (folder / "test_it.py").write_text(HEAD + source)
    base = folder / "base"
    words = ["-q", "-p", "no:cacheprovider", "--rootdir", folder, f"--basetemp={base}", *options, folder / "test_it.py"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *map(str, words)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    shutil.rmtree(base, ignore_errors=True)  # or this run's own watch would find it
    return done


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_leak_fails_the_run_and_is_named_without_being_repeated(tmp_path, name):
    done = run_pytest(tmp_path, PLANTED[name])
    assert done.returncode == 1, done.stdout + done.stderr
    assert "secrets where they do not belong" in done.stdout
    assert "1 passed" in done.stdout
    assert canary.MARK not in done.stdout


def test_a_leak_found_by_a_worker_fails_the_whole_run(tmp_path):
    done = run_pytest(tmp_path, PLANTED["a log file"], "-n", "1")
    assert done.returncode == 1
    assert "agent.log: the canary" in done.stdout


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
        assert any("a word for this test" in leak for leak in canary.leaks_of_process(popen.pid))
    finally:
        canary.forget("a word for this test")
        os.killpg(popen.pid, signal.SIGKILL)
        popen.communicate()
