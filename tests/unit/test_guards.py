"""The guards of tests/conftest.py do catch what they are for: each runs here on a test that misbehaves."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = Path(__file__).resolve().parents[1] / "conftest.py"

CONNECTS_OUT = """
import socket
def test_it():
    try:
        socket.create_connection(("192.0.2.1", 9), timeout=1)
    except Exception:
        pass  # swallowed: the guard must notice all the same
"""
RESOLVES_A_NAME = """
import socket
def test_it():
    socket.getaddrinfo("service.example.com", 443)
"""
TALKS_TO_LOOPBACK = """
import socket
def test_it():
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()):
        pass
"""
LEAVES_A_THREAD = """
import threading
def test_it():
    threading.Timer(2.5, print).start()
"""
LEAVES_A_PROCESS = """
import subprocess, sys
kept = []
def test_it():
    kept.append(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(30)"]))
"""
SEES_A_PROXY = """
import os
def test_it():
    assert not [name for name in os.environ if name.lower() == "https_proxy" or name.startswith("DEVICE_AGENT_")]
"""
NEEDS_A_PROGRAM = """
def test_it(require_program):
    require_program("no-such-program", "its-package")
"""


def run_pytest(folder: Path, source: str, **environment: str) -> subprocess.CompletedProcess[str]:
    shutil.copy(CONFTEST, folder / "conftest.py")
    (folder / "test_it.py").write_text(source)
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", folder, folder],
        cwd=folder,
        env={**os.environ, "CI": "", "JOIN_GRACE_S": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        (CONNECTS_OUT, "the test left this machine: socket.connect to 192.0.2.1:9"),
        (RESOLVES_A_NAME, "name resolution of 'service.example.com'"),
        (LEAVES_A_THREAD, "the test left running: thread"),
        pytest.param(
            LEAVES_A_PROCESS,
            "the test left running: process",
            marks=pytest.mark.skipif(sys.platform != "linux", reason="children are read from /proc"),
        ),
    ],
    ids=["connects out", "resolves a name", "leaves a thread", "leaves a process"],
)
def test_a_test_that_misbehaves_fails_and_says_why(tmp_path, source, complaint):
    done = run_pytest(tmp_path, source)
    assert done.returncode == 1
    assert complaint in done.stdout


def test_loopback_is_allowed(tmp_path):
    assert run_pytest(tmp_path, TALKS_TO_LOOPBACK).returncode == 0


def test_proxies_and_our_own_variables_never_reach_a_test(tmp_path):
    done = run_pytest(tmp_path, SEES_A_PROXY, HTTPS_PROXY="http://192.0.2.1:3128", DEVICE_AGENT_STATE_DIR="/nowhere")
    assert done.returncode == 0, done.stdout


def test_a_missing_program_skips_on_a_users_machine_and_says_what_to_install(tmp_path):
    done = run_pytest(tmp_path, NEEDS_A_PROGRAM)
    assert done.returncode == 0
    assert "1 skipped" in done.stdout


def test_a_missing_program_fails_on_ci(tmp_path):
    done = run_pytest(tmp_path, NEEDS_A_PROGRAM, CI="true")
    assert done.returncode == 1
    assert "apt-get install its-package" in done.stdout
