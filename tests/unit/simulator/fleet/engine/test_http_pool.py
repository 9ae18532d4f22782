from __future__ import annotations

import asyncio

import pytest

from agent.errors import ConfigurationError
from simulator.fleet.engine.pool import HttpPool
from tests.support.http_server import OK, Server


def run(coroutine):
    return asyncio.run(coroutine)


def test_a_path_in_the_base_address_stands_before_every_path():
    async def story():
        async with Server(OK) as server:
            pool = HttpPool(f"{server.base_url}/v1/")
            await pool.request("GET", "/devices")
            await pool.close()
            return server

    assert run(story()).requests[0].startswith(b"GET /v1/devices HTTP/1.1\r\n")


@pytest.mark.parametrize("base_url", ["ftp://x", "127.0.0.1:80", "http://", "http://a?b=c", "http://me:pw@host"])
def test_an_address_that_cannot_be_used_is_told(base_url):
    with pytest.raises(ConfigurationError, match="write it as http://host:port"):
        HttpPool(base_url)


def test_a_header_cannot_smuggle_another_one():
    with pytest.raises(ConfigurationError, match="line break"):
        run(HttpPool("http://127.0.0.1:1").request("GET", "/", headers={"x-api-key": "mk_1\r\nx-evil: 1"}))
