"""What is left of a run that could not begin."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from agent.errors import ConfigurationError
from simulator.cli import program
from simulator.exit_codes import ExitCode
from simulator.fleet.audit.ledger import AuditRules, ledger_path, make_run_database
from simulator.fleet.report.folder import read_record
from simulator.fleet.run import coordinator
from simulator.fleet.run.local_workers import LocalWorkers
from simulator.fleet.run.preparing import Preparation
from simulator.fleet.run.worker import FromWorker, Lost, Problem
from simulator.fleet.workload.base import WorkloadSummary

# Tests of other processes have devices of their own: two runs never have the same ones.
SCENARIO = f"""\
scenario: s
fleet: {{devices: 1, prefix: p{os.getpid()}-}}
phases: [{{name: hold, kind: hold, duration_s: 1s}}]
"""


def run(folder: Path, *options: str) -> tuple[int, str, bool]:
    """Give the command.

    Returns:
        Its exit code, what it says, and whether there is a folder of the run.
    """
    scenario, secret, out = folder / "s.yaml", folder / "secret", folder / "out"
    scenario.write_text(SCENARIO)
    secret.write_text("msk_secret")
    secret.chmod(0o600)
    where = ["--base-url", "http://127.0.0.1:9", "--api-key", "mk_key", "--secret-key-file", str(secret)]
    arguments = ["run", str(scenario), *where, "--out", str(out), *options]
    done = CliRunner().invoke(program, arguments, standalone_mode=False)
    return getattr(done.exception, "exit_code", done.return_value), done.output, out.exists()


def check_refused(folder: Path, code: ExitCode, words: str, *options: str) -> None:
    """The command is refused, leaves no folder, and can be given again."""
    for _ in range(2):
        found, said, has_folder = run(folder, *options)
        assert (found, has_folder) == (code, False), said
        assert words in said


def test_a_target_that_is_down_at_the_start_is_told(tmp_path: Path) -> None:
    check_refused(tmp_path, ExitCode.UNREACHABLE, "cannot connect to http://127.0.0.1:9")


@pytest.mark.parametrize("view", ["--progress", "--metrics-port"])
def test_a_view_that_cannot_be_opened_is_told(view: str, tmp_path: Path) -> None:
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as taken:
        value = {"--progress": str(tmp_path / "no" / "p.jsonl"), "--metrics-port": str(taken.getsockname()[1])}[view]
        check_refused(tmp_path, ExitCode.USAGE, view, view, value)


@pytest.mark.parametrize(
    ("number", "registered", "said"),
    [
        (signal.SIGTERM, 0, ": no load was made"),
        (
            signal.SIGINT,
            300,
            ", at 300 of 1,000: no load was made; the devices that are registered stay at the target: the next run",
        ),
    ],
)
def test_a_run_that_is_ended_while_devices_are_prepared_says_what_is_left_and_leaves_no_folder(
    number: signal.Signals, registered: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def prepare(_self: Preparation, told: Callable[[int, int], None]) -> None:
        if registered:
            told(registered, 1000)
        signal.raise_signal(number)
        await asyncio.sleep(60)
        raise AssertionError("it goes on")

    monkeypatch.setattr(Preparation, "prepare", prepare)
    code, output, has_folder = run(tmp_path)
    assert (code, has_folder) == (ExitCode.INTERRUPTED, False)
    assert f"ended by hand while devices were being prepared{said}" in output


@pytest.fixture
def use_workers(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """From now on devices are there, and a run has one worker, of which nothing is there but these methods."""

    folders: set[Path] = set()

    async def prepare(preparation: Preparation, _told: Callable[[int, int], None]) -> None:
        preparation.is_audited = False
        make_run_database(preparation.folder, AuditRules(began_ms=0), ())
        folders.add(preparation.folder)

    def end(*_: object) -> None:
        for folder in folders:
            ledger_path(folder, 0).touch()  # a worker writes its ledger until it has ended

    def use(says: Sequence[FromWorker] = (), **methods: Callable[..., object]) -> None:
        left: list[FromWorker] = []
        given = {
            "__exit__": end,
            "start": lambda _self, _jobs: left.extend(says),
            "living": property(lambda _self: (0,) if left else ()),
            "receive": lambda _self, _timeout_s: ((0, left.pop(0)) for _ in range(len(left))),
            **methods,
        }
        monkeypatch.setattr(Preparation, "prepare", prepare)
        for name, method in given.items():
            monkeypatch.setattr(LocalWorkers, name, method)

    return use


def raising(error: BaseException) -> Callable[..., None]:
    def raise_it(*_: object) -> None:
        raise error

    return raise_it


def test_workers_that_cannot_be_started_leave_no_folder(use_workers, tmp_path):
    use_workers(start=raising(ConfigurationError(["worker 0 could not be started: write fewer workers"], "workers")))
    check_refused(tmp_path, ExitCode.USAGE, "write fewer workers")


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ([Problem("too many open files")], "worker 0: too many open files"),
        ([], "no worker could begin: worker 0: its process ended with exit code 1"),
    ],
)
def test_workers_that_cannot_begin_say_why_and_leave_no_folder(said, words, use_workers, tmp_path):
    use_workers([*said, Lost("its process ended with exit code 1")])
    check_refused(tmp_path, ExitCode.UNREACHABLE, words)


def test_workers_that_are_not_ready_in_time_leave_no_folder(use_workers, tmp_path, monkeypatch):
    monkeypatch.setattr(coordinator, "_BUILD_S", -1.0)
    use_workers(receive=lambda _self, _timeout_s: (), living=property(lambda _self: (0,)))
    check_refused(tmp_path, ExitCode.UNREACHABLE, "the workers did not get ready in time")


def test_ctrl_c_while_workers_are_started_leaves_no_folder(use_workers, tmp_path):
    use_workers(start=raising(KeyboardInterrupt()))
    check_refused(tmp_path, ExitCode.INTERRUPTED, "ended by hand while workers were being started: no load was made")


def test_ctrl_c_while_ledgers_are_fetched_ends_that_and_the_run_has_its_record(use_workers, tmp_path, monkeypatch):
    monkeypatch.setattr(coordinator.Run, "wait_until_ready", lambda _run: None)
    monkeypatch.setattr(coordinator.Run, "conduct", lambda run: run.summaries.update({0: WorkloadSummary()}))
    use_workers(collect=raising(KeyboardInterrupt()))
    code, output, _ = run(tmp_path)
    assert code == ExitCode.INCONCLUSIVE, output
    assert "not every ledger was fetched: that was ended by hand" in read_record(tmp_path / "out").verdict.sentences
