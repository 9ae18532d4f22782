"""A service that takes nothing: the demo says so, however well nothing was lost."""

from __future__ import annotations

import contextlib
import io
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from rich.console import Console

from agent.core.backoff import Backoff
from agent.core.poll_interval import PollIntervals
from simulator.demo.cli import _print_verdict
from simulator.demo.folder import DemoFolder
from simulator.demo.proofs import exit_code, prove_readings
from simulator.demo.screen import Screen
from simulator.exit_codes import ExitCode
from simulator.fleet.device.model import DeviceModel
from simulator.fleet.runner import DeviceIdentity, FleetTarget, FleetThread

NAMES = ("one", "two")
MODEL = DeviceModel(interval_s=0.05, polling=PollIntervals(1.0, 1.0, 1.0), wait_s=0.0, backoff=Backoff(0.1, 0.1))


@contextlib.contextmanager
def service(status: int, count: int = 2) -> Iterator[tuple[str, threading.Event]]:
    """Answers every write with this status; the event comes after so many of them."""
    seen, enough = [], threading.Event()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._send(200, b"[]")

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            seen.append(self.path)
            if len(seen) >= count:
                enough.set()
            self._send(status, b'{"error":"no"}')

        def _send(self, code: int, body: bytes) -> None:
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", enough
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.mark.parametrize(
    ("status", "says"),
    [(422, "the service refused"), (503, "were sent and got no good answer"), (404, "the service accepted no reading")],
)
def test_a_service_that_refuses_what_was_sent_is_no_proof_of_anything(status, says, tmp_path: Path):
    identities = [DeviceIdentity(name, "p1", name) for name in NAMES]
    with service(status) as (base_url, enough):
        target = FleetTarget(base_url, {"x-api-key": "mk_a", "x-secret-key": "msk_a"}, frozenset())
        with FleetThread(target, identities, MODEL, seed=1) as fleet:
            fleet.switch_on()
            assert enough.wait(60)
            fleet.sample(on=False)
            fleet.settle(5.0 if status != 503 else 0.5)
            fleet.switch_off()
            devices = [ledger.readings(()) for ledger in fleet.ledgers.values()]
    proof = prove_readings("Each reading that a virtual device sent is stored exactly once", devices)
    out = io.StringIO()
    code = exit_code([proof])
    _print_verdict([proof], DemoFolder(tmp_path), Screen(Console(file=out, width=200)), code)
    assert code is ExitCode.CHECK_FAILED
    assert says in out.getvalue()
    assert "Everything held" not in out.getvalue()
