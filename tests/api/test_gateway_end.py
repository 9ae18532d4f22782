"""A part of the gateway that ends by itself ends the process, and is named in one line."""

from __future__ import annotations

import asyncio
import logging

import pytest
import uvicorn

from agent.errors import EXIT_CRASHED
from gateway.config import GatewayConfig
from gateway.http import HttpApp
from gateway.mqtt import MqttFront
from gateway.run import Gateway

pytestmark = pytest.mark.anyio


async def ends(*_arguments):
    await asyncio.sleep(0.2)


async def fails(*_arguments):
    await asyncio.sleep(0.2)
    raise RuntimeError("made up")


def fails_at_once(*_arguments):
    raise RuntimeError("made up")


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("place", "name", "how", "part"),
    [
        (uvicorn.Server, "main_loop", ends, "http"),
        (uvicorn.Server, "main_loop", fails, "http"),
        (HttpApp, "end_revoked_polls", fails_at_once, "housekeeping"),
        (MqttFront, "_publish_commands", fails, "mqtt"),
    ],
)
async def test_a_part_that_ends_by_itself_ends_the_gateway(tmp_path, monkeypatch, caplog, place, name, how, part):
    values = {"service": {"base_url": "http://127.0.0.1:1"}, "state_dir": tmp_path, "http": {"port": 0}, "auth": {}}
    values["mqtt"] = {"enabled": True, "port": 1}
    for key, text in (("api_key", "mk_1"), ("secret_key", "msk_1")):
        path = tmp_path / key
        path.write_text(text)
        path.chmod(0o600)
        values["auth"][f"{key}_file"] = path
    config = GatewayConfig.model_validate({**values, "metrics": {"enabled": False}})
    monkeypatch.setattr(place, name, how)
    assert await Gateway(config, {}).run() == EXIT_CRASHED
    [line] = [each.getMessage() for each in caplog.records if each.levelno >= logging.CRITICAL]
    assert line == f"{part}=crashed report this as a bug"
