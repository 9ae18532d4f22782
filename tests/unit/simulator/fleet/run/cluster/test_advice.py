"""The numbers that a cluster is advised with count all of its machines, and what is advised fits."""

from __future__ import annotations

from dataclasses import replace

from simulator.fleet.engine.preflight import Demand, Host, ResourceCheck, examine
from simulator.fleet.plan.shares import deal
from simulator.fleet.run.cluster.advice import advise
from simulator.fleet.run.cluster.place import share_of
from simulator.fleet.run.cluster.placement import Node, place_workers

HOST = Host(descriptors=5_064, ports=600_000, memory_bytes=1 << 40, cores=8, backlog=4096)
NODES = (Node("a", "10.0.0.1", 8, is_here=True), Node("b", "10.0.0.2", 4, is_here=False))


def checks(
    workers: int, devices: int = 39_000, nodes: tuple[Node, ...] = NODES, hosts: tuple[Host, ...] = (HOST, HOST)
) -> list[dict[str, ResourceCheck]]:
    """The first word of each need that a machine cannot hold."""
    placements = place_workers(workers, nodes)
    whole = Demand(devices=devices, device_bytes=1024, sockets=devices, workers=workers)
    demands = [share_of(whole, each, deal(devices, workers), target_is_here=False) for each in placements]
    here = hosts[: len(placements)]
    advice = advise(nodes, placements, demands, here)
    return [
        {check.what.split()[0]: check for check in examine(demand, host, advice) if not check.fits}
        for demand, host in zip(demands, here, strict=True)
    ]


def test_every_machine_advises_the_same_number_of_workers_and_it_fits():
    found = checks(3)
    assert [each["descriptors"].fix for each in found] == [
        "ulimit -n 13064 (as root, or LimitNOFILE= of the unit), or workers: 8 on all machines together"
    ] * 2
    assert checks(8) == [{}, {}]


def test_more_workers_than_there_are_cores_are_no_advice():
    found = checks(3, devices=100_000)
    assert [each["descriptors"].fix.endswith("of the unit)") for each in found] == [True, True]


def test_fewer_workers_are_those_of_all_machines_and_fit():
    small = replace(HOST, descriptors=1 << 20, cores=2)
    hosts = (replace(small, cores=8), small)
    first, other = checks(12, hosts=hosts)
    assert first == {}
    assert other["cores"].fix == "they disturb each other: workers: 7 on all machines together"
    assert checks(7, hosts=hosts) == [{}, {}]
    assert "cores" in checks(8, hosts=hosts)[1]


def test_devices_are_those_of_the_whole_fleet_and_fit_the_smallest_machine():
    small = replace(HOST, descriptors=1 << 20, memory_bytes=600 << 20)
    hosts = (replace(small, memory_bytes=1 << 40), small)
    (_, other) = checks(3, devices=150_000, hosts=hosts)
    number = int(other["memory"].fix.partition("fleet.devices: ")[2].split()[0])
    assert 50_000 < number < 150_000
    assert checks(3, devices=number, hosts=hosts) == [{}, {}]
    assert "memory" in checks(3, devices=number + 500, hosts=hosts)[1]
