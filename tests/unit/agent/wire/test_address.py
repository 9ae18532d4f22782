"""Names and addresses of machines, wherever one is configured or typed."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from agent.config.model import AgentConfig
from agent.wire.network import authority, host_and_port, read_host
from gateway.config import GatewayConfig

AGENT = {"device": {"device_id": "d1"}, "service": {"base_url": "http://127.0.0.1"}, "auth": {"mode": "bearer"}}
GATEWAY = {"service": {"base_url": "http://127.0.0.1"}}


@pytest.mark.parametrize("text", ["gateway", "gateway.example.com", "gw_1.local.", "192.0.2.1", "::1", "fe80::1%eth0"])
def test_a_name_or_an_address_is_a_host(text):
    assert read_host(text) == text
    port = 8883
    assert host_and_port(f"[{text}]:{port}" if ":" in text else f"{text}:{port}") == (text.lower(), port)
    assert host_and_port(authority(text, port)) == (text.lower(), port)
    assert host_and_port(text) == (text, None)


@pytest.mark.parametrize(
    "text",
    ["", "broker:8883", "[::1]:8883", "[::1", "mqtts://broker", "broker/x", "a b", "me@broker", "x" * 300, "::g"],
)
def test_what_is_none_is_refused_with_what_to_write(text):
    with pytest.raises(ValueError, match=r"write|take"):
        read_host(text)


@pytest.mark.parametrize(
    ("model", "values", "section"),
    [(AgentConfig, AGENT, "mqtt"), (AgentConfig, AGENT, "metrics")]
    + [(GatewayConfig, GATEWAY, each) for each in ("http", "mqtt", "metrics")],
)
def test_every_configured_host_is_read_so(model, values, section):
    with pytest.raises(ValidationError, match="a port has its own key"):
        model.model_validate({**values, section: {"host": "broker:8883"}})
    given = {"host": "[::1]", "port": 9000} | ({"tls": False} if section == "mqtt" else {})
    assert getattr(model.model_validate({**values, section: given}), section).host == "::1"
