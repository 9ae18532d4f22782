from __future__ import annotations

import dataclasses

from simulator.fleet.engine.preflight import Demand, Host, examine, missing, read_host

GIB = 1 << 30
HOST = Host(descriptors=20_000, ports=28_232, memory_bytes=8 * GIB, cores=4)
FITTING = Demand(devices=10_000, device_bytes=10_000, sockets=10_000, workers=2)


def told(demand: Demand, host: Host = HOST) -> dict[str, str]:
    """What does not fit, by its first word."""
    return {finding.what.split()[0]: str(finding) for finding in examine(demand, host) if not finding.fits}


def ask(**changes: object) -> Demand:
    return dataclasses.replace(FITTING, **changes)


def test_descriptors_are_counted_for_each_worker():
    assert "descriptors" not in told(ask(sockets=39_000, source_addresses=2))
    assert told(ask(sockets=100_000, source_addresses=4))["descriptors"] == (
        "descriptors of each worker: 50,064 needed, 20,000 there: "
        "ulimit -n 50064 (as root, or LimitNOFILE= of the unit), or workers: 6"
    )


def test_the_number_of_devices_that_fits_is_said():
    host = dataclasses.replace(HOST, memory_bytes=GIB)
    sentence = told(ask(devices=100_000, device_bytes=20_000, sockets=256), host)["memory"]
    number = int(sentence.rsplit(" ", 1)[1])
    assert 25_000 < number < 35_000
    assert "memory" not in told(ask(devices=number, device_bytes=20_000, sockets=256), host)
    assert "connections: 256" in told(ask(devices=40_000, sockets=40_000, device_bytes=100, tls=True), host)["memory"]


def test_what_only_disturbs_is_said_and_not_refused():
    findings = examine(ask(workers=4, target_is_here=True), HOST)
    assert [finding.what.split()[0] for finding in findings if not finding.fits] == ["cores"]
    assert "workers: 3" in str(findings[3])
    assert missing(findings) == []


def test_a_machine_is_read_from_what_the_kernel_tells(tmp_path):
    for name, text in {
        "sys/net/ipv4/ip_local_port_range": "32768\t60999\n",
        "meminfo": "MemTotal: 100 kB\nMemAvailable:   2048 kB\n",
        "self/cgroup": "0::/\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    host = read_host(tmp_path)
    assert (host.ports, host.memory_bytes) == (28_232, 2048 * 1024)
