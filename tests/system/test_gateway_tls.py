"""The HTTP front over TLS: who may be trusted, what is refused at the start, and a certificate that is renewed."""

from __future__ import annotations

import socket
import ssl
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import httpx
import pytest

from agent.errors import ConfigurationError
from gateway.certificates import make_certificates
from gateway.config import HttpConfig
from gateway.run import serving
from tests.support.scripted_service import ScriptedService, running_gateway

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def front(folder, certificate, key, port=0, host="127.0.0.1"):
    config = HttpConfig(host=host, port=port, certificate=certificate, private_key=key)
    (folder / "state").mkdir(exist_ok=True)
    async with running_gateway(folder / "state", ScriptedService()) as bench, serving(bench.app, config) as server:
        yield server, bench.token["d1"]


async def get(server, token, authority):
    context = ssl.create_default_context(cafile=authority)
    headers = {"authorization": f"Bearer {token}"}
    async with httpx.AsyncClient(verify=context, trust_env=False, headers=headers) as http:
        return (await http.get(f"{server}/devices/d1/commands")).status_code


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
async def test_on_every_address_it_is_reached_by_both_kinds(tmp_path):
    files = make_certificates(tmp_path, ["127.0.0.1", "::1"], datetime.now(UTC))

    async with front(tmp_path, files.certificate, files.private_key, host="::") as (server, token):
        port = server.rsplit(":", 1)[1]
        assert server == f"https://[::]:{port}"
        for host in ("127.0.0.1", "[::1]"):
            assert await get(f"https://{host}:{port}", token, files.authority) == 200


async def test_files_that_are_no_certificate_and_a_port_in_use_are_told_with_the_fix(tmp_path):
    files = make_certificates(tmp_path / "a", ["gw"], datetime.now(UTC))
    other = make_certificates(tmp_path / "b", ["gw"], datetime.now(UTC))

    for certificate, key, said in (
        (tmp_path / "missing.pem", files.private_key, "No such file"),
        (files.certificate, other.private_key, "are no certificate"),
        (files.private_key, None, "are no certificate"),
    ):
        with pytest.raises(ConfigurationError, match=said):
            async with front(tmp_path, certificate, key):
                pass
    async with front(tmp_path, None, None) as (server, _):
        with pytest.raises(OSError, match="in use.*; end what listens there"):
            async with front(tmp_path, None, None, int(server.rsplit(":", 1)[1])):
                pass
