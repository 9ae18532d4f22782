"""Puts the console together for one service: pages, files, control paths, and what runs with them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Sequence
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from simulator.console import device_table, links
from simulator.console.access import PREFIX, ConsoleAccess
from simulator.console.changes import Changes
from simulator.console.labels.endpoints import label_endpoints
from simulator.console.labels.work import LabelWork
from simulator.console.pages import PAGES, Page, render_entry, render_shell, see_other
from simulator.console.runs.routes import make_endpoints as make_run_endpoints
from simulator.console.runs.runs import Runs, RunSettings
from simulator.console.session_file import SessionFile
from simulator.console.sessions import Sessions
from simulator.console.static_files import answer_file, version
from simulator.service.additions import Addition
from simulator.service.answers import Answer
from simulator.service.call import Call
from simulator.service.endpoints import Endpoint, Handler, Reply
from simulator.service.gate import KEY_CHALLENGE, REQUEST_HEADERS
from simulator.service.http_errors import HttpError
from simulator.service.service import Service

_STATIC: Final = f"{PREFIX}static/{{version}}"


class Console:
    """The console of one service.

    Attributes:
        sessions: links and sessions.
        addition: what the service serves of it.
    """

    def __init__(self, service: Service, settings: RunSettings | None = None) -> None:
        folder = service.config.data_dir
        file = SessionFile(folder) if folder is not None else None
        self.sessions = Sessions(_cookie_name(service), now_s=time.time, file=file)
        changes, labels = Changes(service), LabelWork()
        runs = Runs(service, settings or RunSettings())

        @contextlib.asynccontextmanager
        async def running() -> AsyncIterator[None]:
            async with changes.running(), contextlib.aclosing(labels), runs.running():
                yield

        def close() -> None:
            changes.close()
            runs.close()

        self.addition = Addition(
            control=(
                *links.make_endpoints(self.sessions),
                *device_table.make_endpoints(changes),
                *changes.endpoints(),
                *label_endpoints(labels),
                *make_run_endpoints(runs),
            ),
            pages=self._pages(),
            access=ConsoleAccess(self.sessions),
            running=running,
            entry_path=lambda: links.entry_path(self.sessions.make_link()),
            close=close,
        )

    def _pages(self) -> Sequence[Endpoint]:
        files = (f"{_STATIC}/{{folder}}/{{name}}", f"{_STATIC}/{{name}}")
        return (
            *(_endpoint("GET", page.path, self._show(page), f"show_{page.module}") for page in PAGES),
            *(_endpoint("GET", path, show_file, "show_file") for path in files),
            _endpoint("POST", f"{PREFIX}sign-out", self._sign_out, "sign_out"),
        )

    def _show(self, page: Page) -> Handler:
        async def show(call: Call) -> Answer:
            given = call.scope[REQUEST_HEADERS]
            token = _token_of(call) if page.path == "/" and call.scope["method"] == "GET" else None
            if token is not None:
                host = given.get(b"host", b"").decode("latin-1")
                cookie = self.sessions.open(token, host)
                if cookie is not None:
                    return see_other("/", (b"set-cookie", cookie.encode()))
                if self.sessions.find(given) is not None:  # such as the link opened again from the history
                    return see_other("/")
                return render_entry("used", KEY_CHALLENGE)
            session = self.sessions.find(given)
            if session is None:
                return render_entry("none", KEY_CHALLENGE)
            return render_shell(page, session.csrf)

        return show

    async def _sign_out(self, call: Call) -> Answer:
        """The gate has checked the session's value only where it was sent: a form of another page sends none."""
        if b"x-console" in call.scope[REQUEST_HEADERS]:
            self.sessions.end(call.scope[REQUEST_HEADERS])
        return Answer(204)


def _token_of(call: Call) -> str | None:
    """The token of a link; everything else in the query is the page's own."""
    pairs = parse_qsl(call.scope["query_string"].decode("latin-1"))
    return next((value for name, value in pairs if name == "token"), None)


async def show_file(call: Call) -> Answer:
    """A file of the pages, under the address that stands for its contents."""
    folder = call.scope["path_params"].get("folder")
    name = call.path("name") if folder is None else f"{folder}/{call.path('name')}"
    gzipped = b"gzip" in call.scope[REQUEST_HEADERS].get(b"accept-encoding", b"")
    answer = answer_file(name, gzipped=gzipped) if call.path("version") == version() else None
    if answer is None:
        raise HttpError(404, "not_found", "The console has no such file; load the page again.")
    return answer


def _endpoint(method: str, path: str, handler: Handler, name: str) -> Endpoint:
    reply = Reply(200, "The page or file", media_type="text/html")
    return Endpoint(method, path, handler, name, "A page or file of the console", "console", (reply,), public=True)


def _cookie_name(service: Service) -> str:
    """A machine's services share cookies, whatever their port: each has a name of its own."""
    parts = urlsplit(service.public_url)
    return f"console-{parts.port or (443 if parts.scheme == 'https' else 80)}"


def make_console(service: Service, settings: RunSettings | None = None) -> Addition | None:
    """What a service serves of its console; None for one without control paths, which it stands on."""
    return Console(service, settings).addition if service.config.control else None
