"""Runs that were started here: each is a process of its own, ``fleet-simulator run``, and ends with the service."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from agent.errors import ConfigurationError, StorageError
from simulator.children import ChildProcess, program_path
from simulator.console.plain_files import is_name, read_plain
from simulator.console.runs import PROGRESS_FILE, RunsFolder, RunShown
from simulator.keys import write_secret
from simulator.service.caller import is_loopback_host
from simulator.service.errors import ApiError, conflict, not_found, unavailable
from simulator.service.service import Service
from simulator.yaml_document import BYTES_MAX, read_document

RUNS_MAX: Final = 4
"""Runs at a time: each takes a core or more of the machine that the service is on."""
_KEPT: Final = 50
_BEGIN_S: Final = 60.0
_LOOK_S: Final = 0.1
_GRACE_S: Final = 10.0
_LAST_BYTES: Final = 8 * 1024


class Scenarios:
    """The folder of scenarios that may be started.

    Args:
        path: None where none may be.

    Raises:
        ConfigurationError: it is no folder.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = None if path is None else path.absolute()
        if path is not None and not path.is_dir():
            fix = "name one that scenarios (*.yaml) are in; 'fleet-simulator init' writes one"
            raise ConfigurationError([f"--scenarios: {path} is no folder: {fix}"], "--scenarios")

    def names(self) -> list[str] | None:
        """All scenarios, by name; None where none may be started."""
        if self._path is None:
            return None
        found = (path for path in self._path.iterdir() if path.suffix in {".yaml", ".yml"} and path.is_file())
        return sorted(path.name for path in found if is_name(path.name))

    def find(self, name: str, base_url: str) -> Path:
        """The file of a scenario that may go to the service at ``base_url``.

        Raises:
            ApiError: 404 ``scenario_not_found``, 409 ``no_scenarios``, 400 ``invalid_scenario``; 400
                ``foreign_target``: it names another server, which would not be the one that is loaded.
        """
        if self._path is None:
            text = "This service starts no runs: start it with --scenarios DIR, the folder that scenarios are in."
            raise conflict("no_scenarios", text)
        if name not in (self.names() or ()):
            raise not_found("scenario", name, "in the folder of scenarios: name a .yaml file")
        path = self._path / name
        try:
            document = read_document(read_plain(path.resolve(), bytes_max=BYTES_MAX + 1) or b"").value
        except (StorageError, ConfigurationError) as error:
            why = "; ".join(error.faults) if isinstance(error, ConfigurationError) else str(error)
            raise ApiError(400, "invalid_scenario", f"The scenario cannot be used: {why}") from None
        target = document.get("target") if isinstance(document, dict) else None
        named = target.get("base_url") if isinstance(target, dict) else None
        if named is not None and not _is_here(str(named)):
            text = (
                f"target.base_url is {str(named)[:100]!r}, and a run that is started here goes to {base_url}: take it "
                "out of the scenario, or run it in a terminal."
            )
            raise ApiError(400, "foreign_target", text)
        return path


def _is_here(address: str) -> bool:
    """Whether an address is of this machine: scenarios to start from name a port of it, which is replaced."""
    return is_loopback_host(urlsplit(address).netloc.rpartition("@")[2]) if "://" in address else False


@dataclass(slots=True)
class StartedRun:
    """A run that was started here.

    Attributes:
        log: what its process writes to standard output and error.
        stops: how often it was asked to end: once in order, twice at once.
    """

    id: str
    scenario: str
    process: ChildProcess
    log: Path
    stops: int = 0

    def last_words(self) -> str:
        """The end of what it wrote."""
        try:
            size = self.log.stat().st_size
            content = read_plain(self.log, first=max(0, size - _LAST_BYTES), bytes_max=_LAST_BYTES) or b""
        except (OSError, StorageError):
            return ""
        return content.decode("utf-8", "replace").strip()


