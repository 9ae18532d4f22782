"""A service for onboarding in memory, with faults on demand, and the same behind a socket with quirks on demand.

What stays here the local service cannot be: one that breaks its promises (a device made twice, a race with a window, an
answer that is changed after the request was carried out), and one within virtual time.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

from agent.errors import Conflict, InvalidQr, NotFound, RateLimited, Refused, ServerFault, TransportError
from agent.wire.models import Device
from simulator.wire.models import ScanAnswer
from simulator.wire.qr import parse_label

FAULTS = ("none", "refused", "lost", "500", "500 after", "429")
"""Of one request: no answer with nothing done, done without an answer, and what the status says, before or after."""


class MemoryService:
    """The onboarding group as docs/service.md says; thread-safe.

    Args:
        products: that there are.
        faults: what the next requests meet, one after the other.
        careless: make another device for every registration.
    """

    def __init__(self, products=("p-1",), faults: Iterable[str] = (), *, careless: bool = False):
        self._careless = careless
        self.products = set(products)
        self.devices: dict[str, Device] = {}
        self.users: set[str] = set()
        self.registered = 0
        self._faults = iter(faults)
        self._count = 0
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def _one_request(self):
        with self._lock:
            fault = next(self._faults, "none")
            if fault == "429":
                raise RateLimited(429, "rate_limit_exceeded", retry_after_s=1.0)
            if fault in {"refused", "500"}:
                raise TransportError("refused") if fault == "refused" else ServerFault(500, "internal_error")
            yield
            if fault == "lost":
                raise TransportError("the answer was lost")
            if fault == "500 after":
                raise ServerFault(500, "internal_error")

    def _find(self, product_id, identifier):
        found = ((one.product_id, one.device_identifier, one) for one in self.devices.values())
        return next((one for product, name, one in found if (product, name) == (product_id, identifier)), None)

    def scan_qr(self, text):
        with self._one_request():
            try:
                label = parse_label(text)
            except InvalidQr as problem:
                raise Refused(400, "invalid_qr", str(problem)) from None
            if label.product_id not in self.products:
                raise NotFound(404, "product_not_found")
            return ScanAnswer.receive(
                {
                    "product": {"product_id": label.product_id, "name": "Thermo"},
                    "device_identifier": label.device_identifier,
                    "qr_info": {"v": 1},
                    "already_registered": self._find(label.product_id, label.device_identifier) is not None,
                }
            )

    def register_device(self, registration):
        with self._one_request():
            if registration.product_id not in self.products:
                raise NotFound(404, "product_not_found")
            found = None if self._careless else self._find(registration.product_id, registration.device_identifier)
            if found is not None and found.user_id != registration.user_id:
                raise Conflict(409, "device_already_registered")
            if found is not None:
                return found
            self._count += 1
            self.registered += 1
            self.users.add(registration.user_id)
            device = Device.receive({"device_id": f"d-{self._count}", **registration.to_wire()})
            self.devices[device.device_id] = device
            return device

    def user_devices(self, user_id):
        with self._one_request():
            if user_id not in self.users:
                raise NotFound(404, "user_not_found")
            return [device for device in self.devices.values() if device.user_id == user_id]

    def remove_device(self, device_id):
        with self._one_request():
            if self.devices.pop(device_id, None) is None:
                raise NotFound(404, "device_not_found")


class Page(bytes):
    """A body of type text/html, which may be empty."""


class Raw(bytes):
    """A body of type JSON, as these bytes."""


Answered = tuple[int, Any]
Quirk = Callable[[str, str, Any, Answered], Answered]
"""Method, path, body and the right answer in; what is answered instead out."""


class FakeServer(ThreadingHTTPServer):
    """A plain server over a socket: products and the onboarding group, bare arrays, no extension.

    Args:
        quirk: changes answers.
    """

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, quirk: Quirk | None = None):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.memory = MemoryService(())
        self.quirk = quirk

    @property
    def base_url(self):
        return f"http://127.0.0.1:{self.server_address[1]}"

    def answer(self, method, path, body) -> Answered:
        try:
            right = self._right(method, path.partition("?")[0], body)
        except (Conflict, NotFound, Refused) as error:
            right = error.status, {"error": error.error, "message": str(error)}
        return right if self.quirk is None else self.quirk(method, path, body, right)

    def _right(self, method, path, body) -> Answered:
        parts = [unquote(part) for part in path.strip("/").split("/")]
        memory = self.memory
        match method, parts:
            case "POST", ["products"]:
                product_id = f"p-{len(memory.products) + 1}"
                memory.products.add(product_id)
                return 201, {"product_id": product_id, "name": body["name"]}
            case "PUT", ["products", product_id]:
                return 200, {"product_id": product_id}
            case "DELETE", ["products", product_id]:
                memory.products.discard(product_id)
                return 204, None
            case "GET", ["products"]:
                return 200, [{"product_id": product_id, "name": "x"} for product_id in sorted(memory.products)]
            case "POST", ["onboarding", "scan-qr"]:
                return 200, memory.scan_qr(body["qr_data"]).model_dump(mode="json", exclude_none=True)
            case "POST", ["onboarding", "device"]:
                before = memory.registered
                device = memory.register_device(_Registration(body))
                return 201 if memory.registered > before else 200, device.model_dump(mode="json", exclude_none=True)
            case "GET", ["onboarding", "user", user_id, "devices"]:
                return 200, [one.model_dump(mode="json", exclude_none=True) for one in memory.user_devices(user_id)]
            case "DELETE", ["onboarding", "device", device_id]:
                memory.remove_device(device_id)
                return 204, None
        return 404, {"error": "not_found", "message": "no such path"}


class _Registration:
    def __init__(self, body):
        self._body = body
        self.user_id, self.product_id = body["user_id"], body["product_id"]
        self.device_identifier = body["device_identifier"]

    def to_wire(self):
        return self._body


class _Handler(BaseHTTPRequestHandler):
    server: FakeServer
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def log_message(self, *_):
        pass

    def _go(self):
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"null")
        status, value = self.server.answer(self.command, self.path, body)
        is_page = isinstance(value, Page)
        raw = value if isinstance(value, bytes) else b"" if value is None else json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/html; charset=utf-8" if is_page else "application/json")
        if status != 204:
            self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)
        self.wfile.flush()

    do_GET = do_POST = do_PUT = do_DELETE = _go


@contextlib.contextmanager
def fake_server(quirk: Quirk | None = None) -> Iterator[FakeServer]:
    """A server for the length of the block."""
    with FakeServer(quirk) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


class Clock:
    """Time that only sleeping moves; thread-safe enough for what counts here."""

    def __init__(self):
        self.now = 1_000.0

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds
