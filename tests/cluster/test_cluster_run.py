"""A run on the nodes of a Ray cluster, as its user starts it: the run of one machine, and what cannot be used."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from simulator.exit_codes import ExitCode
from simulator.fleet.metrics.merging import merge_operations
from simulator.fleet.report.writing import parse_record, read_seconds
from simulator.service.server import RunningService
from tests.cluster_network import can_make_networks, remote_machine
from tests.cluster_running import running_cluster
from tests.cluster_runs import API_KEY, DEVICES, LEASE_S, SCENARIO, SECRET_KEY, Program, hold, nothing_left
from tests.cluster_witness import witness


def check_run(record: dict[str, Any], folder: Path, workers: int) -> None:
    """It is whole, and the merged figures of its seconds are those of the whole run, to the bit."""
    readings, commands = record["audit"]["readings"], record["audit"]["commands"]
    assert readings["sent"] == readings["accepted"] == readings["stored"] > 200
    assert readings["lost"] == readings["doubled"] == commands["lost"] == 0
    assert len(list((folder / "audit").glob("worker-*.ledger"))) == workers
    whole = parse_record((folder / "run.json").read_text()).operations
    seconds = [second.operations for second in read_seconds(folder)]
    for parts in (seconds, seconds[::-1]):
        merged = merge_operations(parts)
        assert {name: merged[name] for name in whole} == whole
    assert whole["http.poll"]


def test_the_same_run_on_one_machine_and_on_two_and_four_nodes_has_one_plan_and_one_audit(cluster, start, tmp_path):
    records = {}
    with nothing_left(within_s=10):
        for name, address, workers in (("one", None, 1), ("two", None, 2), ("nodes2", cluster.address, 4)):
            records[name] = start(name, address, "same", workers=workers).ended_whole()
            check_run(records[name], tmp_path / name, workers)
    with running_cluster(1, 1, 1, 1) as four, nothing_left(within_s=10):
        records["nodes4"] = start("nodes4", four.address, "same").ended_whole()
        check_run(records["nodes4"], tmp_path / "nodes4", 4)
    assert len({record["digest"] for record in records.values()}) == 1
    assert len({record["audit"]["commands"]["sent"] for record in records.values()}) == 1
    assert all(record["thresholds"][0]["held"] for record in records.values())
    assert [(node["first"], node["workers"]) for node in records["nodes2"]["nodes"]] == [(0, 2), (2, 2)]
    assert [(node["first"], node["workers"]) for node in records["nodes4"]["nodes"]] == [(n, 1) for n in range(4)]
    again = subprocess.run(
        [sys.executable, "-m", "simulator.cli", "report", str(tmp_path / "nodes2")], capture_output=True, check=False
    )
    assert again.returncode == ExitCode.GOOD
    texts = (path.read_text(errors="replace") for path in cluster.logs.rglob("*") if path.is_file())
    assert not any(SECRET_KEY in text for text in texts)


def further_keys(service: RunningService, count: int) -> dict[str, str]:
    """Further key pairs of the account."""
    path = f"{service.base_url}/_emulator/accounts/{API_KEY}/keys"
    pairs = [httpx.post(path, json={}).raise_for_status().json() for _ in range(count)]
    return {pair["api_key"]: pair["secret_key"] for pair in pairs}


@pytest.mark.skipif(not can_make_networks(), reason="needs root and ip")
def test_a_machine_behind_a_slow_and_lossy_network_makes_the_same_run_with_keys_of_its_own(service, start, tmp_path):
    here = start("here", None, "slow").ended_whole()
    with (
        remote_machine(1) as machine,
        witness(service.base_url, machine.service_at) as seen,
        running_cluster(2, address=machine.here) as own,
        nothing_left(within_s=10),
    ):
        machine.join(own, 2)
        machine.to_cluster.delay_s, machine.to_cluster.loss = 0.04, 0.02
        url, more_keys = f"http://{machine.service_at}:{seen.port}", further_keys(service, 3)
        there = start("there", own.address, "slow", url, more_keys=more_keys).ended_whole()
        seen.check_each_plays_once()
        machines = [readings[0].machine for readings in seen.by_device().values()]
        key_users = sorted({(reading.machine, reading.api_key) for reading in seen.readings()})
    check_run(there, tmp_path / "there", 4)
    assert there["digest"] == here["digest"]
    assert there["audit"]["commands"]["sent"] == here["audit"]["commands"]["sent"]
    assert machines.count(machine.seen_as) == machines.count(machine.service_at) == DEVICES / 2
    assert {api_key for _, api_key in key_users} == {API_KEY, *more_keys}
    assert [address for address, _ in key_users] == sorted([machine.seen_as, machine.service_at] * 2)


def test_ctrl_c_ends_the_run_in_order_with_an_audit(cluster, start):
    with nothing_left(within_s=10):
        program = start("stopped", cluster.address, phases=hold(600))
        program.wait_for_load()
        program.process.send_signal(signal.SIGINT)
        record = program.ended_with(ExitCode.INTERRUPTED)
    assert record["audit"]["readings"]["lost"] == 0
    assert record["audit"]["readings"]["sent"] > 0


def test_devices_of_a_run_are_refused_to_one_from_another_machine_until_it_has_ended_however_it_does(
    cluster, start, tmp_path
):
    def from_machine(name: str) -> Program:
        folder = tmp_path / f"tmp-{name}"  # another one has other locks
        folder.mkdir()
        changes = {"workers": 2, "phases": hold(600), "environment": {"TMPDIR": str(folder)}}
        return start(name, cluster.address, "shared", **changes)

    with nothing_left(within_s=LEASE_S + 5):
        first = from_machine("first")
        first.wait_for_load()
        code, _, errors = from_machine("second").ended()
        assert code == ExitCode.USAGE, errors
        assert (
            f"another run of this cluster uses these devices (scenario cluster, process {first.process.pid}" in errors
        )
        first.process.kill()
        first.ended()
        third = from_machine("third")
        third.wait_for_load()
        third.process.send_signal(signal.SIGINT)
        third.ended()  # its audit finds what the first one ordered and nobody answered


OUTSIDE = {
    "devices": 2,
    "models": [{"signals": {"t": {"kind": "csv", "file": "../elsewhere.csv", "column": "t", "every_s": 1}}}],
}
MANY = {
    "fleet": {**SCENARIO["fleet"], "devices": 100_000, "prepare_within_s": "1h"},
    "target": {"transport": "http_poll", "connections": "per_device"},
}


@pytest.mark.parametrize(
    "case",
    [
        ("127.0.0.1:1", {}, "nobody answers at 127.0.0.1:1"),
        ("service", {}, "is no head of a Ray cluster: start 'ray start --head' there"),
        ("somewhere", {}, "'somewhere': write HOST:PORT"),
        ("http://127.0.0.1:6379", {}, "write HOST:PORT"),
        (None, {"workers": 5}, "5 workers need a core each, and there are 4"),
        (None, {"fleet": OUTSIDE}, "elsewhere.csv: machines of a cluster get the files in"),
        (None, MANY, "127.0.0.2: ports: 50,000 needed"),
    ],
)
def test_what_cannot_be_used_is_one_clear_line_and_nothing_is_sent(cluster, service, start, tmp_path, case):
    address, changes, sentence = case
    if address == "service":
        address = service.base_url.removeprefix("http://")
    (tmp_path.parent / "elsewhere.csv").write_text("t\n1\n2\n")
    with nothing_left(within_s=5):
        code, _, errors = start("refused", address or cluster.address, **changes).ended()
    assert code == ExitCode.USAGE, errors
    assert sentence in errors
    assert "Traceback" not in errors
    assert not (tmp_path / "refused").exists()
