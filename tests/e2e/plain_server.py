"""A server of the specification alone, with other choices than ours: bare arrays, own ids, no extension, no discovery.

It refuses every query parameter, header and member that the specification does not name, and keeps a list of them.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

_MEMBERS = {
    "/sensor-data": {"device_id", "sensor_data"},
    "/commands/send": {"device_id", "command_payload"},
    "/database/runtime-data": {"product_id", "device_id", "table_name", "data_payload"},
    "/onboarding/device": {"user_id", "product_id", "device_name", "device_identifier", "qr_info"},
}


@dataclass(frozen=True)
class Choices:
    """What the specification leaves open.

    Attributes:
        text: writing requests are answered with the text OK.
        wrapped: writing requests are answered with the record inside ``{"success": true, ...}``.
        page: items of a page, with a ``next`` link in the body; None gives everything in an array.
        flat: stored readings come back without ``sensor_data`` around them.
        nameless: stored readings come back without their device.
        refuses: readings are answered with 400.
        once: each command is listed once.
        deaf: commands are taken, and listed to nobody.
        mute: lists of commands are answered with 500.
        results: status of the table of results.
    """

    text: bool = False
    wrapped: bool = False
    page: int | None = None
    flat: bool = False
    nameless: bool = False
    refuses: bool = False
    once: bool = False
    deaf: bool = False
    mute: bool = False
    results: int = 201


@dataclass
class Plain:
    """The server's state.

    Attributes:
        beyond: what came that the specification does not name.
    """

    choices: Choices
    base_url: str = ""
    products: list[dict[str, Any]] = field(default_factory=list)
    devices: list[dict[str, Any]] = field(default_factory=list)
    commands: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    readings: list[dict[str, Any]] = field(default_factory=list)
    results: list[dict[str, Any]] = field(default_factory=list)
    beyond: list[str] = field(default_factory=list)
    sent: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, method: str, target: str, headers: Any, body: Any) -> tuple[int, Any]:
        """Status and value; a text goes out as text."""
        parts = urlsplit(target)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        offset = int(query.pop("from_item", 0))
        extra = [*query, *(name for name in headers if name.lower() in {"idempotency-key", "prefer"})]
        if isinstance(body, dict) and parts.path in _MEMBERS:
            extra += body.keys() - _MEMBERS[parts.path]
        elif isinstance(body, list):
            extra.append("an array")
        with self.lock:
            if extra:
                self.beyond += [f"{method} {parts.path} {name}" for name in extra]
                return 400, {"error": "unknown", "message": ", ".join(extra)}
            return self._act(method, [unquote(part) for part in parts.path.strip("/").split("/")], body, offset)

    def _act(self, method: str, path: list[str], body: Any, offset: int) -> tuple[int, Any]:
        match method, path:
            case "GET", ["products"]:
                return 200, self.products
            case "POST", ["products"]:
                self.products.append({"productId": f"prod-{len(self.products)}", "name": body["name"]})
                return self._written("product", self.products[-1])
            case "GET", ["onboarding", "user", _, "devices"]:
                return self._listed("devices", self.devices, f"/{'/'.join(path)}", offset)
            case "POST", ["onboarding", "device"]:
                self.devices.append({**body, "device_id": f"dev-{len(self.devices)}"})
                return self._written("device", self.devices[-1])
            case "GET", ["devices"]:
                return self._listed("devices", self.devices, "/devices", offset)
            case "POST", ["commands", "send"]:
                self.sent += 1
                ours = self.commands.setdefault(body["device_id"], [])
                ours.append({"_id": f"own-{self.sent}", "payload": body["command_payload"]})
                return self._written("data", ours[-1])
            case "GET", ["devices", device_id, "commands"]:
                if self.choices.mute:
                    return 500, {"error": "broken"}
                ours = [] if self.choices.deaf else list(self.commands.get(device_id, []))
                if self.choices.once and ours:
                    self.commands[device_id] = []
                return self._listed("commands", ours, f"/devices/{device_id}/commands", offset)
            case "POST", ["sensor-data"]:
                if self.choices.refuses:
                    return 400, {"error": "invalid"}
                self.readings.append(body)
                return self._written("data", {"stored": True})
            case "GET", ["sensor-data"]:
                return self._listed("readings", [self._row(row) for row in self.readings], "/sensor-data", offset)
            case "POST", ["database", "runtime-data"]:
                if self.choices.results == 201:
                    self.results.append(body)
                return self.choices.results, {"error": "no such table"} if self.choices.results > 299 else {}
            case "GET", ["database", "runtime-data"]:
                return self._listed("records", self.results, "/database/runtime-data", offset)
        return 404, {"error": "not found"}

    def _row(self, reading: dict[str, Any]) -> dict[str, Any]:
        values = reading["sensor_data"]
        row = values if self.choices.flat else {"sensor_data": values}
        return row if self.choices.nameless else {"device_id": reading["device_id"], **row}

    def _written(self, word: str, record: dict[str, Any]) -> tuple[int, Any]:
        if self.choices.text:
            return 200, "OK"
        return 201, {"success": True, word: record} if self.choices.wrapped else record

    def _listed(self, word: str, items: list[Any], path: str, offset: int) -> tuple[int, Any]:
        page = self.choices.page
        if page is None:
            return 200, items
        more = offset + page < len(items)
        following = f"{self.base_url}{path}?from_item={offset + page}" if more else None
        return 200, {word: items[offset : offset + page], "next": following}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    plain: Plain

    def log_message(self, *_: object) -> None:
        pass

    def _go(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        status, value = self.plain.answer(self.command, self.path, self.headers, json.loads(raw) if raw else None)
        text = value if isinstance(value, str) else json.dumps(value)
        self.send_response(status)
        self.send_header("Content-Type", "text/plain" if isinstance(value, str) else "application/json")
        self.send_header("Content-Length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())
        self.wfile.flush()

    do_GET = do_POST = do_PUT = do_DELETE = _go


@contextmanager
def plain_server(choices: Choices | None = None) -> Iterator[Plain]:
    """A server for the length of the block."""
    plain = Plain(choices or Choices())
    handler = type("Handler", (_Handler,), {"plain": plain})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        plain.base_url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield plain
        finally:
            server.shutdown()
            thread.join()