class StartedRuns:
    """All of them.

    Args:
        service: that runs go to.
        folder: gets the runs.
        scenarios: that may be started.
        up: see :class:`~simulator.console.app.ConsoleSettings`.
    """

    def __init__(self, service: Service, folder: RunsFolder, scenarios: Scenarios, up: Path | None) -> None:
        self.scenarios = scenarios
        self._service = service
        self._folder = folder
        self._up = up
        self._logs = tempfile.TemporaryDirectory(prefix="fleet-simulator-runs-")
        self._runs: dict[str, StartedRun] = {}
        self._secret: int | None = None
        self._is_closing = False

    async def start(self, name: str) -> str:
        """Start a run; returns its id once it has begun.

        Raises:
            ApiError: see :meth:`Scenarios.find`; 409 ``too_many_runs``, ``secret_unknown`` or ``run_refused``, with
                what the program said; 503 ``run_not_started``.
        """
        scenario = self.scenarios.find(name, self._service.public_url)
        running = [run.id for run in self._runs.values() if run.process.running]
        if len(running) >= RUNS_MAX or self._is_closing:
            raise conflict("too_many_runs", f"{RUNS_MAX} runs go on ({', '.join(running)}): stop one, or wait.")
        run = self._make(scenario)
        try:
            self._folder.path.mkdir(parents=True, exist_ok=True)
            out = self._folder.path / run.id
            words = ["run", str(scenario), "--quiet", "--out", str(out), "--progress", str(out / PROGRESS_FILE)]
            run.process.start([str(program_path("fleet-simulator")), *words, *self._target()])
        except OSError as error:
            raise unavailable("run_not_started", f"The run could not be started: {error.strerror}.", 10) from None
        self._runs[run.id] = run
        self._forget_old()
        await self._wait_for_begin(run)
        return run.id

    def _make(self, scenario: Path) -> StartedRun:
        plain = re.sub(r"[^A-Za-z0-9._-]+", "-", scenario.stem)[:80].strip(".-") or "run"
        run_id = first = f"{plain}-{time.strftime('%Y%m%d-%H%M%S')}"
        number = 1
        while run_id in self._runs or (self._folder.path / run_id).exists():
            number += 1
            run_id = f"{first}-{number}"
        log = Path(self._logs.name) / f"{run_id}.log"
        return StartedRun(run_id, scenario.name, ChildProcess(run_id, log), log)

    def _target(self) -> list[str]:
        """The options by which a run finds the service and its keys."""
        if self._up is not None:
            return ["--up", str(self._up)]
        keys = self._service.own_keys
        if keys is None:
            text = "A run needs the first account's secret key, which an earlier start made: give it to this one."
            raise conflict("secret_unknown", text)
        file = self._secret_file(keys.secret_key.reveal())
        return ["--base-url", self._service.public_url, "--api-key", keys.api_key, "--secret-key-file", str(file)]

    def _secret_file(self, secret: str) -> Path:
        """A file with the secret for processes of this user.

        Where the system can, it lies in memory and is gone with this process, however that ends.
        """
        if not hasattr(os, "memfd_create"):
            path = Path(self._logs.name) / "secret_key"
            write_secret(path, secret)
            return path
        if self._secret is None:
            self._secret = os.memfd_create("secret_key")
            os.fchmod(self._secret, 0o600)
            os.write(self._secret, secret.encode())
        return Path(f"/proc/{os.getpid()}/fd/{self._secret}")

    def _forget_old(self) -> None:
        ended = [run for run in self._runs.values() if not run.process.running]
        for run in ended[: max(0, len(self._runs) - _KEPT)]:
            del self._runs[run.id]
            run.log.unlink(missing_ok=True)

    async def _wait_for_begin(self, run: StartedRun) -> None:
        """Until its progress begins, which is when scenario and target are accepted."""
        for _ in range(round(_BEGIN_S / _LOOK_S)):
            if (self._folder.path / run.id / PROGRESS_FILE).exists() or not run.process.running:
                break
            await asyncio.sleep(_LOOK_S)
        if run.process.running or self._folder.find(run.id) is not None:
            return
        del self._runs[run.id]
        out = self._folder.path / run.id
        with contextlib.suppress(OSError):  # nothing but its progress is left of it
            (out / PROGRESS_FILE).unlink(missing_ok=True)
            out.rmdir()
        why = run.last_words() or f"it ended with exit code {run.process.exit_code}"
        raise conflict("run_refused", f"The run did not begin: {why}")

    def stop(self, run_id: str, *, at_once: bool) -> None:
        """Have a run end in order, which hands over, reads back and reports; ``at_once`` ends one that does so already.

        Raises:
            ApiError: 404 ``run_not_started_here``, 409 ``run_not_running``.
        """
        run = self._runs.get(run_id)
        if run is None:
            text = "This run was not started here: end it where it was started, with Ctrl-C."
            raise ApiError(404, "run_not_started_here", text)
        if not run.process.running:
            raise conflict("run_not_running", "This run has ended already.")
        if run.stops == 0:
            run.stops = 1
            run.process.terminate()
        elif at_once:
            run.stops = 2
            run.process.kill_all()

    def running_here(self, known: set[str]) -> Iterator[RunShown]:
        """Runs that go on and are not among ``known``: they have written nothing down yet."""
        for run in reversed(self._runs.values()):
            if run.process.running and run.id not in known:
                yield self.add_to(RunShown(id=run.id, word="starting"))

    def add_to(self, shown: RunShown) -> RunShown:
        """A run with what is known of it by its process."""
        run = self._runs.get(shown.id)
        if run is None:
            return shown
        more = {"started_here": True, "scenario": shown.scenario or run.scenario}
        if run.process.running:
            word = "stopping" if run.stops else "starting" if shown.word == "starting" else "running"
            return shown.model_copy(update={**more, "word": word, "fault": None})
        return shown.model_copy(update={**more, "last_words": run.last_words()})

    def find(self, run_id: str) -> RunShown | None:
        """A run that goes on and has written nothing down yet; None for any other."""
        return next((run for run in self.running_here(set()) if run.id == run_id), None)

    async def close(self) -> None:
        """End all of them: in order first, and after some seconds with all that they have started."""
        self._is_closing = True
        running = [run.process for run in self._runs.values() if run.process.running]
        await asyncio.gather(*(asyncio.to_thread(process.end, _GRACE_S) for process in running))
        self._logs.cleanup()
        if self._secret is not None:
            os.close(self._secret)
            self._secret = None
