"""Runs that were started here: each is a process of its own, ``fleet-simulator run``, and ends with the service."""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from simulator.children import ChildFailed, ChildProcess, program_path
from simulator.console.runs.folder import PROGRESS_FILE, RunsFolder, empty_run
from simulator.console.runs.programs import PROGRAM
from simulator.console.runs.records import RunShown, RunState
from simulator.console.runs.scenarios import faults_of
from simulator.fleet.target.local import LocalService, write_local
from simulator.service.errors import Conflict, Invalid, NotFound, Unavailable
from simulator.watched import start_task

RUNS_MAX: Final = 4
"""Runs at a time: each takes a core or more of the machine that the service is on."""
_KEPT: Final = 50
_BEGIN_S: Final = 60.0
_LOOK_S: Final = 0.1
_GRACE_S: Final = 10.0
_LAST_BYTES: Final = 16 * 1024
_LAST_LINES: Final = 20


@dataclass(slots=True)
class StartedRun:
    """A run.

    Attributes:
        child: its process.
        log: what the process writes to standard output and error.
        stops: how often it was asked to end: once in order, twice at once.
    """

    id: str
    folder: Path
    scenario: Path
    child: ChildProcess
    log: Path
    stops: int = 0

    @property
    def is_running(self) -> bool:
        """Whether its process is there."""
        return self.child.running


