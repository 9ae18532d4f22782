"""What comes after a chunked body is no header: keys sent there prove nothing."""

from __future__ import annotations

import json
import socket
from urllib.parse import urlsplit

from gateway.http.front import HttpFront, HttpSettings
from tests.fake_backend import FakeBackend, FakeTokens
from tests.service_running import running


def answer_to(base_url: str, path: str, body: bytes, trailers: dict[str, str]) -> int:
    """The status of a chunked POST with these trailers."""
    parts = urlsplit(base_url)
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Type: application/json\r\n"
        f"Trailer: {', '.join(trailers)}\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    )
    tail = "".join(f"{name}: {value}\r\n" for name, value in trailers.items())
    sent = head.encode() + b"%x\r\n%s\r\n0\r\n" % (len(body), body) + tail.encode() + b"\r\n"
    with socket.create_connection((parts.hostname, parts.port), timeout=60) as connection:
        connection.sendall(sent)  # all at once: the application sees the list of headers after it is complete
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
    return int(answer.split(b" ", 2)[1])


def test_keys_in_trailers_open_nothing_at_the_service():
    with running() as bench:
        keys = {"x-api-key": bench.service.api_key, "x-secret-key": bench.service.secret_key.reveal()}
        assert answer_to(bench.service.base_url, "/products", b'{"name": "Door controller"}', keys) == 401
        assert bench.http.get("/products").json()["data"] == []


def test_a_token_in_a_trailer_opens_nothing_at_the_gateway():
    token = "dgt_0123456789"
    backend, tokens = FakeBackend(), FakeTokens(**{token: "d1"})
    front = HttpFront(HttpSettings(port=0), backend, tokens)
    front.start()
    try:
        body = json.dumps({"device_id": "d1", "sensor_data": {"t": 1.0}}).encode()
        assert answer_to(front.base_url, "/sensor-data", body, {"Authorization": f"Bearer {token}"}) == 401
        assert backend.readings == []
    finally:
        assert front.stop(60)
