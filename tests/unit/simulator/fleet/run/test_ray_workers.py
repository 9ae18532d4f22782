"""What a cluster takes before Ray has a part in it: files of jobs on their way, and workers dealt out to machines."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import pytest

from agent.errors import ConfigurationError
from simulator.fleet.audit.ledger import LedgerTarget
from simulator.fleet.run.job_files import check_files, pack, place_of, unpack
from simulator.fleet.run.ray_workers import Node, place_workers
from simulator.fleet.scenario.model import READER
from simulator.fleet.settings import KeyPairFile
from simulator.fleet.workload.base import Job
from tests.support.workers_to_start import a_job

SECRET = "msk_0123456789abcdef"


def make_job(folder: Path, recording: str = "days/one.csv") -> Job:
    (folder / "keys").mkdir(exist_ok=True)
    secret = folder / "keys" / "secret"
    secret.write_text(SECRET)
    tokens = folder.parent / "tokens.json"
    tokens.write_text("{}")
    signals = {"temperature": {"kind": "csv", "file": recording, "column": "t", "every_s": 1}}
    document = {
        "scenario": "travel",
        "fleet": {"devices": 2, "models": [{"name": "a", "signals": signals}]},
        "phases": [{"kind": "hold", "name": "hold", "duration_s": 1}],
    }
    ledger = LedgerTarget(folder.parent / "run" / "ledger-001.sqlite", 1, 0, 2, 0)
    keys, scenario = (KeyPairFile("mk_key", secret),), READER.validate_python(document)
    return replace(a_job(), scenario=scenario, tokens=tokens, keys=keys, folder=folder, ledger=ledger)


@pytest.fixture
def folder(tmp_path) -> Path:
    folder = tmp_path / "scenarios"
    (folder / "days").mkdir(parents=True)
    (folder / "days" / "one.csv").write_text("t\n1\n")
    (folder / "unrelated.txt").write_text("nobody names it")
    return folder


@pytest.mark.parametrize("name", ["days/one.csv", "../elsewhere.csv", "days/../days/one.csv"])
def test_a_job_finds_its_files_on_another_machine_and_nothing_else_travels(name, folder, tmp_path):
    (tmp_path / "elsewhere.csv").write_text("t\n1\n")
    job = make_job(folder, name)
    job_files = pickle.loads(pickle.dumps(pack([job])))  # noqa: S301 - as Ray does
    assert SECRET not in f"{job_files!r} {job_files}"
    there = tmp_path / "there"
    there.mkdir()
    (moved,) = unpack(job_files, range(1), there)
    assert (moved.folder / name).read_text() == "t\n1\n"
    assert moved.keys[0].secret_key_file.read_text() == SECRET
    assert moved.tokens.read_text() == "{}"
    assert moved.ledger.path == place_of(job.ledger.path, there)
    assert moved.ledger.path.parent.is_dir()
    assert moved.scenario == job.scenario
    files = [path for path in there.rglob("*") if path.is_file()]
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}
    assert {path.name for path in files} == {name.rpartition("/")[2], "secret", "tokens.json"}


def test_a_file_that_another_machine_would_not_find_is_refused_with_the_fix(folder):
    job = make_job(folder, f"{folder}/days/one.csv")
    with pytest.raises(ConfigurationError, match=f"{folder}/days/one.csv: machines .* path from the scenario's folder"):
        check_files(job.scenario)


def test_a_file_that_cannot_be_read_is_one_clear_line(folder):
    job = make_job(folder)
    job.keys[0].secret_key_file.unlink()
    with pytest.raises(ConfigurationError, match="secret cannot be sent to the cluster: No such file"):
        pack([job])


def nodes(*cores: int) -> list[Node]:
    return [Node(f"id-{at}", f"10.0.0.{at}", each) for at, each in enumerate(cores)]


@pytest.mark.parametrize(
    ("workers", "cores", "expected"),
    [
        (1, (2, 2), [1]),
        (2, (2, 2), [1, 1]),
        (4, (2, 2), [2, 2]),
        (3, (4, 2, 2), [1, 1, 1]),
        (7, (8, 2, 2), [3, 2, 2]),
        (12, (8, 2, 2), [8, 2, 2]),
    ],
)
def test_workers_are_spread_over_the_machines_with_neighbouring_numbers(workers, cores, expected):
    placed = place_workers(workers, nodes(*cores))
    assert [len(node.workers) for node in placed] == expected
    assert [number for node in placed for number in node.workers] == list(range(workers))
    assert len({node.node_id for node in placed}) == len(placed)


def test_more_workers_than_cores_are_refused_with_the_numbers():
    with pytest.raises(ConfigurationError, match=r"5 workers .* there are 4 \(10.0.0.0: 2, 10.0.0.1: 2\).*workers: 4"):
        place_workers(5, nodes(2, 2))
