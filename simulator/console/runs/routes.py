"""``/_emulator/runs`` and ``/_emulator/scenarios``: the control paths of fleet runs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from agent.errors import ConfigurationError, StorageError
from simulator.console.runs.answers import page, plain_file
from simulator.console.runs.folder import REPORT_FILE, FoundRun
from simulator.console.runs.plain_files import check_plain
from simulator.console.runs.records import (
    RunList,
    RunShown,
    ScenarioChecked,
    ScenarioShown,
    StartRun,
    StopRun,
)
from simulator.console.runs.runs import STREAMS_MAX, Runs
from simulator.console.runs.scenarios import name_for, refuse_foreign
from simulator.console.runs.started import RUNS_MAX
from simulator.console.runs.watching import HEARTBEAT_S, MEDIA_TYPE, watch
from simulator.exit_codes import ExitCode
from simulator.service.addresses import CONTROL_PREFIX
from simulator.service.answers import Answer, created, ok
from simulator.service.call import Call
from simulator.service.endpoints import ERROR, Endpoint, Handler, Parameter, Reply
from simulator.service.errors import Conflict, NotFound, invalid
from simulator.service.paging import whole

RUNS: Final = f"{CONTROL_PREFIX}runs"
SCENARIOS: Final = f"{CONTROL_PREFIX}scenarios"
_LIMIT: Final = 50
_LIMIT_MAX: Final = 200
_FILE_BYTES: Final = 64 * 1024 * 1024
_NO_RUN: Final = Reply(404, "`run_not_found`", ERROR)


class RunRoutes:
    """The handlers.

    Args:
        runs: what they show and steer.
    """

    def __init__(self, runs: Runs) -> None:
        self._runs = runs

    async def list(self, call: Call) -> Answer:
        """Runs of the folder, the latest first."""
        query = call.query(frozenset({"q", "offset", "limit"}))
        offset = _number("offset", query.get("offset", "0"), 0, 1_000_000)
        limit = _number("limit", query.get("limit", str(_LIMIT)), 1, _LIMIT_MAX)
        return ok(await self._runs.list(query.get("q", ""), offset, limit))

    async def start(self, call: Call) -> Answer:
        """Start a run of a scenario against this service."""
        wanted = await call.message(StartRun)
        scenario, content = await self._runs.in_reader(lambda: self._runs.scenarios.read(wanted.scenario))
        standing = self._runs.standing(call.scope["server"][1])
        refuse_foreign(content, standing.base_url)
        run = await self._runs.started.start(scenario, name_for(content), standing, audit=wanted.audit)
        return created(await self._runs.show(run.id), f"{RUNS}/{run.id}")

    async def show(self, call: Call) -> Answer:
        """One run."""
        return ok(await self._runs.show(call.path("id")))

    async def events(self, call: Call) -> Answer:
        """A run as it goes on."""
        return await watch(self._runs, call)

    async def stop(self, call: Call) -> Answer:
        """End a run that was started here."""
        run_id = call.path("id")
        await self._runs.show(run_id)
        wanted = await call.message(StopRun)
        self._runs.started.stop(run_id, at_once=wanted.at_once)
        return ok(await self._runs.show(run_id))

    async def report(self, call: Call) -> Answer:
        """The report of a run."""
        run = self._find(call)
        content = await self._read(run, REPORT_FILE)
        if content is None:
            raise NotFound("report_not_found", "This run has no report yet: POST to this path makes it.")
        return page(content)

    async def make_report(self, call: Call) -> Answer:
        """Make the report of a run anew, also of one that was killed or still goes on."""
        run = self._find(call)
        try:
            await asyncio.to_thread(check_plain, run.path)
        except ConfigurationError as error:
            raise Conflict("report_not_made", f"The report cannot be made: {error.faults[0]}.") from None
        before = _stamp(run)
        ended = await self._runs.programs.run("report", "--", str(run.path))
        said = [line.removeprefix("Error: ") for line in ended.errors.splitlines() if line.strip()][-5:]
        # What one of the other files lacks, such as a table, takes nothing from the page.
        if ended.exit_code not in {ExitCode.GOOD, ExitCode.INCONCLUSIVE} and _stamp(run) == before:
            why = "; ".join(said) or "it did not say why"
            raise Conflict("report_not_made", f"The report cannot be made: {why}")
        return ok({**await self._runs.show(run.id), "last_words": said})

    async def file(self, call: Call) -> Answer:
        """A file of a run."""
        run, name = self._find(call), call.path("name")
        shown = await self._runs.show(run.id)
        content = await self._read(run, name) if name in shown["files"] else None
        if content is None:
            raise NotFound("file_not_found", "This run has no such file.")
        return page(content) if name == REPORT_FILE else plain_file(content)

    async def scenarios(self, call: Call) -> Answer:
        """The scenarios that may be started."""
        del call
        return whole(await self._runs.in_reader(self._runs.scenarios.all))

    async def scenario(self, call: Call) -> Answer:
        """A scenario, what is wrong with it, and what a run of it would do."""
        return ok(await self._runs.scenarios.check(call.path("name")))

    def _find(self, call: Call) -> FoundRun:
        run = self._runs.folder.find(call.path("id"))
        if run is None:
            raise self._runs.no_run(call.path("id"))
        return run

    async def _read(self, run: FoundRun, name: str) -> bytes | None:
        try:
            return await asyncio.to_thread(self._runs.folder.read, run, name, _FILE_BYTES)
        except StorageError as error:
            raise Conflict("file_refused", f"The file is not shown: {error}.") from None


def _stamp(run: FoundRun) -> tuple[int, int] | None:
    """What changes when a run's page is made anew; None without one."""
    try:
        found = (run.path / REPORT_FILE).lstat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino


