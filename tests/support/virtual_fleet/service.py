"""The service, and the gateway behind a broker, in memory: what they are sent is kept, with its time."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from email.utils import formatdate
from typing import Any
from urllib.parse import parse_qs, urlsplit

from agent.wire import topics
from agent.wire.encoding import to_rfc3339
from agent.wire.server import BATCH_SENSOR_DATA, LONG_POLL
from agent.wire.topics import Receipt, Refusal, encode
from tests.support.virtual_fleet.virtual_time import Time
from tests.unit.simulator.fleet.device.fleet_fakes import Request

_ID = re.compile(r"(?<=/user/)[^/]+|(?<=/devices/)[^/]+|(?<=/device/)[^/]+|(?<=/commands/)[^/]+(?=/result)")
Reply = Callable[[int, Any], None]
"""Status, and the body as a JSON value or None."""
BEFORE_S = -1.0
"""The time of what is sent while the run is prepared."""
NEVER = (0, None)
"""An answer that never comes; over MQTT the gateway's receipt."""
UNREACHABLE = (-1, None)
"""Over HTTP: there is no connection, and nothing goes out."""
NOBODY = "nobody"
"""Over MQTT: the broker acknowledges, and says that no gateway listens."""
CUT, CUT_LATE = "cut", "cut late"
"""Over MQTT: the connection breaks before the message arrives; once the broker and the gateway have it."""
FINAL = frozenset({"succeeded", "failed", "rejected", "expired", "cancelled", "indeterminate"})


@dataclass(frozen=True)
class Sent:
    """One request, or one message, as it came.

    Attributes:
        at_s: since the run's begin; ``BEFORE_S`` while it is prepared.
        device: its index in the fleet; 0 also for requests that belong to none.
        operation: ``POST /sensor-data``, with ids left out; of MQTT the last level of the topic.
        target: path and query, or the topic.
    """

    at_s: float
    device: int
    operation: str
    target: str
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def readings(self) -> list[dict[str, Any]]:
        """The readings in it; none of what is no JSON."""
        try:
            found = json.loads(self.body)
        except ValueError:
            return []
        return found if isinstance(found, list) else [found]


