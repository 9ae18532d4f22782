"""What a cluster takes before Ray has a part in it: files of jobs on their way, and workers dealt out to machines."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import pytest

from agent.errors import ConfigurationError
from simulator.fleet.audit.ledger import LedgerTarget
from simulator.fleet.run.job_files import check_files, pack, unpack
from simulator.fleet.run.ray_workers import Node, place_workers
from simulator.fleet.scenario.model import READER
from simulator.fleet.target.target import KeyPairFile
from simulator.fleet.workload.devices import Address
from simulator.fleet.workload.fleet import FleetJob

SECRET = "msk_0123456789abcdef"


def make_job(folder: Path, **more: object) -> FleetJob:
    (folder / "keys").mkdir(exist_ok=True)
    secret = folder / "keys" / "secret"
    secret.write_text(SECRET)
    tokens = folder.parent / "tokens.json"
    tokens.write_text("{}")
    signals = {"temperature": {"kind": "csv", "file": "days/one.csv", "column": "t", "every_s": 1}}
    document = {
        "scenario": "travel",
        "fleet": {"devices": 2, "models": [{"name": "a", "signals": signals}]},
        "phases": [{"kind": "hold", "name": "hold", "duration_s": 1}],
        **more,
    }
    keys = (KeyPairFile("mk_key", secret),)
    return FleetJob(
        scenario=READER.validate_python(document),
        address=Address("http://127.0.0.1:9", keys, tokens),
        keys=keys,
        operator_url="http://127.0.0.1:9",
        worker=1,
        devices=range(2),
        device_ids=("d0", "d1"),
        names=("n0", "n1"),
        product_id="p",
        folder=folder,
        model_numbers=(0, 0),
        offers=frozenset(),
        device_offers=frozenset(),
        run="r",
        ledger=LedgerTarget(folder.parent / "run" / "ledger-001.sqlite", 1, 0, 2, 0),
    )


@pytest.fixture
def folder(tmp_path) -> Path:
    folder = tmp_path / "scenarios"
    (folder / "days").mkdir(parents=True)
    (folder / "days" / "one.csv").write_text("t\n1\n")
    (folder / "unrelated.txt").write_text("nobody names it")
    return folder


def test_a_job_finds_its_files_on_another_machine_and_nothing_else_travels(folder, tmp_path):
    job = make_job(folder)
    job_files = pickle.loads(pickle.dumps(pack([job])))  # noqa: S301 - as Ray does
    there = tmp_path / "there"
    there.mkdir()
    (moved,), written = unpack(job_files, range(1), there)
    assert (moved.folder / "days" / "one.csv").read_text() == "t\n1\n"
    assert not (moved.folder / "unrelated.txt").exists()
    assert moved.keys[0].secret_key_file.read_text() == SECRET
    assert moved.address.tokens.read_text() == "{}"
    paths = [moved.keys[0].secret_key_file, moved.address.tokens, moved.ledger.path, moved.folder]
    assert all(path.is_relative_to(there) for path in paths)
    assert written == {str(job.ledger.path): moved.ledger.path}
    assert (moved.device_ids, moved.scenario) == (job.device_ids, job.scenario)
    files = [path for path in there.rglob("*") if path.is_file()]
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}


def test_no_text_of_it_shows_a_secret(folder):
    job_files = pack([make_job(folder)])
    assert SECRET not in f"{job_files!r} {job_files}"
    assert SECRET.encode() in job_files.contents.values()


def replaying(file: str) -> dict[str, object]:
    """A fleet whose readings are in a file."""
    signals = {"temperature": {"kind": "csv", "file": file, "column": "t", "every_s": 1}}
    return {"devices": 2, "models": [{"name": "a", "signals": signals}]}


@pytest.mark.parametrize(
    "way", ["../elsewhere.csv", "days/../days/one.csv", "../scenarios/days/one.csv", "{}/days/one.csv"]
)
def test_files_that_another_machine_would_not_find_are_refused_with_the_fix(way, folder, tmp_path):
    (tmp_path / "elsewhere.csv").write_text("t\n1\n")
    name = way.format(folder)
    job = make_job(folder, fleet=replaying(name))
    sentence = f"{name}: machines of a cluster get the files in {folder} and below: copy it there, and write its path"
    for refusing in (lambda: pack([job]), lambda: check_files(job.scenario, folder)):
        with pytest.raises(ConfigurationError, match=re.escape(sentence)):
            refusing()


def test_files_that_this_machine_alone_reads_or_that_travel_as_paths_may_be_anywhere(folder, tmp_path):
    names, secret = tmp_path / "names.csv", tmp_path / "secret"
    for path in (names, secret):
        path.write_text("device_identifier\n")
    job = make_job(
        folder,
        target={"keys": [{"api_key": "mk_key", "secret_key_file": str(secret)}]},
        commands=[{"rate_per_s": 1, "payload": {"command": "ping", "path": str(names)}, "expect": "rejected"}],
    )
    check_files(job.scenario, folder)
    assert names not in pack([job]).contents


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
        (6, (8, 2, 2), [4, 1, 1]),
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
