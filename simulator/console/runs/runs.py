"""Everything of the console that has to do with fleet runs, put together for one service."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from agent.errors import ConfigurationError
from simulator.console.runs.folder import RunsFolder
from simulator.console.runs.programs import Programs
from simulator.console.runs.records import RunList, RunShown
from simulator.console.runs.scenarios import ScenariosFolder
from simulator.console.runs.started import StartedRuns
from simulator.fleet.target.local import LocalService
from simulator.keys import write_secret
from simulator.service.errors import Conflict, NotFound, not_found
from simulator.service.service import Service

T = TypeVar("T")

DEFAULT_FOLDER: Final = Path("fleet-runs")
"""Where ``fleet-simulator run`` puts runs, too."""
STREAMS_MAX: Final = 16
"""Watchers of runs at a time."""


@dataclass(frozen=True, slots=True)
class RunSettings:
    """Where runs and scenarios are.

    Attributes:
        runs: the folder of runs, made when the first one is started; None for :data:`DEFAULT_FOLDER`.
        scenarios: the folder of scenarios that may be started; None starts none.
        complete: adds broker and gateway, where there are some, to what a run finds.
    """

    runs: Path | None = None
    scenarios: Path | None = None
    complete: Callable[[LocalService], LocalService] = lambda standing: standing


class Runs:
    """The runs of a folder, those that go on, and the scenarios that may be started.

    Args:
        service: that runs go to.
        settings: of the folders.

    Raises:
        ConfigurationError: a folder cannot be used.
    """

    def __init__(self, service: Service, settings: RunSettings) -> None:
        self._service = service
        self._settings = settings
        self.programs = Programs()
        self.folder = RunsFolder(settings.runs or DEFAULT_FOLDER)
        if settings.runs is not None:
            self.folder.check()
        self.scenarios = ScenariosFolder(settings.scenarios, self.programs)
        self.started = StartedRuns(self.folder, self._write_keys)
        self.watchers = 0
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="console-runs")
        self._closing: asyncio.Future[None] | None = None

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Around all requests: at the end no run that was started here is left."""
        try:
            yield
        finally:
            self.close()
            await self.started.close()
            self._reader.shutdown(wait=True)

    def close(self) -> None:
        """The service begins to end: streams end, runs are asked to."""
        if not self.closing.done():
            self.closing.set_result(None)
        self.programs.close()
        self.started.begin_end()

    @property
    def closing(self) -> asyncio.Future[None]:
        """Done when the service begins to end."""
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_future()
        return self._closing

    async def in_reader(self, work: Callable[[], T]) -> T:
        """What reads the folder: one at a time, in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._reader, work)

    async def list(self, q: str, offset: int, limit: int) -> RunList:
        """A part of the list."""
        return await self.in_reader(lambda: self._list(q.casefold(), offset, limit))

    def _list(self, q: str, offset: int, limit: int) -> RunList:
        found = {run.id: run for run in self.folder.all()}
        # What goes on, or never began, has no place by its time: it comes first.
        first = [run.id for run in self.started.all() if run.is_running or run.id not in found]
        names = [name for name in (*first, *(name for name in found if name not in first)) if q in name.casefold()]
        return RunList(
            data=[self._show(name) for name in names[offset : offset + limit]],
            total=len(names),
            folder=str(self.folder.path),
            scenarios=None if self.scenarios.path is None else str(self.scenarios.path),
        )

    async def show(self, run_id: str) -> RunShown:
        """One run.

        Raises:
            NotFound: ``run_not_found``.
        """
        return await self.in_reader(lambda: self._show(run_id))

    def _show(self, run_id: str) -> RunShown:
        found, started = self.folder.find(run_id), self.started.find(run_id)
        if found is None and started is None:
            raise self.no_run(run_id)
        shown = None if found is None else self.folder.show(found)
        if started is not None:
            return self.started.add_to(shown, started)
        assert shown is not None  # noqa: S101 - one of both is there
        return shown

    def no_run(self, run_id: str) -> NotFound:
        """There is no such run."""
        return not_found("run", run_id, f"in {self.folder.path}")

    def standing(self, port: int) -> LocalService:
        """What a run finds this service by.

        Args:
            port: that the service listens on.
        """
        standing = LocalService(own_address(self._service.config.host, port), self.started.key_folder)
        return self._settings.complete(standing)

    def _write_keys(self, folder: Path) -> None:
        accounts = self._service.accounts
        try:
            secret_key = accounts.secret_key
        except ConfigurationError as error:
            raise Conflict("secret_unknown", f"A run needs the secret key: {error.faults[0]}.") from None
        write_secret(folder / "api_key", accounts.api_key)
        write_secret(folder / "secret_key", secret_key.reveal())


def own_address(host: str, port: int) -> str:
    """Where a program on this machine reaches the service."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(host, host)  # noqa: S104 - it listens everywhere
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