@dataclass
class Service:
    """Takes everything. ``refuses`` may answer a request instead of it."""

    clock: Time
    offers: frozenset[str]
    answers: Callable[[Sent], Any] = lambda _sent: None
    began_s: float = float("inf")
    sent: list[Sent] = field(default_factory=list)
    devices: dict[str, dict[str, Any]] = field(default_factory=dict)
    products: list[dict[str, Any]] = field(default_factory=list)
    stored: list[dict[str, Any]] = field(default_factory=list)
    commands: dict[str, dict[str, Any]] = field(default_factory=dict)
    results: list[Any] = field(default_factory=list)
    replays: dict[str, tuple[bytes, tuple[int, Any]]] = field(default_factory=dict)
    held: dict[str, list[Reply]] = field(default_factory=lambda: defaultdict(list))
    deliver: Callable[[str, dict[str, Any]], None] = lambda _device_id, _record: None

    def take(self, request: Request, reply: Reply) -> float:
        """Answer a request by ``reply``, once.

        Returns:
            After how long a held poll is to be answered by :meth:`release`; 0 when it is answered.
        """
        parts = urlsplit(request.target)
        steps = parts.path.strip("/").split("/")
        at_s = self.clock.now_s - self.began_s if self.began_s < float("inf") else BEFORE_S
        operation = f"{request.method} {_ID.sub('*', parts.path)}"
        sent = Sent(at_s, request.device, operation, request.target, dict(request.headers), request.body)
        self.sent.append(sent)
        special = self.answers(sent)
        if special == NEVER:
            return 0.0
        if special is not None:
            reply(*special)
            return 0.0
        query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        if operation == "GET /devices/*/commands":
            return self._poll(steps[1], query, reply)
        key = request.headers.get("idempotency-key", "")
        body, answer = self.replays.get(key) or (request.body, self._answer(operation, steps, query, request.body))
        assert body == request.body, "the same idempotency key with another body"
        if key:
            self.replays[key] = body, answer
        reply(*answer)
        return 0.0

    def release(self, device_id: str, reply: Reply) -> None:
        """The wait of a held poll is over."""
        if reply in self.held[device_id]:
            self.held[device_id].remove(reply)
            reply(200, page(self.open(device_id)))

    def open(self, device_id: str) -> list[dict[str, Any]]:
        """The commands that a device is to carry out, which are delivered by that."""
        now = to_rfc3339(self.clock.time())
        mine = [each for each in self.commands.values() if each["device_id"] == device_id]
        for each in mine:
            if each["status"] == "queued":
                each["status"] = "delivered" if each.get("expires_at", "9") > now else "expired"
        return [each for each in mine if each["status"] not in FINAL]

    def date(self) -> str:
        return formatdate(self.clock.time(), usegmt=True)

    def _poll(self, device_id: str, query: dict[str, str], reply: Reply) -> float:
        if "limit" in query or "cursor" in query:
            reply(200, page([each for each in self.commands.values() if each["device_id"] == device_id]))
            return 0.0
        found = self.open(device_id)
        wait_s = float(query.get("wait", 0)) if LONG_POLL in self.offers else 0.0
        if found or not wait_s:
            reply(200, page(found))
            return 0.0
        self.held[device_id].append(reply)
        return wait_s

    def _answer(self, operation: str, steps: list[str], query: dict[str, str], body: bytes) -> tuple[int, Any]:
        try:
            value = json.loads(body.decode(errors="replace"), parse_constant=_refuse) if body else None
        except ValueError:
            return 400, {"error": "malformed_json", "message": "no JSON"}
        if operation.startswith("GET "):
            return 200, page(self._list(operation, steps, query))
        answers: dict[str, Callable[[], tuple[int, Any]]] = {
            "POST /products": lambda: self._make_product(value),
            "POST /onboarding/scan-qr": lambda: self._scan(value["qr_data"]),
            "POST /onboarding/device": lambda: self._register(value),
            "DELETE /onboarding/device/*": lambda: self._remove(steps[2]),
            "POST /sensor-data": lambda: self._store(value),
            "POST /commands/send": lambda: self._order(value),
            "POST /devices/*/commands/*/result": lambda: self._report(steps[3], value),
            "POST /database/runtime-data": lambda: self._row(value),
        }
        return answers[operation]()

    def _list(self, operation: str, steps: list[str], query: dict[str, str]) -> list[dict[str, Any]]:
        if operation == "GET /products":
            return self.products
        if operation == "GET /sensor-data":
            return [each for each in self.stored if query.get("device_id") in {None, each["device_id"]}]
        user = steps[steps.index("user") + 1] if "user" in steps else None
        return [each for each in self.devices.values() if user in {None, each["user_id"]}]

    def _make_product(self, value: dict[str, Any]) -> tuple[int, Any]:
        self.products.append({**value, "product_id": f"product-{len(self.products)}"})
        return 201, self.products[-1]

    def _scan(self, text: str) -> tuple[int, Any]:
        label = json.loads(text) if text.startswith("{") else {}
        return 200, {"product": self.products[0], "device_identifier": label.get("device_identifier"), **label}

    def _remove(self, device_id: str) -> tuple[int, Any]:
        gone = self.devices.pop(device_id, None)
        return (404, {"error": "not_found"}) if gone is None else (204, None)

    def _report(self, command_id: str, value: dict[str, Any]) -> tuple[int, Any]:
        if self.commands[command_id]["status"] in FINAL:
            return 409, {"error": "command_finished"}
        self.commands[command_id].update(value)
        self.results.append(value)
        return 200, self.commands[command_id]

    def _row(self, value: dict[str, Any]) -> tuple[int, Any]:
        self.results.append(value)
        return 201, {**value, "record_id": f"record-{len(self.results)}"}

    def _register(self, value: dict[str, Any]) -> tuple[int, Any]:
        for record in self.devices.values():
            if record["device_identifier"] == value["device_identifier"]:
                return (200, record) if record["user_id"] == value["user_id"] else (409, {"error": "taken"})
        device_id = f"device-{len(self.devices):04d}"
        self.devices[device_id] = {**value, "device_id": device_id}
        return 201, self.devices[device_id]

    def _store(self, value: Any) -> tuple[int, Any]:
        readings = value if isinstance(value, list) else [value]
        if any(not isinstance(number, int | float) for each in readings for number in each["sensor_data"].values()):
            return 400, {"error": "validation_error", "message": "a reading is no number"}
        now = to_rfc3339(self.clock.time())
        for each in readings:
            self.stored.append({"recorded_at": now, "received_at": now, **each, "id": f"row-{len(self.stored)}"})
        batch = isinstance(value, list) and BATCH_SENSOR_DATA in self.offers
        return (200, {"accepted": len(readings), "errors": []}) if batch else (201, self.stored[-1])

    def _order(self, value: dict[str, Any]) -> tuple[int, Any]:
        command_id = f"command-{len(self.commands):04d}"
        now_s = self.clock.time()
        record = {"id": command_id, "device_id": value["device_id"], "command_payload": value["command_payload"]}
        record |= {"status": "queued", "created_at": to_rfc3339(now_s)}
        if "ttl_seconds" in value:
            record["expires_at"] = to_rfc3339(now_s + value["ttl_seconds"])
        self.commands[command_id] = record
        waiting, self.held[value["device_id"]] = self.held[value["device_id"]], []
        for reply in waiting:
            reply(200, page(self.open(value["device_id"])))
        self.deliver(value["device_id"], record)
        return 202, record

    def message(self, device: int, topic: str, payload: bytes) -> tuple[Any, bytes | None]:
        """A message of a device at the gateway: what the broker does, and the receipt where there is one."""
        kind = topic.rsplit("/", 1)[-1]
        sent = Sent(self.clock.now_s - self.began_s, device, kind, topic, {}, payload)
        self.sent.append(sent)
        trouble = self.answers(sent)
        receipt = None if trouble in {NEVER, NOBODY, CUT} else self._receipt(kind, topic, payload)
        return trouble, receipt

    def _receipt(self, kind: str, topic: str, payload: bytes) -> bytes | None:
        if kind == "status":
            return None
        try:
            value = json.loads(payload, parse_constant=_refuse)
        except ValueError:
            return encode(Receipt(refused=(Refusal(key=None, error="malformed_json", message="no JSON"),)))
        if kind == "result":
            self.commands[topics.parse(topic).command_id or ""].update({"status": value["status"]})
            self.results.append(value)
            return encode(Receipt(stored=(value["key"],))) if "key" in value else None
        readings = value if isinstance(value, list) else [value]
        device_id = topics.parse(topic).device_id
        known = {each.get("key") for each in self.stored}
        new = [each for each in readings if each["key"] not in known]
        self.stored += [{**each, "device_id": device_id, "received_at": self.date()} for each in new]
        return encode(Receipt(stored=tuple(each["key"] for each in readings)))


def page(items: list[Any]) -> dict[str, Any]:
    """A list as the local service answers it."""
    return {"data": items, "next_cursor": None, "has_more": False}


def _refuse(word: str) -> None:
    raise ValueError(word)
