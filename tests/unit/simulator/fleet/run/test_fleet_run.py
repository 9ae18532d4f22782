"""What is left of a run that could not begin."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Self

import pytest
from click.testing import CliRunner, Result

from agent.errors import ConfigurationError
from simulator.cli import program
from simulator.exit_codes import ExitCode
from simulator.fleet.report.writing import read_record
from simulator.fleet.run import fleet_run
from simulator.fleet.run.local_workers import LocalWorkers
from simulator.fleet.run.preparing import Preparation
from simulator.fleet.run.run import Run
from simulator.fleet.workload.base import WorkloadSummary

# Tests of other processes have devices of their own: two runs never have the same ones.
SCENARIO = """\
scenario: s
fleet: {{devices: 1, identities: {{prefix: p{}-}}}}
phases: [{{name: hold, kind: hold, duration_s: 1s}}]
"""


def test_a_target_that_is_down_at_the_start_is_told_and_the_same_command_can_be_given_again(tmp_path: Path) -> None:
    scenario, secret, out = tmp_path / "s.yaml", tmp_path / "secret", tmp_path / "out"
    scenario.write_text(SCENARIO.format(os.getpid()))
    secret.write_text("msk_secret")
    secret.chmod(0o600)
    where = ["--base-url", "http://127.0.0.1:9", "--api-key", "mk_key", "--secret-key-file", str(secret)]
    for _ in range(2):
        done = CliRunner().invoke(program, ["run", str(scenario), *where, "--out", str(out)], standalone_mode=False)
        assert done.return_value == ExitCode.UNREACHABLE, done.output
        assert "cannot connect to http://127.0.0.1:9" in done.output
        assert not out.exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("registered", [300, 0])
def test_a_run_that_is_ended_while_devices_are_prepared_says_what_is_left_and_leaves_no_folder(
    number: signal.Signals, registered: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def prepare(_self: Preparation, told: Callable[[int, int], None]) -> None:
        if registered:
            told(registered, 1000)
        signal.raise_signal(number)
        await asyncio.sleep(60)
        raise AssertionError("it goes on")

    monkeypatch.setattr(Preparation, "prepare", prepare)
    scenario, secret, out = tmp_path / "s.yaml", tmp_path / "secret", tmp_path / "out"
    scenario.write_text(SCENARIO.format(os.getpid()))
    secret.write_text("msk_secret")
    secret.chmod(0o600)
    where = ["--base-url", "http://127.0.0.1:9", "--api-key", "mk_key", "--secret-key-file", str(secret)]
    done = CliRunner().invoke(program, ["run", str(scenario), *where, "--out", str(out)], standalone_mode=False)
    assert getattr(done.exception, "exit_code", done.return_value) == ExitCode.INTERRUPTED
    last = done.output.strip().splitlines()[-1]
    begun = "ended by hand while devices were being prepared"
    assert last == (
        f"{begun}, at 300 of 1,000: no load was made; the devices that are registered stay at the target: the next run "
        "takes them, and 'fleet-simulator cleanup' removes them"
        if registered
        else f"{begun}: no load was made"
    )
    assert not out.exists()


class Crew(LocalWorkers):
    """Workers that cannot be started, or whose ledgers somebody does not wait for."""

    def __init__(self, start: BaseException | None = None, collect: BaseException | None = None) -> None:
        self._errors = {"start": start, "collect": collect}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None: ...

    def start(self, jobs: object) -> None:
        del jobs
        self._raise("start")

    def collect(self, on_progress: object) -> tuple[str, ...]:
        del on_progress
        self._raise("collect")
        return ()

    def _raise(self, step: str) -> None:
        if (error := self._errors[step]) is not None:
            raise error


def run_with(crew: Crew, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Result, Path]:
    """A run whose devices are there, and whose workers are these."""

    async def prepare(preparation: Preparation, _told: Callable[[int, int], None]) -> None:
        preparation.is_audited = False

    monkeypatch.setattr(Preparation, "prepare", prepare)
    monkeypatch.setattr(fleet_run, "LocalWorkers", lambda _work: crew)
    scenario, secret, out = tmp_path / "s.yaml", tmp_path / "secret", tmp_path / "out"
    scenario.write_text(SCENARIO.format(os.getpid()))
    secret.write_text("msk_secret")
    secret.chmod(0o600)
    where = ["--base-url", "http://127.0.0.1:9", "--api-key", "mk_key", "--secret-key-file", str(secret)]
    return CliRunner().invoke(program, ["run", str(scenario), *where, "--out", str(out)], standalone_mode=False), out


def test_workers_that_cannot_be_started_leave_no_folder_and_the_command_can_be_given_again(tmp_path, monkeypatch):
    for _ in range(2):
        crew = Crew(start=ConfigurationError(["10.0.0.2: its cores were not free: write fewer workers"], "--cluster"))
        done, out = run_with(crew, tmp_path, monkeypatch)
        assert done.return_value == ExitCode.USAGE, done.output
        assert "write fewer workers" in done.output
        assert not out.exists()


def test_ctrl_c_while_ledgers_are_fetched_ends_that_and_the_run_has_its_record(tmp_path, monkeypatch):
    class Conducted:
        def __init__(self, run: Run, _workers: object) -> None:
            run.summaries[0] = WorkloadSummary()

        def conduct(self) -> None: ...

    monkeypatch.setattr(fleet_run, "Coordinator", Conducted)
    done, out = run_with(Crew(collect=KeyboardInterrupt()), tmp_path, monkeypatch)
    assert done.return_value == ExitCode.INCONCLUSIVE, done.output
    verdict = read_record(out).verdict
    assert "not every ledger was fetched: that was ended by hand" in verdict.sentences


@pytest.mark.parametrize("view", ["--progress", "--metrics-port"])
def test_a_view_that_cannot_be_opened_leaves_no_folder_and_the_command_can_be_given_again(
    view: str, tmp_path: Path
) -> None:
    scenario, secret, out = tmp_path / "s.yaml", tmp_path / "secret", tmp_path / "out"
    scenario.write_text(SCENARIO.format(os.getpid()))
    secret.write_text("msk_secret")
    secret.chmod(0o600)
    where = ["--base-url", "http://127.0.0.1:9", "--api-key", "mk_key", "--secret-key-file", str(secret)]
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as taken:
        value = {"--progress": str(tmp_path / "no" / "p.jsonl"), "--metrics-port": str(taken.getsockname()[1])}[view]
        arguments = ["run", str(scenario), *where, "--out", str(out), view, value]
        for _ in range(2):
            done = CliRunner().invoke(program, arguments, standalone_mode=False)
            assert done.return_value == ExitCode.USAGE, done.output
            assert view in done.output
            assert not out.exists()
