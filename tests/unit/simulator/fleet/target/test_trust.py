from __future__ import annotations

import asyncio
import os
import ssl

import pytest

from agent.errors import ConfigurationError
from simulator.fleet.engine.pool import HttpPool
from simulator.fleet.target.trust import trust
from tests.certificates import Authority
from tests.http_server import OK, Server


def test_everything_in_the_process_trusts_the_file_afterwards(tmp_path, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", "")
    authority = Authority(tmp_path)
    pair = authority.issue("service")
    server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_side.load_cert_chain(pair.certificate, pair.key)

    async def story() -> int:
        async with Server(OK, tls=server_side) as server:
            pool = HttpPool(server.base_url, {})
            answer = await pool.request("GET", "/")
            await pool.close()
            return answer.status

    trust(authority.certificate)
    assert asyncio.run(story()) == 200


def test_a_file_without_certificates_is_told(tmp_path, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", "untouched")
    (tmp_path / "ca.pem").write_text("nothing")
    with pytest.raises(ConfigurationError, match=r"target\.tls\.ca_file .*ca\.pem: write a PEM file"):
        trust(tmp_path / "ca.pem")
    assert os.environ["SSL_CERT_FILE"] == "untouched"
