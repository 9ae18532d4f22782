"""One suite for every command source: the fake that unit tests use, HTTP and MQTT, on scripted and on real peers."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from agent.core.values import Command, CommandPoll
from agent.ports import CommandSource
from agent.transports.http import Discovery, HttpDevice
from agent.wire.secret import KeyPair, Secret
from simulator.wire.client import ServiceClient
from tests.api.mqtt_device_running import RunningDevice
from tests.support import service_running
from tests.support.fakes import FakeClock, FakeCommandSource
from tests.support.gateway_stand_in import GatewayStandIn
from tests.support.mosquitto import Mosquitto

SOON_S = 60.0
RECORDS = [
    {"id": "c2", "device_id": "d1", "command_payload": {"command": "b"}, "created_at": "2026-01-01T00:00:02Z"},
    {"id": "c1", "device_id": "d1", "command_payload": {"command": "a"}, "created_at": "2026-01-01T00:00:01Z"},
]


@dataclass
class Answer:
    status: int = 200
    body: bytes | Any = b""
    headers: dict[str, str] = field(default_factory=dict)
    hold: threading.Event | None = None


class ScriptedServer:
    """Answers requests by a function of method, path and headers; keeps what was asked."""

    def __init__(
        self, script: Callable[[str, str, dict[str, str]], Answer], *, tls: ssl.SSLContext | None = None
    ) -> None:
        self.asked: list[tuple[str, str, dict[str, str]]] = []
        self.bodies: list[Any] = []
        self.peers: set[Any] = set()
        self.arrived = threading.Event()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                headers = {name.lower(): value for name, value in self.headers.items()}
                server.asked.append((self.command, self.path, headers))
                server.peers.add(self.client_address)
                server.bodies.append(json.loads(body) if body else None)
                answer = script(self.command, self.path, headers)
                server.arrived.set()
                if answer.hold is not None:
                    answer.hold.wait(SOON_S)
                raw = answer.body if isinstance(answer.body, bytes) else json.dumps(answer.body).encode()
                try:
                    self.send_response(answer.status)
                    for name, value in {"Content-Type": "application/json", **answer.headers}.items():
                        self.send_header(name, value)
                    self.send_header("Content-Length", str(len(raw)))
                    self.end_headers()
                    self.wfile.write(raw)
                except OSError:
                    self.close_connection = True

            do_GET = do_POST = answer

            def log_message(self, *arguments: Any) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        if tls is not None:
            self._http.socket = tls.wrap_socket(self._http.socket, server_side=True)
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()
        self.base_url = f"{'https' if tls else 'http'}://127.0.0.1:{self._http.server_address[1]}"

    def stop(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join(SOON_S)


@pytest.fixture
def serve() -> Iterator[Callable[..., tuple[ScriptedServer, ServiceClient]]]:
    made: list[tuple[ScriptedServer, ServiceClient]] = []

    def start(script: Callable[[str, str, dict[str, str]], Answer], **options: Any):
        server = ScriptedServer(script)
        client = ServiceClient(server.base_url, KeyPair("mk_1", Secret("msk_1")), **{"timeout_s": SOON_S, **options})
        made.append((server, client))
        return server, client

    yield start
    for server, client in made:
        client.close()
        server.stop()


def listing(records: list[dict[str, Any]], extensions: list[str] | None = None, **headers: str):
    def script(method: str, path: str, asked: dict[str, str]) -> Answer:
        if path.startswith("/.well-known"):
            return Answer(404) if extensions is None else Answer(body={"extensions": extensions})
        if headers.get("ETag") and asked.get("if-none-match") == headers["ETag"]:
            return Answer(304, b"", headers)
        return Answer(body={"data": records, "next_cursor": None, "has_more": False}, headers=headers)

    return script


def make_source(client: ServiceClient, *, long_poll: bool = True) -> HttpDevice:
    return HttpDevice(client, "d1", Discovery(client, FakeClock()), may_hold=long_poll)


@pytest.mark.parametrize("by", ["cursor", "link"])
def test_pages_without_end_are_read_as_far_as_commands_are_looked_at(serve, by):
    pages: list[str] = []

    def script(_method: str, path: str, _headers: dict[str, str]) -> Answer:
        if "/commands" not in path:
            return Answer(404)
        pages.append(path)
        listed = [{"id": f"{len(pages)}-{n}", "command_payload": {"command": "a"}} for n in range(5000)]
        if by == "link":
            return Answer(body=listed, headers={"Link": f'</devices/d1/commands?page={len(pages)}>; rel="next"'})
        return Answer(body={"data": listed, "next_cursor": f"page{len(pages)}", "has_more": True})

    poll = make_source(serve(script)[1], long_poll=False).poll(0)
    assert len(pages) == 4
    assert len(poll.commands) == 20_000
    assert poll.omitted > 0


@pytest.mark.parametrize("count", [19_999, 20_001])
def test_of_a_list_that_is_too_long_both_ends_are_read(serve, count):
    listed = [{"id": f"c{n}", "command_payload": {"command": "a"}} for n in range(count)]
    poll = make_source(serve(listing(listed))[1], long_poll=False).poll(0)
    assert [command.id for command in poll.commands[::10_000]] == ["c0", f"c{10_000 + poll.omitted}"]
    assert poll.omitted == max(0, count - 20_000)


class TestEverySource:
    """What the runtime relies on, whichever source it has."""

    @pytest.fixture(params=["fake", "http", "http to the service", "mqtt", "mqtt 3.1.1"])
    def source(self, request) -> Iterator[CommandSource]:
        if request.param == "fake":
            commands = tuple(Command(f"c{n}", {"command": "ab"[n - 1]}, created_at=float(n)) for n in (1, 2))
            yield FakeCommandSource([CommandPoll(commands)])
        elif request.param == "http":
            yield make_source(request.getfixturevalue("serve")(listing(RECORDS))[1])
        elif request.param == "http to the service":
            yield from self.service_source()
        else:
            version = "3.1.1" if "3.1.1" in request.param else "5"
            yield from self.mqtt_source(request.getfixturevalue("start_mosquitto")(), version)

    def service_source(self) -> Iterator[CommandSource]:
        with service_running.running() as bench:
            device_id = bench.device()
            for name in "ab":
                bench.send(device_id, name)
                bench.clock.advance(1000)
            keys = KeyPair(bench.service.api_key, bench.service.secret_key)
            with ServiceClient(bench.service.base_url, keys) as client:
                yield HttpDevice(client, device_id, Discovery(client, FakeClock()))

    def mqtt_source(self, broker: Mosquitto, version: str) -> Iterator[CommandSource]:
        gateway, device = GatewayStandIn(broker), RunningDevice(broker, version=version)
        for record in RECORDS:
            gateway.send("d1", record["id"], record["command_payload"], created_at=record["created_at"])
            gateway.wait_until(lambda: bool(gateway.statuses))  # it is online: what was sent before comes again
        device.wait_for_commands("c1", "c2")
        yield device
        device.stop()
        gateway.close()

    def test_commands_come_oldest_first_with_their_payloads(self, source):
        poll = source.poll(0)
        assert [command.payload for command in poll.commands] == [{"command": "a"}, {"command": "b"}]

    def test_what_was_not_acknowledged_comes_again(self, source):
        first = source.poll(0).commands
        assert [command.id for command in source.poll(0).commands] == [command.id for command in first]
        assert len(first) == 2

    def test_what_was_acknowledged_comes_as_a_known_command_at_most(self, source):
        known = {command.id for command in source.poll(0).commands}
        source.acknowledge(list(known))
        assert {command.id for command in source.poll(0).commands} <= known

    def test_what_was_not_canceled_is_not_called_canceled(self, source):
        ids = [command.id for command in source.poll(0).commands]
        assert source.canceled(ids) == frozenset()

    def test_acknowledging_and_closing_are_always_allowed(self, source):
        source.acknowledge([])
        source.acknowledge([command.id for command in source.poll(0).commands])
        source.acknowledge(["never heard of"])
        source.interrupt()


class TestHttp:
    def test_an_acknowledged_list_is_not_sent_again_while_it_stays_the_same(self, serve):
        server, client = serve(listing(RECORDS, ETag='"v1"'))
        source = make_source(client)
        source.poll(0)
        assert not source.poll(0).unchanged
        source.acknowledge(["c1", "c2"])
        assert source.poll(0).unchanged
        assert server.asked[-1][2]["if-none-match"] == '"v1"'

    def test_a_poll_is_held_only_where_that_is_offered(self, serve):
        for extensions, held in (([], False), (None, False), (["long-poll"], True)):
            server, client = serve(listing(RECORDS, extensions))
            assert make_source(client).poll(20).held is held
            assert ("wait=20" in server.asked[-1][1]) is held

    def test_with_long_poll_off_the_service_is_never_asked_to_hold(self, serve):
        server, client = serve(listing(RECORDS, ["long-poll"]))
        assert not make_source(client, long_poll=False).poll(20).held
        assert [path for _, path, _ in server.asked if "wait=" in path] == []

    def test_one_question_tells_which_commands_were_canceled(self, serve):
        # A plain server may ignore the filter: then it lists others beside them.
        records = [{**RECORDS[0], "status": "canceled"}, {**RECORDS[1], "status": "succeeded"}]
        server, client = serve(listing(records, ["command-status"]))
        assert make_source(client).canceled(["c2", "c1", "c0"]) == frozenset({"c2"})
        assert [path for _, path, _ in server.asked if "status=canceled" in path] == [
            "/devices/d1/commands?status=canceled"
        ]

    def test_a_bad_record_hides_no_other_and_a_foreign_one_is_skipped(self, serve):
        records = [
            {"id": "c8", "command": "x"},
            {"id": "c9", "command_payload": "nonsense"},
            {**RECORDS[0], "id": "c3", "device_id": "somebody else"},
            *RECORDS,
        ]
        _, client = serve(listing(records))
        poll = make_source(client).poll(0)
        assert [command.id for command in poll.commands] == ["c1", "c2"]
        assert len(poll.malformed) == 3
