"""What ``plan --cluster`` prints of each machine; the machines are made up, and nothing here needs Ray."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from simulator.cli import program
from simulator.exit_codes import ExitCode
from simulator.fleet.cli import plan as plan_module
from simulator.fleet.cli import run as run_module
from simulator.fleet.engine.preflight import Host
from simulator.fleet.run.capacity import Sources
from simulator.fleet.run.cluster import place
from simulator.fleet.run.cluster.placement import Node

LARGE = Host(descriptors=200_000, ports=28_232, memory_bytes=64 << 30, cores=4, backlog=4096)
SMALL = Host(descriptors=200_000, ports=28_232, memory_bytes=800 << 20, cores=1, backlog=4096)
NODES = (Node("a", "10.0.0.1", 3, is_here=True), Node("b", "10.0.0.2", 1, is_here=False))
TARGET = "http://203.0.113.7:8080"


@pytest.fixture
def ask(monkeypatch, tmp_path):
    """Plan on a cluster of two machines, the second one small."""
    found = {"looks": [(LARGE, Sources()), (SMALL, Sources())], "free": [3, 1], "asked": []}

    @contextlib.contextmanager
    def connected(address, resource):
        found["asked"].append((address, resource))
        yield NODES

    monkeypatch.setattr(plan_module, "connected", connected)
    monkeypatch.setattr(place, "on_each", lambda nodes, _look: found["looks"][: len(nodes)])
    monkeypatch.setattr(place, "count_free", lambda nodes, _resource: found["free"][: len(nodes)])

    def ask(devices: int, *options: str, workers: object = "auto"):
        document = {
            "scenario": "s",
            "workers": workers,
            "target": {"transport": "http_poll", "connections": "per_device"},
            "fleet": {"devices": devices, "prepare_within_s": "1h"},
            "phases": [{"name": "hold", "kind": "hold", "duration_s": 60}],
        }
        path = tmp_path / "s.yaml"
        path.write_text(yaml.safe_dump(document))
        return CliRunner().invoke(program, ["plan", str(path), "--cluster", "auto", *options])

    ask.found = found
    return ask


def test_each_machine_has_its_share_with_what_is_there(ask):
    done = ask(20_000, "--base-url", TARGET)
    assert done.exit_code == ExitCode.GOOD, done.stderr
    lines = done.stdout.splitlines()
    (one,) = (line for line in lines if line.startswith("10.0.0.1"))
    (other,) = (line for line in lines if line.startswith("10.0.0.2"))
    assert one.split()[:7] == ["10.0.0.1", "3", "(0", "to", "2)", "15,000", "15,000"]
    assert other.split()[:6] == ["10.0.0.2", "1", "(number", "3)", "5,000", "5,000"]
    assert one.endswith("fits")
    assert other.endswith("fits")
    assert f"to {TARGET}" in lines[0]
    assert "workers     4" in lines
    assert ask.found["asked"] == [("auto", None)]


def test_a_machine_that_cannot_hold_its_share_is_refused_with_the_numbers_that_run_says(ask):
    done = ask(120_000, "--base-url", TARGET)
    assert done.exit_code == ExitCode.USAGE
    (one,) = (line for line in done.stdout.splitlines() if line.startswith("10.0.0.1"))
    (other,) = (line for line in done.stdout.splitlines() if line.startswith("10.0.0.2"))
    assert one.endswith("does not fit: ports")
    assert other.endswith("does not fit: ports, memory")
    assert "10.0.0.1: ports: 90,000 needed, 25,408 there" in done.stderr
    assert "10.0.0.2: memory: " in done.stderr


def test_programs_get_the_same_as_json(ask):
    done = ask(120_000, "--base-url", TARGET, "--json", "--cluster-resource", "fleet")
    assert done.exit_code == ExitCode.USAGE
    document = json.loads(done.stdout)
    assert (document["workers"], document["target"]) == (4, TARGET)
    one, other = document["machines"]
    assert (one["name"], one["first"], one["workers"], one["devices"]) == ("10.0.0.1", 0, 3, 90_000)
    assert {need["what"]: need["fits"] for need in other["needs"]}["memory"] is False
    assert [fault.partition(": ")[2][:6] for fault in other["faults"]] == ["ports:", "memory"]
    assert ask.found["asked"] == [("auto", "fleet")]


def test_source_addresses_of_a_machine_are_in_its_row_and_its_faults(ask):
    ask.found["looks"] = [
        (LARGE, Sources(4)),
        (LARGE, Sources(0, ("has none of 10.9.9.9: list one of its addresses",))),
    ]
    done = ask(40_000, "--base-url", TARGET)
    assert done.exit_code == ExitCode.USAGE
    assert "10.0.0.2: target.source_addresses: has none of 10.9.9.9" in done.stderr
    (one,) = (line for line in done.stdout.splitlines() if line.startswith("10.0.0.1"))
    assert one.split()[-2:] == ["4", "fits"]
    (other,) = (line for line in done.stdout.splitlines() if line.startswith("10.0.0.2"))
    assert other.endswith("does not fit: source addresses")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"workers": 5}, "5 workers need a core each, and there are 4 (10.0.0.1: 3, 10.0.0.2: 1)"),
        ({}, "http://127.0.0.1:8080 leads to the machine that uses it, and workers are on 10.0.0.2"),
        ({"options": ("--base-url", "service.test")}, "--base-url 'service.test': write it as http://host:port"),
    ],
)
def test_what_run_refuses_plan_refuses(ask, options, sentence):
    done = ask(20_000, *options.pop("options", ()), **options)
    assert done.exit_code == ExitCode.USAGE
    assert sentence in done.stderr


def test_cores_that_are_taken_are_counted_by_machine(ask):
    ask.found["free"] = [1, 1]
    done = ask(20_000, "--base-url", TARGET)
    assert done.exit_code == ExitCode.USAGE
    assert "10.0.0.1: 3 workers need a core each, and 1 of its cores are free" in done.stderr


def test_a_resource_without_a_cluster_is_refused(tmp_path):
    done = CliRunner().invoke(program, ["plan", str(tmp_path / "s.yaml"), "--cluster-resource", "fleet"])
    assert done.exit_code == ExitCode.USAGE
    assert "--cluster-resource picks machines of a cluster: give --cluster, too" in done.stderr


GATEWAY = "over MQTT, or through a gateway, a run has workers on one machine"
MQTT = {"transport": "mqtt", "through": "gateway", "broker": {"host": "10.0.0.9"}}
REFUSED = pytest.mark.parametrize("command", [["plan"], ["run"]], ids=["plan", "run"])


@REFUSED
@pytest.mark.parametrize("target", [MQTT, {"transport": "http_poll", "through": "gateway"}], ids=["mqtt", "http"])
def test_devices_behind_a_gateway_are_refused_before_a_target_or_a_cluster_is_looked_for(command, target, tmp_path):
    path = write(tmp_path, target)
    done = CliRunner().invoke(program, [*command, str(path), "--cluster", "10.0.0.1:6379"])
    assert done.exit_code == ExitCode.USAGE
    assert GATEWAY in done.stderr
    assert "leave out --cluster" in done.stderr
    assert not (tmp_path / "fleet-runs").exists()


def test_a_service_of_this_machine_alone_is_refused_for_a_cluster_before_it_is_started(tmp_path, monkeypatch):
    monkeypatch.setattr(run_module, "running_local", lambda *_a, **_o: pytest.fail("a service was started"))
    path, out = write(tmp_path, {}), tmp_path / "out"
    done = CliRunner().invoke(program, ["run", str(path), "--local", "--cluster", "auto", "--out", str(out)])
    assert done.exit_code == ExitCode.USAGE
    assert "--local starts a service that only this machine reaches: leave out --cluster" in done.stderr
    assert not out.exists()


def write(folder: Path, target: dict[str, object]) -> Path:
    document = {
        "scenario": "s",
        "target": target,
        "fleet": {"devices": 4},
        "phases": [{"name": "hold", "kind": "hold", "duration_s": 60}],
    }
    path = folder / "s.yaml"
    path.write_text(yaml.safe_dump(document))
    return path
