"""A server of the specification alone, with other choices than ours: bare arrays, own ids, no extension, no discovery.

It refuses every header and member that the specification does not name, and query parameters but filters, and keeps a
list of them.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

_MEMBERS = {
    "/sensor-data": {"device_id", "sensor_data"},
    "/commands/send": {"device_id", "command_payload"},
    "/database/runtime-data": {"product_id", "device_id", "table_name", "data_payload"},
    "/onboarding/device": {"user_id", "product_id", "device_name", "device_identifier", "qr_info"},
}


_FILTERS = {"product_id", "device_id", "table_name", "order", "limit"}

Answered = tuple[int, Any, dict[str, str]]


@dataclass(frozen=True)
class Choices:
    """What the specification leaves open.

    Attributes:
        list_shape: where the items of a list are: ``array`` (the body), or the member ``items``, ``data``, ``results``
            or ``named`` (``commands``, ``readings``).
        paging: how a list of pages goes on: ``next`` (a link in the body), ``cursor``, ``link`` (the header) or
            ``offset`` (with the total).
        id_name: the member that holds a command's id.
        id_type: ``string`` or ``number``.
        status_words: a command's status: ``none``, ``spec`` or ``own`` words; it never changes.
        command_list: what the list of commands has: ``everything`` for ever, or each command ``once``.
        time_format: when a command was made: ``none``, ``rfc3339``, ``epoch``, ``epoch_ms`` or ``http``.
        results: status of the table of results.
        results_kept: what the table has of a result: ``all`` of it, ``none``, ``altered``, or ``unlisted``: nobody may
            read the table.
        error_shape: body of an error: ``json``, ``text`` or ``html``.
        text: writing requests are answered with the text OK.
        wrapped: writing requests are answered with the record inside ``{"success": true, ...}``.
        page: items of a page; None gives everything at once.
        flat: stored readings come back without ``sensor_data`` around them.
        nameless: stored readings come back without their device.
        device_filter: the parameter without which no readings are listed; empty lists those of all devices.
        refuses: readings are answered with 400.
        deaf: commands are taken, and listed to nobody.
        mute: lists of commands are answered with 500.
        date_off_s: how far the header ``Date`` is ahead, seconds.
    """

    list_shape: str = "array"
    paging: str = "next"
    id_name: str = "_id"
    id_type: str = "string"
    status_words: str = "none"
    command_list: str = "everything"
    time_format: str = "none"
    results: int = 201
    results_kept: str = "all"
    error_shape: str = "json"
    text: bool = False
    wrapped: bool = False
    page: int | None = None
    flat: bool = False
    nameless: bool = False
    device_filter: str = ""
    refuses: bool = False
    deaf: bool = False
    mute: bool = False
    date_off_s: float = 0.0


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
    polls: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, method: str, target: str, headers: Any, body: Any) -> Answered:
        """Status, value and headers; a text goes out as text."""
        parts = urlsplit(target)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        offset = int(query.pop("from_item", None) or query.pop("cursor", None) or query.pop("offset", None) or 0)
        of_device = query.pop(self.choices.device_filter, None)
        if self.choices.device_filter and (method, parts.path) == ("GET", "/sensor-data") and of_device is None:
            return 400, {"error": f"{self.choices.device_filter} is missing"}, {}
        if method == "GET":  # which filters there are is left open: all others are ignored
            query = {name: value for name, value in query.items() if name not in _FILTERS}
        extra = [*query, *(name for name in headers if name.lower() in {"idempotency-key", "prefer"})]
        if isinstance(body, dict) and parts.path in _MEMBERS:
            extra += body.keys() - _MEMBERS[parts.path]
        elif isinstance(body, list):
            extra.append("an array")
        with self.lock:
            if extra:
                self.beyond += [f"{method} {parts.path} {name}" for name in extra]
                return 400, {"error": "unknown", "message": ", ".join(extra)}, {}
            path = [unquote(part) for part in parts.path.strip("/").split("/")]
            return self._act(method, path, body, offset, of_device)

    def _act(self, method: str, path: list[str], body: Any, offset: int, of_device: str | None) -> Answered:
        match method, path:
            case "GET", ["products"]:
                return 200, self.products, {}
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
                ours.append(self._command(body["command_payload"]))
                return self._written("data", ours[-1])
            case "GET", ["devices", device_id, "commands"]:
                self.polls += 1
                if self.choices.mute:
                    return 500, {"error": "broken"}, {}
                ours = [] if self.choices.deaf else list(self.commands.get(device_id, []))
                if self.choices.command_list == "once" and ours:
                    self.commands[device_id] = []
                return self._listed("commands", ours, f"/devices/{device_id}/commands", offset)
            case "POST", ["sensor-data"]:
                if self.choices.refuses:
                    return 400, {"error": "invalid"}, {}
                self.readings.append(body)
                return self._written("data", {"stored": True})
            case "GET", ["sensor-data"]:
                rows = [self._row(row) for row in self.readings if of_device in {None, row["device_id"]}]
                return self._listed("readings", rows, "/sensor-data", offset)
            case "POST", ["database", "runtime-data"]:
                if self.choices.results == 201 and self.choices.results_kept != "none":
                    if self.choices.results_kept == "altered":
                        body["data_payload"] |= {"result": {"pong": "another"}}
                    self.results.append(body)
                return self.choices.results, {"error": "no such table"} if self.choices.results > 299 else {}, {}
            case "GET", ["database", "runtime-data"] if self.choices.results_kept != "unlisted":
                return self._listed("records", self.results, "/database/runtime-data", offset)
        return 404, {"error": "not found"}, {}

    def _command(self, payload: Any) -> dict[str, Any]:
        choices, now_s = self.choices, time.time()
        times = {
            "rfc3339": datetime.fromtimestamp(now_s, UTC).isoformat(),
            "epoch": now_s,
            "epoch_ms": int(now_s * 1000),
            "http": formatdate(now_s, usegmt=True),
        }
        words = {"spec": "queued", "own": "PENDING"}
        members = {"created_at": times.get(choices.time_format), "status": words.get(choices.status_words)}
        command_id = self.sent if choices.id_type == "number" else f"own-{self.sent}"
        return {choices.id_name: command_id, "payload": payload} | {k: v for k, v in members.items() if v is not None}

    def _row(self, reading: dict[str, Any]) -> dict[str, Any]:
        values = reading["sensor_data"]
        row = values if self.choices.flat else {"sensor_data": values}
        return row if self.choices.nameless else {"device_id": reading["device_id"], **row}

    def _written(self, word: str, record: dict[str, Any]) -> Answered:
        if self.choices.text:
            return 200, "OK", {}
        return 201, {"success": True, word: record} if self.choices.wrapped else record, {}

    def _listed(self, word: str, items: list[Any], path: str, offset: int) -> Answered:
        choices = self.choices
        stop = len(items) if choices.page is None else offset + choices.page
        more, part = stop < len(items), items[offset:stop]
        following = f"{self.base_url}{path}?from_item={stop}"
        members: dict[str, Any] = {}
        headers: dict[str, str] = {}
        if choices.page is not None and choices.paging == "link":
            headers = {"Link": f'<{following}>; rel="next"'} if more else {}
        elif choices.page is not None:
            members = {
                "next": {"next": following if more else None},
                "cursor": {"next_cursor": str(stop) if more else None, "has_more": more},
                "offset": {"offset": offset, "limit": choices.page, "total": len(items)},
            }[choices.paging]
        if choices.list_shape == "array" and not members:
            return 200, part, headers
        name = word if choices.list_shape in {"array", "named"} else choices.list_shape
        return 200, {name: part, **members}, headers


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    plain: Plain

    def log_message(self, *_: object) -> None:
        pass

    def date_time_string(self, timestamp: float | None = None) -> str:
        return super().date_time_string((timestamp or time.time()) + self.plain.choices.date_off_s)

    def _go(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = json.loads(raw) if raw else None
        status, value, headers = self.plain.answer(self.command, self.path, self.headers, body)
        shape = self.plain.choices.error_shape if status > 299 else "text" if isinstance(value, str) else "json"
        text = {"json": json.dumps(value), "text": str(value), "html": f"<html><p>{value}</p></html>"}[shape]
        self.send_response(status)
        for name, header in headers.items():
            self.send_header(name, header)
        self.send_header("Content-Type", {"json": "application/json", "text": "text/plain", "html": "text/html"}[shape])
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
