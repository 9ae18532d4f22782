"""Nodes of a Ray cluster in the record, in a plan, and picked by a resource; a node that dies is named."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent.wire.secret import Secret
from simulator.exit_codes import ExitCode
from simulator.service.config import ServiceConfig
from simulator.service.server import RunningService
from tests.cluster_running import SMALL, RunningCluster, running_cluster

API_KEY, SECRET_KEY = "mk_nodes", "msk_nodes_0123456789abc"
SCENARIO: dict[str, Any] = {
    "scenario": "nodes",
    "seed": 7,
    "target": {"transport": "http_poll", "pool": 8},
    "fleet": {"devices": 20, "models": [{"telemetry": {"every_s": 1}, "poll": {"every_s": 1}}]},
    "phases": [{"name": "hold", "kind": "hold", "duration_s": 4}],
    "thresholds": ["audit.lost == 0"],
}

Call = Callable[..., subprocess.Popen[str]]


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    """A node of two cores, and one of three that has two of the resource ``fleet``."""
    with running_cluster(2) as running:
        running.nodes.append(running.cluster.add_node(num_cpus=3, resources={"fleet": 2}, **SMALL))
        yield running


@pytest.fixture(scope="module")
def service() -> Iterator[RunningService]:
    config = ServiceConfig(port=0, api_key=API_KEY, secret_key=Secret(SECRET_KEY), rate_limit=0)
    with RunningService(config) as running:
        yield running


@pytest.fixture
def start(service, cluster, tmp_path) -> Call:
    """Start ``run`` or ``plan`` on the cluster; a run's folder is ``tmp_path/NAME``."""

    def start(command: str, name: str, *options: str, **changes: Any) -> subprocess.Popen[str]:
        secret, path = tmp_path / "secret", tmp_path / f"{name}.yaml"
        secret.write_text(SECRET_KEY)
        secret.chmod(0o600)
        document = {**SCENARIO, **changes}
        document["fleet"] = {"identities": {"prefix": f"{name}-"}, **document["fleet"]}
        path.write_text(yaml.safe_dump(document))
        given = ["--base-url", service.base_url, "--cluster", cluster.address, "--json", *options]
        if command == "run":
            given += ["--api-key", API_KEY, "--secret-key-file", str(secret), "--out", str(tmp_path / name)]
        whole = [sys.executable, "-m", "simulator.cli", command, str(path), *given]
        return subprocess.Popen(whole, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    return start


def ended(program: subprocess.Popen[str]) -> tuple[int, dict[str, Any], str]:
    """Exit code, document and standard error."""
    output, errors = program.communicate(timeout=240)
    return program.returncode, json.loads(output or "{}"), errors


def check_whole(code: int, record: dict[str, Any], errors: str) -> None:
    """It came to its end with everything back; on a machine that is too slow for the load it proves nothing else."""
    assert code in {ExitCode.GOOD, ExitCode.INCONCLUSIVE}, errors
    assert record["audit"]["complete"], errors
    assert record["audit"]["readings"]["lost"] == 0
    assert record["gaps"] == []
    assert record["partial"] == ""


def test_a_run_names_its_nodes_in_plan_progress_record_and_report(start, tmp_path):
    code, plan, errors = ended(start("plan", "whole", workers=5))
    assert code == ExitCode.GOOD, errors
    shares = {(each["first"], each["workers"], each["devices"]) for each in plan["machines"]}
    progress = tmp_path / "progress.jsonl"
    code, record, errors = ended(start("run", "whole", "--progress", str(progress), workers=5))
    check_whole(code, record, errors)
    assert {(node["first"], node["workers"], node["devices"]) for node in record["nodes"]} == shares
    assert sum(node["workers"] for node in record["nodes"]) == 5
    assert sum(node["sent"] for node in record["nodes"]) == record["health"]["sent"]
    assert all(node["sent"] > 0 and node["lost"] == 0 and node["gone_s"] is None for node in record["nodes"])
    seconds = [line for line in map(json.loads, progress.read_text().splitlines()) if line["event"] == "second"]
    assert all(len(second["nodes"]) == 2 for second in seconds)
    assert 'id="machines"' in (tmp_path / "whole" / "report.html").read_text()


def test_with_a_resource_only_nodes_that_have_it_take_part_and_a_worker_takes_one(start):
    code, record, errors = ended(start("run", "pinned", "--cluster-resource", "fleet", workers=2))
    check_whole(code, record, errors)
    (node,) = record["nodes"]
    assert (node["first"], node["workers"], node["devices"]) == (0, 2, 20)
    code, _, errors = ended(start("plan", "third", "--cluster-resource", "fleet", workers=3))
    assert code == ExitCode.USAGE
    assert "3 workers need a core and one of 'fleet' each, and there are 2" in errors
    for resource, sentence in (
        (
            "lamp",
            """one of 'lamp' for workers: ray start --resources='{"lamp": 4}'""",
        ),
        ("CPU", "'CPU' is Ray's own: name one that 'ray start --resources' sets"),
    ):
        code, _, errors = ended(start("run", "nothing", "--cluster-resource", resource))
        assert code == ExitCode.USAGE
        assert sentence in errors
        assert "Traceback" not in errors


def test_a_node_takes_its_own_source_addresses_and_is_refused_without_any(start, tmp_path):
    target = {**SCENARIO["target"], "source_addresses": ["203.0.113.7", "127.0.0.8/31"]}
    code, plan, errors = ended(start("plan", "sources", workers=2, target=target))
    assert code == ExitCode.GOOD, errors
    assert [each["source_addresses"] for each in plan["machines"]] == [2, 2]
    code, record, errors = ended(start("run", "sources", workers=2, target=target))
    check_whole(code, record, errors)
    target = {**target, "source_addresses": ["203.0.113.7"]}
    code, _, errors = ended(start("run", "foreign", workers=2, target=target))
    assert code == ExitCode.USAGE
    assert "target.source_addresses: has none of 203.0.113.7: list one of its addresses" in errors
    assert not (tmp_path / "foreign").exists()


def wait_for_load(folder: Path, program: subprocess.Popen[str]) -> None:
    deadline_s, file = time.monotonic() + 120, folder / "seconds.jsonl"
    while not (file.exists() and len(file.read_text().splitlines()) >= 3):
        assert time.monotonic() < deadline_s
        assert program.poll() is None, ended(program)
        time.sleep(0.1)


def test_a_node_that_dies_is_gone_in_the_record_since_its_last_second(start, cluster, tmp_path):
    program = start("run", "dying", workers=5, phases=[{"name": "hold", "kind": "hold", "duration_s": 12}])
    wait_for_load(tmp_path / "dying", program)
    cluster.kill_node(cluster.nodes[-1])
    code, record, errors = ended(program)
    assert code == ExitCode.INCONCLUSIVE, errors
    (gone,) = (node for node in record["nodes"] if node["gone_s"] is not None)
    (other,) = (node for node in record["nodes"] if node["gone_s"] is None)
    assert (gone["workers"], gone["lost"]) == (3, 3)
    assert (other["workers"], other["lost"]) == (2, 0)
    assert 2 <= gone["gone_s"] < record["duration_s"]
    assert {gap["worker"] for gap in record["gaps"]} == set(range(gone["first"], gone["first"] + 3))
