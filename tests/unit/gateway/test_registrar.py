"""Looking devices up takes no command away from a server that lists each one once."""

from __future__ import annotations

import httpx
import pytest

from agent.wire.auth import KeyPair
from agent.wire.secret import Secret
from gateway.devices.adding import Registrar
from simulator.wire.client import ServiceClient


@pytest.mark.parametrize("offered", [(), ("command-status",)])
def test_commands_are_listed_only_where_the_service_says_which_are_open(offered):
    paths: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        paths.append(request.url.path)
        if request.url.path == "/.well-known/device-service":
            return httpx.Response(200, json={"extensions": offered}) if offered else httpx.Response(404)
        if request.url.path == "/devices":
            return httpx.Response(200, json=[{"device_id": "d1"}])
        return httpx.Response(200 if "/d1/" in request.url.path else 404, json=[])

    keys = KeyPair("mk_1", Secret("msk_1"))
    with ServiceClient("http://127.0.0.1:1", keys, transport=httpx.MockTransport(answer)) as client:
        assert Registrar(client).unknown(["d1", "d2"]) == ["d2"]
    assert any(path.endswith("/commands") for path in paths) is bool(offered)
