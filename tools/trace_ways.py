"""Print the files that one command, or one reading, goes through in a running agent, in the order of their first use.

``python tools/trace_ways.py command`` and ``... reading``. The agent runs in this process on a service of canned
answers. The calls of functions in ``agent/`` are recorded (``sys.setprofile``) after start-up: from a poll that brings
a command to its reported result, or from a sensor to the deleted row. docs/architecture.md names the files that matter.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import FrameType
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
PACKAGE: Final = f"{ROOT / 'agent'}{os.sep}"
# The threads of each way: the HTTP client works in those of the poller, the reporter and the uplink.
THREADS: Final = {
    "command": ("commands", "store", "lane:", "run:", "results"),
    "reading": ("sensor", "store", "readings"),
}
EXTENSIONS: Final = ("batch-sensor-data", "command-results", "command-status", "idempotency-key", "recorded-at")
# What the compiler makes is part of the function around it.
UNNAMED: Final = ("<lambda>", "<genexpr>", "<listcomp>", "<dictcomp>", "<setcomp>", "<module>")
WITHIN_S: Final = 60.0

CONFIGURATION: Final = """
service: {{base_url: "http://127.0.0.1:{port}", allow_plain_http: true}}
device: {{device_id: d1}}
auth:
  {{mode: key_pair, allow_secret_key_on_device: true, api_key_file: "{folder}/api", secret_key_file: "{folder}/secret"}}
state_dir: "{folder}/state"
commands: {{long_poll: "off", poll: {{fast_s: {poll_s}, slow_s: {poll_s}, idle_s: {poll_s}, spread_s: 0}}}}
sensors: [{sensors}]
outbox: {{group_window_s: 0.2}}
logging: {{level: info}}
"""


class Service(ThreadingHTTPServer):
    """Canned answers: every POST is taken, and the list of commands holds what :attr:`commands` holds."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.commands: list[dict[str, Any]] = []
        self.posts = 0


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Service

    def log_message(self, *_args: Any) -> None:
        """Log nothing."""

    def do_GET(self) -> None:
        is_announcement = "well-known" in self.path
        commands = {"data": list(self.server.commands), "next_cursor": None, "has_more": False}
        self._answer(200, {"extensions": list(EXTENSIONS)} if is_announcement else commands)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        if "/result" in self.path:
            self.server.commands.clear()
        self.server.posts += 1
        self._answer(201, {"id": "c", "command_payload": {}})

    def _answer(self, status: int, body: object) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


class Recorder:
    """Which functions of the agent were entered, while it is on, by the threads of one way.

    Attributes:
        calls: (file, function) in the order of their first call.
    """

    def __init__(self, threads: tuple[str, ...]) -> None:
        self._threads = threads
        self.is_on = False
        self.calls: dict[tuple[str, str], None] = {}

    def __call__(self, frame: FrameType, event: str, _arg: object) -> None:
        """A profile function, see :func:`sys.setprofile`."""
        code = frame.f_code
        if not self.is_on or event != "call" or not code.co_filename.startswith(PACKAGE):
            return
        if threading.current_thread().name.startswith(self._threads) and not code.co_qualname.endswith(UNNAMED):
            self.calls.setdefault((code.co_filename[len(PACKAGE) :], code.co_qualname))


def trace(way: str) -> dict[str, list[str]]:
    """File -> its functions, both in the order of their first call, of the second command or of one more reading.

    Args:
        way: ``command`` or ``reading``.
    """
    from agent.cli import main

    recorder, service = Recorder(THREADS[way]), Service()
    threading.Thread(target=service.serve_forever, name="service", daemon=True).start()
    threading.setprofile(recorder)
    drive = _send_commands if way == "command" else _await_readings

    def driven() -> None:
        try:
            drive(service, recorder)
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "state").mkdir(mode=0o700)
        for key, text in (("api", "mk_0123456789abcdef"), ("secret", "msk_0123456789abcdef")):
            (folder / key).write_text(text, encoding="utf-8")
            (folder / key).chmod(0o600)
        sensors = "{name: board, type: simulated, interval_s: 1}" if way == "reading" else ""
        text = CONFIGURATION.format(
            port=service.server_port, folder=folder, sensors=sensors, poll_s=0.5 if way == "command" else 600
        )
        (folder / "agent.yaml").write_text(text, encoding="utf-8")
        threading.Thread(target=driven, name="driver", daemon=True).start()
        with contextlib.suppress(SystemExit):
            sys.argv = ["device-agent", "run", "--config", str(folder / "agent.yaml")]
            main()
    threading.setprofile(None)
    service.shutdown()
    files: dict[str, list[str]] = {}
    for file, function in recorder.calls:
        files.setdefault(file, []).append(function)
    return files


def _send_commands(service: Service, recorder: Recorder) -> None:
    for number in (1, 2):  # the first one loads what the second one finds
        recorder.is_on = number > 1
        posts = service.posts
        service.commands.append({"id": f"c{number}", "status": "queued", "command_payload": {"command": "ping"}})
        _await(lambda: service.posts > posts)  # noqa: B023 - waited for before the next turn
        time.sleep(0.5)  # the result is noted in the journal
    recorder.is_on = False


def _await_readings(service: Service, recorder: Recorder) -> None:
    _await(lambda: service.posts >= 2)
    recorder.is_on = True
    posts = service.posts
    _await(lambda: service.posts >= posts + 2)  # the commit of the second one deletes the first
    time.sleep(0.5)
    recorder.is_on = False


def _await(is_there: Callable[[], bool]) -> None:
    until_s = time.monotonic() + WITHIN_S
    while not is_there():
        if time.monotonic() > until_s:
            raise TimeoutError("the agent did not report in time")
        time.sleep(0.05)


def run(arguments: list[str]) -> int:
    """Print one way; 2 when it is not one."""
    if len(arguments) != 1 or arguments[0] not in THREADS:
        print(f"usage: trace_ways.py {' | '.join(THREADS)}", file=sys.stderr)
        return 2
    files = trace(arguments[0])
    for file, functions in files.items():
        print(f"agent/{file}: {', '.join(functions)}")
    print(f"{len(files)} modules, {sum(map(len, files.values()))} functions")
    return 0


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(run(sys.argv[1:]))
