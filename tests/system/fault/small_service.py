"""A small service for one agent over HTTP: commands, results, readings singly and in batches, idempotency keys.

It judges nothing, and a test looks at what it holds without a request.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from agent.wire.models import FINAL_STATES
from agent.wire.server import BATCH_SENSOR_DATA, COMMAND_RESULTS, COMMAND_STATUS, IDEMPOTENCY_KEY, RECORDED_AT

_OFFERED = [BATCH_SENSOR_DATA, COMMAND_RESULTS, COMMAND_STATUS, IDEMPOTENCY_KEY, RECORDED_AT]


@dataclass(slots=True)
class World:
    """What the service holds.

    Attributes:
        payloads: command id -> payload, oldest first.
        results: command id -> the last result.
        readings: every ``sensor_data`` as often as it is stored.
    """

    payloads: dict[str, dict[str, Any]] = field(default_factory=dict)
    results: dict[str, dict[str, Any]] = field(default_factory=dict)
    readings: list[dict[str, float]] = field(default_factory=list)
    keys: set[str] = field(default_factory=set)

    def status_of(self, command_id: str) -> str:
        """As the service lists it."""
        return str(self.results.get(command_id, {}).get("status", "delivered"))

    def open_ids(self) -> list[str]:
        """Commands without an end, oldest first."""
        return [each for each in self.payloads if self.status_of(each) not in FINAL_STATES]

    def stored(self) -> Counter[tuple[str, int, int]]:
        """Sensor, process and number of each reading -> how often it is stored."""
        return Counter(
            (name.removesuffix("_life"), int(value), int(values[name.replace("_life", "_number")]))
            for values in self.readings
            for name, value in values.items()
            if name.endswith("_life")
        )


class SmallService:
    """A :class:`World` behind HTTP on a free port. Leaving the block ends it."""

    def __init__(self) -> None:
        self.world = World()
        self._lock = threading.Lock()
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="small service")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def base_url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def send(self, command_id: str, payload: dict[str, Any]) -> None:
        """A command for the device."""
        with self._lock:
            self.world.payloads[command_id] = payload

    def take_result(self, command_id: str, result: dict[str, Any]) -> None:
        """From the device."""
        with self._lock:
            self.world.results[command_id] = result

    def take_readings(self, key: str, readings: list[dict[str, float]]) -> None:
        """From the device; those of an idempotency key once."""
        with self._lock:
            if not key or key not in self.world.keys:
                self.world.keys.add(key)
                self.world.readings += readings

    def list_open(self) -> list[dict[str, Any]]:
        """The device's poll."""
        with self._lock:
            return [
                {
                    "id": each,
                    "command_payload": self.world.payloads[each],
                    "status": self.world.status_of(each),
                    "created_at": datetime.now(UTC).isoformat(),
                }
                for each in self.world.open_ids()
            ]


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, service: SmallService) -> None:
        self.service = service
        super().__init__(("127.0.0.1", 0), _Requests)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that was killed in the middle is what all this is about."""


class _Requests(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def do_GET(self) -> None:
        if self.path.startswith("/.well-known/"):
            self._answer(200, {"extensions": _OFFERED})
        else:
            self._answer(200, {"data": self.server.service.list_open(), "next_cursor": None, "has_more": False})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path.endswith("/result"):
            command_id = self.path.split("/")[-2]
            self.server.service.take_result(command_id, body)
            self._answer(200, {"id": command_id, "command_payload": {}, "status": body["status"]})
            return
        items = body if isinstance(body, list) else [body]
        readings = [item["sensor_data"] for item in items]
        self.server.service.take_readings(self.headers.get("Idempotency-Key", ""), readings)
        if isinstance(body, list):
            self._answer(200, {"accepted": len(items), "errors": []})
        else:
            self._answer(201, {"id": "r", **body})

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""

    def _answer(self, status: int, body: Any) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
