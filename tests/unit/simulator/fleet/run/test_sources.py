"""The addresses that devices connect from: those of the listed ones that a machine has, where there is a way."""

from __future__ import annotations

import pytest

from agent.errors import ConfigurationError
from simulator.fleet.engine.addresses import own_addresses, why_unreachable
from simulator.fleet.engine.preflight import Demand, Host, examine, missing
from simulator.fleet.run.capacity import Sources, addresses_of_devices, check_capacity, find_sources
from simulator.fleet.scenario.model import Scenario
from simulator.fleet.scenario.reading import parse_scenario
from simulator.fleet.target.target import Target
from simulator.fleet.workload.devices import sources_of

HERE = ("http://127.0.0.1:8080",)
NOT_OURS = "203.0.113.7"  # RFC 5737: nobody's
PHASES = [{"name": "hold", "kind": "hold", "duration_s": 60}]


def scenario(**target: object) -> Scenario:
    return Scenario.model_validate({"scenario": "s", "fleet": {"devices": 10}, "target": target, "phases": PHASES})


def test_a_machine_takes_those_of_the_listed_addresses_that_it_has():
    assert own_addresses([NOT_OURS, "127.0.0.4", "127.0.0.8/30", "127.0.0.4"]) == (
        "127.0.0.4", "127.0.0.8", "127.0.0.9", "127.0.0.10", "127.0.0.11",
    )  # fmt: skip
    assert own_addresses([NOT_OURS, "127.255.255.255"]) == (), "nor one that is for broadcasts"
    assert sources_of(scenario(source_addresses=[NOT_OURS, "127.0.0.4"]).target) == ("127.0.0.4",)
    assert sources_of(scenario(source_addresses=2).target) == ("127.0.0.1", "127.0.0.2")
    assert sources_of(scenario().target) == ()


def test_a_machine_that_has_none_of_them_is_refused_before_the_run_and_in_it():
    with pytest.raises(ConfigurationError, match=f"source_addresses: has none of {NOT_OURS}: list one of its"):
        check_capacity(scenario(), 1, target_is_here=True, sources=find_sources([NOT_OURS], HERE))
    with pytest.raises(ConfigurationError, match=f"none of {NOT_OURS} is there"):
        sources_of(scenario(source_addresses=[NOT_OURS]).target)


def test_without_a_way_to_the_target_the_address_is_refused():
    (fault,) = find_sources(2, ["http://127.255.255.255:8080"]).faults  # for broadcasts
    assert fault.startswith("no way from 127.0.0.1 to http://127.255.255.255:8080 (Permission denied)")
    assert fault.endswith("a number is for targets on the same machine: list the machine's addresses")
    (fault,) = find_sources(["127.0.0.1"], ["http://[::1]:8080"]).faults
    assert "has no IPv4 address" in fault
    assert find_sources(2, HERE) == Sources(2)
    assert find_sources(1, [f"http://{NOT_OURS}:8080"]) == Sources(1), "the system's choice"
    assert why_unreachable("127.0.0.1", "mqtt://localhost:1883") == ""


def test_the_way_that_counts_is_the_one_of_the_devices():
    over_http, through = scenario(), scenario(through="gateway")
    over_mqtt = scenario(transport="mqtt", broker={"host": "10.0.0.7", "port": 8883})
    target = Target("http://10.0.0.1:1", (), gateway_url="http://10.0.0.2:2")
    assert addresses_of_devices(over_http, target) == ("http://10.0.0.1:1",)
    assert addresses_of_devices(through, target) == ("http://10.0.0.2:2",)
    assert addresses_of_devices(over_mqtt, target) == ("http://10.0.0.2:2", "mqtt://10.0.0.7:8883")


def test_ports_are_counted_by_the_addresses_that_a_machine_has():
    host = Host(descriptors=1 << 20, ports=28_232, memory_bytes=1 << 40, cores=4, backlog=4096)
    settings = {"transport": "http_poll", "connections": "per_device"}
    many = Scenario.model_validate(
        {"scenario": "s", "fleet": {"devices": 50_000, "prepare_within_s": "1h"}, "target": settings, "phases": PHASES}
    )
    check_capacity(many, 2, target_is_here=False, host=host, sources=Sources(2))
    with pytest.raises(ConfigurationError, match="a list of 2 addresses of the machine"):
        check_capacity(many, 2, target_is_here=False, host=host, sources=Sources(1))
    here = Demand(devices=1, device_bytes=1, sockets=30_000, workers=1, target_is_here=True)
    assert any("source_addresses: 2, or" in fault for fault in missing(examine(here, host)))


@pytest.mark.parametrize(
    ("written", "sentence"),
    [
        ("[10.0.0.300]", "10.0.0.300"),
        ("['::1']", "write IPv4 addresses, such as 10.0.0.2, or networks, such as 10.0.0.0/24"),
        ("[10.0.0.1/24]", "has host bits set"),
        ("[10.0.0.0/8]", "16,777,216 addresses are more than 65,536: write smaller networks"),
        ("[]", "must have at least 1 item"),
        ("[7]", "must be text"),
        ("0", "must be greater than or equal to 1"),
        ("many", "must be a whole number"),
    ],
)
def test_what_is_no_list_of_addresses_is_one_clear_sentence(tmp_path, written, sentence):
    text = f"scenario: s\nfleet: {{devices: 1}}\ntarget: {{source_addresses: {written}}}\n"
    text += "phases: [{name: hold, kind: hold, duration_s: 1}]\n"
    with pytest.raises(ConfigurationError) as caught:
        parse_scenario(text.encode(), tmp_path)
    (fault,) = caught.value.faults
    assert "target.source_addresses" in fault
    assert sentence in fault
