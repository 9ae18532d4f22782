from __future__ import annotations

import pytest

from agent.errors import ConfigurationError
from simulator.fleet.engine.preflight import Host
from simulator.fleet.run.capacity import check_capacity, demand_of
from simulator.fleet.scenario.model import READER, Scenario

HOST = Host(descriptors=20_000, ports=28_232, memory_bytes=8 << 30, cores=4)


def scenario(devices: int = 10_000, *, kind: str = "devices", **target: object) -> Scenario:
    phases = [{"name": "hold", "kind": "hold", "duration_s": 60}]
    more = {"arrivals": [{"rate_per_s": 1}]} if kind == "requests" else {}
    return READER.validate_python(
        {"scenario": "s", "kind": kind, "fleet": {"devices": devices}, "target": target, "phases": phases, **more}
    )


@pytest.mark.parametrize(
    ("target", "sockets"),
    [
        ({"transport": "http_poll", "connections": 300}, 300),
        ({"transport": "http_poll"}, 10_000),
        ({"transport": "http_long_poll", "connections": "per_device"}, 20_000),
        ({"transport": "mqtt", "broker": {}}, 10_000),
    ],
)
def test_sockets_are_counted_by_transport(target, sockets):
    assert demand_of(scenario(**target), 2, target_is_here=True).sockets == sockets


def test_tls_and_the_kind_are_counted():
    plain = demand_of(scenario(), 1, target_is_here=False)
    secure = demand_of(scenario(kind="requests", base_url="https://127.0.0.1:1"), 1, target_is_here=False)
    assert (plain.tls, secure.tls) == (False, True)
    assert secure.device_bytes < plain.device_bytes


def test_a_run_that_does_not_fit_is_refused_with_every_number():
    wanted = scenario(100_000, transport="http_poll", connections="per_device")
    with pytest.raises(ConfigurationError) as caught:
        check_capacity(wanted, 2, target_is_here=True, host=HOST)
    assert [fault.split(":")[0] for fault in caught.value.faults] == ["descriptors of each worker", "ports"]


def test_held_polls_do_not_share_connections():
    with pytest.raises(ConfigurationError, match="or transport: http_poll, or connections: 10500") as caught:
        check_capacity(scenario(transport="http_long_poll", connections=256), 2, target_is_here=True, host=HOST)
    assert len(caught.value.faults) == 1
    check_capacity(scenario(200, transport="http_long_poll", connections=256), 2, target_is_here=True, host=HOST)
