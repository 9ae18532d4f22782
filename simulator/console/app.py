"""The console of one service: the pages' files, and the control paths that only they need.

The pages hold no secret. What they ask for carries the console's token, which came to the browser in the fragment of
the address (never sent to any server) and stays in its tab; :mod:`simulator.service.gate` checks it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Final

from fastapi import APIRouter, Response
from starlette.responses import RedirectResponse

from simulator.console.labels import make_router as make_label_router
from simulator.console.run_routes import make_router as make_run_router
from simulator.console.runs import RunsFolder
from simulator.console.started import Scenarios, StartedRuns
from simulator.service.caller import is_local, is_loopback_host
from simulator.service.errors import ApiError
from simulator.service.gate import CONSOLE_PREFIX
from simulator.service.http import CallDep, Router
from simulator.service.service import Service

_TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
    "txt": "text/plain; charset=utf-8",
}
_OF_REPORTS: Final = ("uPlot.iife.min.js", "uPlot.min.css", "uPlot.LICENSE.txt")
"""The reports have these; the console serves the same files."""
REPORT_FRAME: Final = "report.html"
_PAGE_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
    "frame-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
_FRAME_POLICY: Final = (
    "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; "
    "frame-ancestors 'self'; base-uri 'none'; form-action 'none'"
)
"""Of the frame that shows a run's report, which brings its own scripts: ``sandbox`` gives it an origin of its own, so
that they reach neither the page with its token nor any address.
"""


@dataclass(frozen=True, slots=True)
class ConsoleSettings:
    """Where runs and scenarios are.

    Attributes:
        runs: the folder of runs, made when the first one is started.
        scenarios: the folder of scenarios that may be started; None starts none.
        up: the folder that ``fleet-simulator up --data`` was given, by which a run finds gateway and broker, too; None
            gives runs the address and keys of the service alone.
    """

    runs: Path = Path("fleet-runs")
    scenarios: Path | None = None
    up: Path | None = None


def make_console(service: Service, settings: ConsoleSettings | None = None) -> Sequence[APIRouter]:
    """The routers of the console of this service, which has a ``console_token``. Runs end with the service.

    Raises:
        ConfigurationError: a folder cannot be used.
    """
    settings = settings or ConsoleSettings()
    folder = RunsFolder(settings.runs)
    started = StartedRuns(service, folder, Scenarios(settings.scenarios), settings.up)
    service.at_end(started.close)
    return (_make_page_router(), make_run_router(folder, started), make_label_router(service))


def _make_page_router() -> APIRouter:
    router = Router("console")
    contents = _read_files()

    @router.get(CONSOLE_PREFIX, include_in_schema=False)
    async def show_start() -> Response:
        return RedirectResponse(f"{CONSOLE_PREFIX}/")

    @router.get(f"{CONSOLE_PREFIX}/{{path:path}}", include_in_schema=False)
    async def show_file(call: CallDep, path: str) -> Response:
        """A file of the pages, to a browser on this machine that was not led here under a foreign name."""
        request = call.request
        if not is_local(request.scope) or not is_loopback_host(request.headers.get("host", "")):
            text = "The console is at 127.0.0.1, [::1] and localhost only, for a browser on the service's own machine."
            raise ApiError(403, "foreign_host", text)
        name = path or "index.html"
        if name not in contents:
            raise ApiError(404, "not_found", "The console has no such file.")
        is_frame = name == REPORT_FRAME
        headers = {
            "Cache-Control": "no-cache",
            "Content-Security-Policy": _FRAME_POLICY if is_frame else _PAGE_POLICY,
            "Cross-Origin-Resource-Policy": "same-origin",
            "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
            "Referrer-Policy": "no-referrer",
            "X-Content-Type-Options": "nosniff",
            "X-Frame-Options": "SAMEORIGIN" if is_frame else "DENY",
        }
        return Response(contents[name], 200, headers, _TYPES[name.rpartition(".")[2]])

    return router


def _read_files() -> dict[str, bytes]:
    """Every file: its path below ``/console/`` -> its contents. Nothing else is ever read for an address."""
    own, reports = files("simulator.console") / "static", files("simulator.report_parts") / "static"
    found = {entry.name: entry for entry in own.iterdir() if entry.is_file()}
    found |= {f"vendor/{entry.name}": entry for entry in (own / "vendor").iterdir()}
    found |= {f"vendor/{name}": reports / name for name in _OF_REPORTS}
    return {path: entry.read_bytes() for path, entry in found.items() if path.rpartition(".")[2] in _TYPES}
