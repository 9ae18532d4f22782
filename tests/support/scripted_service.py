"""A service in memory for tests of the gateway: what it stores, what it was asked, and how it fails when told to."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from agent.config.credentials import Credentials
from agent.runtime.clocks import ServiceClock, SystemClock
from agent.wire.secret import Secret
from agent.wire.server import ALL_EXTENSIONS, COMMAND_EVENTS
from gateway.commands import Commands
from gateway.config import GatewayConfig
from gateway.http import HttpApp
from gateway.quota import Quota
from gateway.readings import Uplink
from gateway.service import Service
from gateway.tokens import FILE_NAME, Tokens, make_token

Answer = tuple[int, Any] | httpx.Response


class ScriptedService:
    """Answers as the service of the contract does, as far as a gateway asks.

    Attributes:
        extensions: what it announces; None answers 404, as a plain server.
        readings: bodies that were stored, in order.
        results: (device id, command id) -> bodies that were taken.
        commands: device id -> records.
        devices: the ids that it knows.
        requests: (method, path) of each request.
        headers: of the last request on each path.
        reading_keys: those of readings in arrays that were stored.
        script: asked first; what it returns is the answer, None goes on.
    """

    def __init__(self, *extensions: str) -> None:
        self.extensions: tuple[str, ...] | None = extensions or tuple(ALL_EXTENSIONS - {COMMAND_EVENTS})
        self.readings: list[dict[str, Any]] = []
        self.results: dict[tuple[str, str], list[dict[str, Any]]] = {}
        self.commands: dict[str, list[dict[str, Any]]] = {}
        self.devices = {"d1", "d2", "a b:ü"}
        self.registered: dict[str, str] = {}
        self.records: list[dict[str, Any]] = []
        self.requests: list[tuple[str, str]] = []
        self.headers: dict[str, httpx.Headers] = {}
        self.script: Callable[[httpx.Request], Answer | None] = lambda _request: None
        self.delay_s = 0.0
        self.reading_keys: set[str] = set()
        self._answered: dict[str, tuple[bytes, Answer]] = {}

    def send(self, device_id: str, command_id: str, **members: Any) -> None:
        """Send a command."""
        record = {"id": command_id, "device_id": device_id, "command_payload": {"command": "ping"}, "status": "queued"}
        self.commands.setdefault(device_id, []).append(record | members)

    def count(self, method: str, path: str) -> int:
        """How often this was asked."""
        return Counter(self.requests)[method, path]

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        """For ``httpx.MockTransport``."""
        path = request.url.path
        self.requests.append((request.method, path))
        self.headers[path] = request.headers
        if self.delay_s:
            await asyncio.sleep(self.delay_s)
        answer = self.script(request) or self._once(request)
        if isinstance(answer, httpx.Response):
            return answer
        return httpx.Response(answer[0], json=answer[1])

    def _once(self, request: httpx.Request) -> Answer:
        key = request.headers.get("idempotency-key")
        if key is None:
            return self._answer(request)
        body, answer = self._answered.get(key, (request.content, None))
        if body != request.content:
            return 422, {"error": "idempotency_key_reused", "message": "another body"}
        if answer is None:
            answer = self._answer(request)
            self._answered[key] = (body, answer)
        return answer

    def _answer(self, request: httpx.Request) -> Answer:
        parts = request.url.path.strip("/").split("/")
        body = json.loads(request.content or b"null")
        match request.method, parts:
            case "GET", [".well-known", "device-service"]:
                known = self.extensions is not None
                return (200, {"extensions": self.extensions}) if known else (404, {"error": "not_found"})
            case "GET", ["devices"]:
                return 200, [{"device_id": each, "product_id": "p1"} for each in sorted(self.devices)]
            case "GET", ["devices", device_id, "commands"]:
                return self._list(device_id, request.url.params.get("status"))
            case "POST", ["devices", device_id, "commands", *command, "result"]:
                return self._take_result(device_id, "/".join(command), body)
            case "POST", ["sensor-data"]:
                return self._take_array(body) if isinstance(body, list) else self._take_reading(body)
            case "POST", ["database", "runtime-data"]:
                self.records.append(body)
                return 201, {"id": "r1"}
            case "POST", ["onboarding", "device"]:
                name = self.registered.setdefault(body["device_identifier"], f"new-{len(self.registered) + 1}")
                self.devices.add(name)
                return 201, {"device_id": name, **body}
        return 404, {"error": "not_found", "message": "no such path"}

    def _list(self, device_id: str, status: str | None) -> Answer:
        if device_id not in self.devices:
            return 404, {"error": "device_not_found", "message": "no such device"}
        records = self.commands.get(device_id, [])
        if status == "open":
            records = [each for each in records if each["status"] in {"queued", "delivered", "in_progress"}]
        elif status is not None:
            records = [each for each in records if each["status"] == status]
        return 200, {"data": records, "next_cursor": None, "has_more": False}

    def _take_result(self, device_id: str, command_id: str, body: dict[str, Any]) -> Answer:
        found = [each for each in self.commands.get(device_id, []) if each["id"] == command_id]
        if not found:
            return 404, {"error": "command_not_found", "message": "no such command"}
        self.results.setdefault((device_id, command_id), []).append(body)
        found[0]["status"] = body["status"]
        return 200, found[0]

    def _take_reading(self, body: dict[str, Any]) -> Answer:
        if body["device_id"] not in self.devices:
            return 404, {"error": "device_not_found", "message": "no such device"}
        if "bad" in body["sensor_data"]:
            return 400, {"error": "validation_error", "message": "sensor_data.bad: not this one"}
        self.readings.append(body)
        return 201, body

    def _take_array(self, bodies: list[dict[str, Any]]) -> Answer:
        errors = []
        for index, body in enumerate(bodies):
            key = body.pop("idempotency_key", None)
            if key is not None and key in self.reading_keys:
                continue
            answer = self._take_reading(body)
            if key is not None and isinstance(answer, tuple) and answer[0] == 201:
                self.reading_keys.add(key)
            if isinstance(answer, tuple) and answer[0] != 201:
                errors.append({"index": index, **answer[1]})
        return 200, {"accepted": len(bodies) - len(errors), "errors": errors}


class GatewayBench:
    """The gateway's parts around a scripted service, in the event loop of the test; tokens of ``d1`` and ``d2``."""

    def __init__(self, folder: Path, service: ScriptedService, dialect: dict[str, Any], sections: Any) -> None:
        where = {"base_url": "http://127.0.0.1:1", "dialect": dialect}
        values = {"service": where, "state_dir": str(folder), **sections}
        self.config = config = GatewayConfig.model_validate(values)
        self.folder = folder
        self.scripted = service
        self.tokens = Tokens(folder / FILE_NAME)
        self.token = {device_id: self.issue(device_id) for device_id in ("d1", "d2")}
        self.quota = Quota(config.requests_per_minute, time.monotonic)
        self.service = Service(
            config.service,
            Credentials("mk_1", Secret("msk_1")),
            self.quota,
            ServiceClock(SystemClock(), trust_wall=True),
            transport=httpx.MockTransport(service),
        )
        self.uplink = Uplink(self.service)
        self.commands = Commands(self.service, self.tokens, config.commands.poll_s, config.commands.reconcile_s)
        self.app = HttpApp(config.http, self.service, self.uplink, self.commands, self.tokens)

    def issue(self, device_id: str) -> str:
        """A new token for a device."""
        new = make_token()
        self.tokens.issue({device_id: new})
        return new.reveal()

    def client(self, token: str | None = None) -> httpx.AsyncClient:
        """A device, with this token or none."""
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        transport = httpx.ASGITransport(self.app, client=("192.0.2.1", 1))
        return httpx.AsyncClient(transport=transport, base_url="http://gateway", headers=headers, timeout=60)


async def _end_revoked_polls(bench: GatewayBench) -> None:
    while True:
        bench.app.end_revoked_polls()
        await asyncio.sleep(0.1)


@asynccontextmanager
async def running_gateway(
    folder: Path, service: ScriptedService, dialect: dict[str, Any] | None = None, **sections: Any
) -> AsyncIterator[GatewayBench]:
    """The parts, with those tasks that the process would have."""
    bench = GatewayBench(folder, service, dialect or {}, sections)
    tasks = [
        asyncio.ensure_future(each)
        for each in (
            *([] if bench.service.offered is not None else [bench.service.keep_known()]),
            bench.commands.poll(),
            bench.commands.stream(),
            _end_revoked_polls(bench),
        )
    ]
    while bench.service.offered is None and not bench.service.is_away:  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    try:
        yield bench
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await bench.service.close()
        bench.tokens.close()
