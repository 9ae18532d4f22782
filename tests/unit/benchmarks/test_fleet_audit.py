"""The audit over a real service: a hundred of everything that can go wrong, planted in its storage, each one named."""

from __future__ import annotations

import asyncio
import json

import pytest

from benchmarks.fleet_audit import BATCH, KINDS, database_in, prove, time_writing
from simulator.cli import main
from simulator.exit_codes import ExitCode
from simulator.fleet.audit.folder import readback_path
from simulator.keys import Keys, write_secret
from simulator.service.clock import SystemClock
from tests.service_running import running


@pytest.fixture(scope="module")
def proven(tmp_path_factory):
    """A run with a hundred plants of each kind, its service still there, and options that lead to it."""
    folder = tmp_path_factory.mktemp("audit")
    with running(data_dir=folder / "service", clock=SystemClock()) as bench:
        keys = Keys(bench.service.api_key, bench.service.secret_key)
        proof = asyncio.run(
            prove(
                bench.service.base_url,
                keys,
                database_in(folder / "service"),
                folder / "run",
                devices=100,
                readings=5 * BATCH,
                planted=100,
                seed=3,
            )
        )
        secret = write_secret(folder / "secret_key", bench.service.secret_key.reveal())
        way = ["--base-url", bench.service.base_url, "--api-key", keys.api_key, "--secret-key-file", str(secret)]
        yield proof, folder / "run", way


def test_a_clean_run_over_a_real_service_has_no_findings(proven):
    proof, _, _ = proven
    assert proof.clean.complete
    assert proof.clean.findings == ()
    assert (proof.clean.readings.sent, proof.clean.readings.accepted, proof.clean.readings.stored) == (1000, 1000, 1000)


def test_a_hundred_losses_doubles_alterations_and_reorders_are_each_named(proven):
    proof, _, _ = proven
    assert proof.held
    assert {each.kind for each in proof.planted} == set(KINDS)
    assert len(proof.planted) == 400
    readings = proof.found.readings
    assert (readings.lost, readings.doubled, readings.altered, readings.reordered) == (100, 100, 100, 100)
    assert (readings.unknown, readings.late, readings.stored) == (0, 0, 1000)


def call(capsys, *arguments):
    """Exit code, standard output and standard error of a command line."""
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    said = capsys.readouterr()
    return ended.value.code, said.out, said.err


def test_a_finished_run_is_audited_again_from_the_command_line(proven, capsys):
    _, run, way = proven
    code, out, _ = call(capsys, "audit", run, *way)
    assert code == ExitCode.DATA_LOST
    assert "1,000 sent, 1,000 accepted, 1,000 given back, 100 lost, 100 doubled, 100 altered" in out
    assert len(out.splitlines()) == 402
    code, out, _ = call(capsys, "audit", run, *way, "--json", "--findings-max", 3)
    assert code == ExitCode.DATA_LOST
    assert [each["kind"] for each in json.loads(out)["findings"]] == ["lost"] * 3
    assert readback_path(run).exists()


def test_a_wrong_key_and_a_folder_of_something_else_are_one_line_each(proven, capsys, tmp_path):
    _, run, way = proven
    wrong = [*way[:-1], write_secret(tmp_path / "secret_key", "msk_wrong")]
    code, _, err = call(capsys, "audit", run, *wrong)
    assert (code, len(err.splitlines())) == (ExitCode.USAGE, 1)
    assert "--secret-key-file" in err
    code, _, err = call(capsys, "audit", tmp_path, *way)
    assert (code, len(err.splitlines())) == (ExitCode.USAGE, 1)
    assert "holds no ledgers" in err


def test_the_cost_of_writing_down_is_measured(capsys):
    time_writing(100)
    assert "bytes a reading" in capsys.readouterr().out