def _number(name: str, text: str, least: int, most: int) -> int:
    if not text.isascii() or not text.isdigit() or not least <= int(text[:10]) <= most:
        raise invalid(name, f"must be a whole number from {least} to {most}")
    return int(text)


def make_endpoints(runs: Runs) -> tuple[Endpoint, ...]:
    """The control paths of runs."""
    routes = RunRoutes(runs)

    def endpoint(
        method: str,
        path: str,
        handler: Handler,
        name: str,
        summary: str,
        *replies: Reply,
        body: type | None = None,
        parameters: Sequence[Parameter] = (),
    ) -> Endpoint:
        return Endpoint(
            method,
            path,
            handler,
            name,
            summary,
            "control",
            replies,
            body=() if body is None else (body,),
            parameters=tuple(parameters),
            public=True,
        )

    html, run = "text/html", f"{RUNS}/{{id}}"
    return (
        endpoint(
            "GET",
            RUNS,
            routes.list,
            "list_runs",
            "Fleet runs of the folder (`--runs`), what goes on first, then the latest",
            Reply(200, "A part of them", RunList),
            Reply(400, "The query is not valid", ERROR),
            parameters=(
                Parameter("q", "Only runs whose id has this text in it", {"type": "string"}),
                Parameter("offset", "How many to leave out at the begin", {"type": "integer", "minimum": 0}),
                Parameter(
                    "limit",
                    f"How many at most; {_LIMIT} by default",
                    {"type": "integer", "minimum": 1, "maximum": _LIMIT_MAX},
                ),
            ),
        ),
        endpoint(
            "POST",
            RUNS,
            routes.start,
            "start_run",
            "Start a run of a scenario (`--scenarios`) against this service, as a process of its own. It answers when "
            "the run has begun, or has said why it does not",
            Reply(201, "The run", RunShown, located=True),
            Reply(400, "`invalid_scenario`: every fault with line and column; `foreign_target`", ERROR),
            Reply(404, "`scenario_not_found`", ERROR),
            Reply(
                409,
                f"`no_scenarios`: no folder was given; `too_many_runs`: {RUNS_MAX} go on; `run_refused`: such as when "
                "another run uses the same devices; `secret_unknown`",
                ERROR,
            ),
            Reply(503, "`run_not_started`: the folder or the process cannot be made", ERROR),
            body=StartRun,
        ),
        endpoint("GET", run, routes.show, "show_run", "One run", Reply(200, "The run", RunShown), _NO_RUN),
        endpoint(
            "GET",
            f"{run}/events",
            routes.events,
            "watch_run",
            "A run as it goes on, as server-sent events: the lines of `run --progress` so far and from now on (`id` is "
            "the place in the file), `event: state` with the run when its state changes, `event: over` at the end, "
            f"a comment every {HEARTBEAT_S:.0f} s",
            Reply(200, "Events until the run is over", media_type=MEDIA_TYPE),
            _NO_RUN,
            Reply(409, "`not_watchable`: its progress is not written down", ERROR),
            Reply(429, f"`too_many_streams`: {STREAMS_MAX} watch", ERROR),
            parameters=(
                Parameter(
                    "Last-Event-ID",
                    "`id` of the last event that was taken: what came since comes first",
                    {"type": "string"},
                    place="header",
                ),
            ),
        ),
        endpoint(
            "POST",
            f"{run}/stop",
            routes.stop,
            "stop_run",
            "End a run in order, as Ctrl-C does: what is under way is handed over, everything is read back, and the "
            "reports are made",
            Reply(200, "The run, which goes on until it has handed over", RunShown),
            Reply(404, "`run_not_found`; `run_not_started_here`", ERROR),
            Reply(409, "`run_not_running`", ERROR),
            body=StopRun,
        ),
        endpoint(
            "GET",
            f"{run}/report",
            routes.report,
            "show_report",
            "The report of a run, as a page that can do nothing to this service",
            Reply(200, "The page", media_type=html),
            Reply(404, "`run_not_found`; `report_not_found`", ERROR),
            Reply(409, "`file_refused`: it is a link, no regular file, or too large", ERROR),
        ),
        endpoint(
            "POST",
            f"{run}/report",
            routes.make_report,
            "make_report",
            "Make all reports of a run anew, also of one that was killed or still goes on",
            Reply(200, "The run", RunShown),
            _NO_RUN,
            Reply(409, "`report_not_made`: such as for a damaged folder", ERROR),
        ),
        endpoint(
            "GET",
            f"{run}/{{name}}",
            routes.file,
            "show_run_file",
            "A file of a run, by one of its `files`",
            Reply(200, "The file, as plain text", media_type="text/plain"),
            Reply(404, "`run_not_found`; `file_not_found`", ERROR),
            Reply(409, "`file_refused`", ERROR),
        ),
        endpoint(
            "GET",
            SCENARIOS,
            routes.scenarios,
            "list_scenarios",
            "Scenarios that may be started, by name",
            Reply(200, "All of them", ScenarioShown, listed=True),
            Reply(409, "`no_scenarios`: the service was started without `--scenarios`", ERROR),
        ),
        endpoint(
            "GET",
            f"{SCENARIOS}/{{name}}",
            routes.scenario,
            "show_scenario",
            "A scenario with what is wrong with it, and what a run of it would do",
            Reply(200, "The scenario", ScenarioChecked),
            Reply(404, "`scenario_not_found`", ERROR),
            Reply(409, "`no_scenarios`", ERROR),
        ),
    )