class StartedRuns:
    """All of them, and a folder of mode 700 with the keys that they are given and what they write.

    Args:
        folder: gets the runs.
        write_keys: writes the files ``api_key`` and ``secret_key`` into a folder.
    """

    def __init__(self, folder: RunsFolder, write_keys: Callable[[Path], None]) -> None:
        self._folder = folder
        self._write_keys = write_keys
        self._private: tempfile.TemporaryDirectory[str] | None = None
        self._runs: dict[str, StartedRun] = {}
        self._ends: list[asyncio.Task[int | None]] = []
        self._turn = asyncio.Lock()
        self._closing = False

    def find(self, run_id: str) -> StartedRun | None:
        """The run with this id; None when it was not started here."""
        return self._runs.get(run_id)

    def all(self) -> list[StartedRun]:
        """All of them, the latest first."""
        return list(reversed(self._runs.values()))

    async def start(self, scenario: Path, name: str, standing: LocalService, *, audit: bool) -> StartedRun:
        """Start a run; returns once it has begun, or has said why it does not.

        Args:
            scenario: its file.
            name: of the folder that it gets.
            standing: the service that it goes to; its keys are written by this.
            audit: read everything back at the end.

        Raises:
            Conflict: ``too_many_runs``; ``run_refused``: it has said why.
            Invalid: ``invalid_scenario``: with every fault.
            Unavailable: the folder or the process could not be made.
        """
        async with self._turn:
            self._refuse_many()
            run = self._make(scenario, name)
            words = [str(program_path(PROGRAM)), "run", str(scenario), "--quiet", "--out", str(run.folder)]
            words += ["--progress", str(run.folder / PROGRESS_FILE), *([] if audit else ["--no-audit"])]
            try:
                private = self._prepare(standing)
                run.child.start(words, {"FLEET_SIMULATOR_RUN_UP": str(private)})
            except OSError as error:
                raise Unavailable("run_not_started", f"The run could not be started: {error.strerror}.") from None
            self._runs[run.id] = run
            self._forget_old()
        await self._wait_for_begin(run)
        return run

    def _refuse_many(self) -> None:
        if self._closing:
            raise Unavailable("service_ending", "The service ends.")
        running = [run.id for run in self._runs.values() if run.is_running]
        if len(running) >= RUNS_MAX:
            raise Conflict("too_many_runs", f"{RUNS_MAX} runs go on already ({', '.join(running)}): stop one, or wait.")

    def _make(self, scenario: Path, name: str) -> StartedRun:
        number, run_id = 1, name
        while run_id in self._runs or (self._folder.path / run_id).exists():
            number += 1
            run_id = f"{name}-{number}"
        log = self._private_folder() / f"{run_id}.log"
        return StartedRun(run_id, self._folder.path / run_id, scenario, ChildProcess(run_id, log), log)

    def _private_folder(self) -> Path:
        if self._private is None:
            self._private = tempfile.TemporaryDirectory(prefix="fleet-simulator-runs-")
        return Path(self._private.name)

    def _prepare(self, standing: LocalService) -> Path:
        """What a run finds the service by; the keys travel in files of mode 600."""
        private = self._private_folder()
        self._folder.path.mkdir(parents=True, exist_ok=True)
        standing.key_folder.mkdir(exist_ok=True, mode=0o700)
        self._write_keys(standing.key_folder)
        write_local(private, standing)
        return private

    @property
    def key_folder(self) -> Path:
        """Where the keys of runs are written."""
        return self._private_folder() / "keys"

    def _forget_old(self) -> None:
        ended = [run for run in self._runs.values() if not run.is_running]
        for run in ended[: max(0, len(self._runs) - _KEPT)]:
            del self._runs[run.id]
            run.log.unlink(missing_ok=True)

    async def _wait_for_begin(self, run: StartedRun) -> None:
        """Until its devices and its target are accepted, which is when its progress begins."""
        for _ in range(round(_BEGIN_S / _LOOK_S)):
            if (run.folder / PROGRESS_FILE).exists() or self._closing:
                return
            if not run.is_running:
                break
            await asyncio.sleep(_LOOK_S)
        if run.is_running or self._folder.find(run.id) is not None:
            return
        del self._runs[run.id]
        faults = faults_of("\n".join(last_words(run.log)), run.scenario)
        text = "; ".join(fault["text"] for fault in faults[:5])
        if any(fault["line"] is not None for fault in faults):
            details = [(f"line {fault['line']}, column {fault['column']}", fault["text"]) for fault in faults]
            raise Invalid("invalid_scenario", f"The scenario {run.scenario.name} has faults: {text}", details=details)
        raise Conflict("run_refused", f"The run was not begun: {text}")

    def stop(self, run_id: str, *, at_once: bool) -> StartedRun:
        """Have a run end: in order, which hands over, reads back and reports; a second time at once.

        A stop of one that is being stopped changes nothing, unless ``at_once`` says so: two people may press it.

        Raises:
            NotFound: it was not started here.
            Conflict: ``run_not_running``.
        """
        run = self._runs.get(run_id)
        if run is None:
            text = f"The run {run_id[:80]!r} was not started here: end it where it was started, with Ctrl-C."
            raise NotFound("run_not_started_here", text)
        if not run.is_running:
            raise Conflict("run_not_running", f"The run {run_id} has ended already.")
        if run.stops == 0:
            run.stops = 1
            run.child.terminate()
        elif at_once and run.stops == 1:
            run.stops = 2
            self._ends.append(start_task(asyncio.to_thread(run.child.end, _GRACE_S), f"end of run {run.id}"))
        return run

    def add_to(self, shown: RunShown | None, run: StartedRun) -> RunShown:
        """What is known of a run by its process, beside what its folder says."""
        if run.is_running:
            begun = shown is not None
            shown = shown or empty_run(run.id, RunState.STARTING)
            if run.stops:
                shown["state"] = RunState.STOPPING
            elif not begun or shown["state"] is RunState.UNREADABLE:
                shown["state"] = RunState.STARTING
                shown["fault"] = None
            else:
                shown["state"] = RunState.RUNNING
        else:
            words = last_words(run.log)
            if shown is None:
                self._tidy(run)
                why = _ended_why(run, words)
                shown = empty_run(run.id, RunState.NEVER_BEGAN, why)
            shown["last_words"] = words
        shown["scenario"] = shown["scenario"] or run.scenario.name
        shown["started_here"] = True
        return shown

    def _tidy(self, run: StartedRun) -> None:
        """Take away what is left of a run that never began: nothing but its progress."""
        with contextlib.suppress(OSError):
            (run.folder / PROGRESS_FILE).unlink(missing_ok=True)
            run.folder.rmdir()

    def begin_end(self) -> None:
        """Ask all of them to end; the service still answers."""
        if self._closing:
            return
        self._closing = True
        for run in self._runs.values():
            if run.is_running and run.stops == 0:
                run.stops = 1
                run.child.terminate()

    async def close(self) -> None:
        """Wait for all of them, but not for ever: then the process goes with all that it has started."""
        self.begin_end()
        running = [run for run in self._runs.values() if run.is_running]
        await asyncio.gather(*(asyncio.to_thread(_wait_or_kill, run.child) for run in running), *self._ends)
        if self._private is not None:
            self._private.cleanup()
            self._private = None


def _wait_or_kill(child: ChildProcess) -> None:
    """The process was asked to end. One more signal would cut off what it hands over."""
    with contextlib.suppress(ChildFailed):
        child.wait_until(lambda: not child.running, "its end", _GRACE_S)
    child.kill_all()


def last_words(log: Path) -> list[str]:
    """The last lines that a run wrote."""
    with contextlib.suppress(OSError):
        with log.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _LAST_BYTES))
            text = file.read().decode("utf-8", "replace")
        return [line for line in text.splitlines() if line.strip()][-_LAST_LINES:]
    return []


def _ended_why(run: StartedRun, words: list[str]) -> str:
    if run.stops:
        return "it was stopped before its load began"
    why = words[-1].removeprefix("Error: ") if words else "it did not say why"
    return f"it ended with exit code {run.child.exit_code} before its load began: {why}"
