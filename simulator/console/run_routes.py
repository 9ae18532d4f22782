"""``/_emulator/runs``: fleet runs of a folder, listed, started, followed and stopped."""

from __future__ import annotations

import asyncio
from typing import Annotated, Final

from fastapi import APIRouter, Response
from fastapi.params import Query
from pydantic import BaseModel, ConfigDict, Field

from agent.errors import StorageError
from agent.wire.models import Sent, Text
from simulator.console.plain_files import is_name
from simulator.console.runs import RunsFolder, RunShown
from simulator.console.started import StartedRuns
from simulator.service.errors import conflict, not_found
from simulator.service.gate import CONTROL_PREFIX
from simulator.service.http import Json, Router, answers, created

RUNS: Final = f"{CONTROL_PREFIX}runs"
_FILE_HEADERS: Final = {
    # What somebody else made is shown as text, and can do nothing to this service.
    "Cache-Control": "no-store",
    "Content-Security-Policy": "sandbox; default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}


class StartRun(Sent):
    """Start a run.

    Attributes:
        scenario: name of a file in the folder of scenarios.
    """

    scenario: Text


class StopRun(Sent):
    """End a run; ``at_once`` one that is being stopped already, without handing over what is under way."""

    at_once: bool = False


class RunList(BaseModel):
    """The latest runs of the folder, those that go on first; ``scenarios`` is null where none may be started."""

    data: list[RunShown]
    folder: str
    scenarios: list[str] | None


class ProgressQuery(BaseModel):
    """Where to go on reading."""

    model_config = ConfigDict(extra="forbid")

    after: Annotated[int, Field(ge=0, le=2**53)] = 0


def make_router(folder: RunsFolder, started: StartedRuns) -> APIRouter:
    """The control paths of these runs."""
    router = Router("control")

    async def show(run_id: str) -> RunShown:
        found = await asyncio.to_thread(folder.find, run_id) or started.find(run_id)
        if found is None:
            raise not_found("run", run_id, f"in {folder.path}")
        return started.add_to(found)

    @router.get(RUNS, response_model=RunList)
    async def list_runs() -> Response:
        """Runs of the folder, the latest first."""
        found = await asyncio.to_thread(folder.all)
        new = started.running_here({run.id for run in found})
        data = [*new, *(started.add_to(run) for run in found)]
        return Json(RunList(data=data, folder=str(folder.path), scenarios=started.scenarios.names()))

    @router.post(RUNS, status_code=201, response_model=RunShown, responses=answers(404, 409))
    async def start_run(body: StartRun) -> Response:
        """Start a run of a scenario against this service; it answers when the run has begun, or says why it has not."""
        run_id = await started.start(body.scenario)
        return created(await show(run_id), f"{RUNS}/{run_id}")

    @router.get(f"{RUNS}/{{run_id}}", response_model=RunShown, responses=answers(404))
    async def show_run(run_id: str) -> Response:
        """One run."""
        return Json(await show(run_id))

    @router.post(f"{RUNS}/{{run_id}}/stop", response_model=RunShown, responses=answers(404, 409))
    async def stop_run(run_id: str, body: StopRun) -> Response:
        """End a run that was started here."""
        await show(run_id)
        started.stop(run_id, at_once=body.at_once)
        return Json(await show(run_id))

    @router.get(f"{RUNS}/{{run_id}}/progress", responses=answers(404, 409))
    async def show_progress(run_id: str, query: Annotated[ProgressQuery, Query()]) -> Response:
        """Lines that ``run --progress`` has written so far."""
        await show(run_id)
        try:
            return Json(await asyncio.to_thread(folder.read_progress, run_id, query.after))
        except StorageError as error:
            raise conflict("file_refused", f"The progress is not shown: {error}.") from None

    @router.get(f"{RUNS}/{{run_id}}/files/{{name}}", responses=answers(404, 409))
    async def show_file(run_id: str, name: str) -> Response:
        """A file of a run, as plain text."""
        await show(run_id)
        try:
            content = await asyncio.to_thread(folder.read_file, run_id, name) if is_name(name) else None
        except StorageError as error:
            raise conflict("file_refused", f"The file is not shown: {error}.") from None
        if content is None:
            raise not_found("file", name, "in this run")
        return Response(content, 200, _FILE_HEADERS, "text/plain; charset=utf-8")

    return router
