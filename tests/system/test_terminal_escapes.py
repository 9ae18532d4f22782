"""Text from outside on a terminal: no command of the three programs passes on what would steer it."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

pytestmark = pytest.mark.long

HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b31m\rforged\u202e\x08"
STEERING = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202e]|\r(?!\n)")
PROGRAMS = ("agent.cli", "gateway.cli", "simulator.cli")


class Answers(BaseHTTPRequestHandler):
    """Answers everything with a hostile error."""

    def answer(self):
        self.rfile.read(int(self.headers.get("content-length") or 0))
        content = json.dumps({"error": HOSTILE, "message": HOSTILE}).encode()
        self.send_response(422)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_PUT = do_DELETE = answer

    def log_message(self, *_):
        """Say nothing."""


@pytest.fixture(scope="module")
def address():
    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def shown(module, *arguments, folder, ends_by_itself=True, wanted=None, term="dumb"):
    """What a program shows on a terminal."""
    master, slave = pty.openpty()
    environment = {**os.environ, "TERM": term, "NO_COLOR": "1", "COLUMNS": "200", "HOME": str(folder)}
    process = subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=slave,
        stderr=slave,
        env=environment,
        cwd=folder,
        start_new_session=True,
    )
    os.close(slave)
    timer = threading.Timer(100, process.kill)
    timer.start()
    found = b""
    try:
        while True:
            try:
                piece = os.read(master, 65536)
            except OSError:  # the last writer has closed the terminal
                break
            found += piece
            if not ends_by_itself and wanted.encode() in found:
                ends_by_itself = True
                process.send_signal(signal.SIGTERM)
        process.wait(60)
    finally:
        timer.cancel()
        process.kill()
        process.wait()
        os.close(master)
    return found.decode("utf-8", "replace").replace("\r\n", "\n")


def check(text):
    steering = STEERING.search(text)
    assert steering is None, text[max(0, steering.start() - 200) : steering.end() + 50].encode("unicode_escape")


@pytest.mark.parametrize("module", PROGRAMS)
def test_an_argument_that_is_refused_is_not_shown_as_it_is(module, tmp_path):
    text = shown(module, f"--{HOSTILE}", folder=tmp_path)
    check(text)
    assert "forged" in text


def test_neither_the_agent_nor_what_reports_about_it_shows_an_answer_as_it_is(address, tmp_path):
    for name, key in (("api_key", "mk_1"), ("secret_key", "msk_canary")):
        (tmp_path / name).write_text(key)
        (tmp_path / name).chmod(0o600)
    config = tmp_path / "agent.yaml"
    config.write_text(
        f"""
service: {{base_url: "{address}"}}
device: {{device_id: d}}
auth:
  mode: key_pair
  allow_secret_key_on_device: true
  api_key_file: {tmp_path}/api_key
  secret_key_file: {tmp_path}/secret_key
state_dir: {tmp_path}/state
"""
    )
    (tmp_path / "state").mkdir(mode=0o700)
    given = ("--config", str(config))
    log = shown("agent.cli", "run", *given, folder=tmp_path, ends_by_itself=False, wanted="422")
    check(log)
    assert "forged" in log
    for command in ("status", "doctor"):
        text = shown("agent.cli", command, *given, folder=tmp_path)
        check(text)
        assert "forged" in text or command == "doctor"


def test_a_console_with_colours_escapes_text_and_keeps_its_own_colours(capsys):
    from rich.table import Table
    from rich.text import Text

    from simulator.terminal import Console

    console = Console(force_terminal=True, width=200, color_system="standard", _environ={"TERM": "xterm"})
    table = Table()
    table.add_column("name")
    table.add_row(HOSTILE)
    with console.status(HOSTILE):
        console.print(Text(HOSTILE, "bold red"))
        console.print(table)
        console.print(f"[red]{HOSTILE}[/]")
    written = capsys.readouterr().out
    assert "\x1b[1;31m" in written
    assert "\x1b]0;" not in written
    assert "\x9b" not in written
    assert "\u202e" not in written
    assert "\\u001b" in written
