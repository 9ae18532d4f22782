"""One recorded run with the service's data beside it, and what damages copies of both, one thing at a time."""

from __future__ import annotations

import contextlib
import http.client
import io
import json
import shutil
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs, urlencode, urlsplit

import yaml

from agent.wire.secret import Secret
from simulator.cli import main
from simulator.exit_codes import ExitCode
from simulator.fleet.run.fleet_run import RunOptions, perform_run
from simulator.fleet.scenario.reading import read_scenario_file
from simulator.fleet.target.target import TargetOptions, find_target, permit
from simulator.service.config import ServiceConfig
from simulator.service.server import RunningService

LOST, INCONCLUSIVE, USAGE = ExitCode.DATA_LOST, ExitCode.INCONCLUSIVE, ExitCode.USAGE
API_KEY, SECRET_KEY = "mk_damage", "msk_damage_0123456789"
DATABASE = "service.db"
AGAIN = "again"
"""A cursor that the service never gave: the front asks for the first page once more."""
SCENARIO = {
    "scenario": "damaged",
    "seed": 3,
    "workers": 2,
    "target": {"transport": "http_long_poll", "connections": 32},
    "fleet": {
        "devices": 6,
        "models": [
            {
                "signals": {
                    "temperature_celsius": {"kind": "random_walk", "start": 21, "step": 0.1},
                    "humidity_percent": {"kind": "random_walk", "start": 40, "step": 0.5},
                },
                "telemetry": {"every_s": 1},
            }
        ],
    },
    "commands": [{"payload": {"command": "ping"}, "rate_per_s": 5}],
    "phases": [{"name": "hold", "kind": "hold", "duration_s": 5}],
    "drain_s": 60,
    "thresholds": ["audit.lost == 0", "http.sensor_data.p99 < 60s", "readings.rate > 0.1/s"],
}


@dataclass(frozen=True, slots=True)
class Recorded:
    """A run that passed.

    Attributes:
        root: ``run`` is its folder, ``service`` the data of its service, ``secret`` the file with the secret key.
    """

    root: Path

    @property
    def run(self) -> Path:
        return self.root / "run"

    @property
    def service(self) -> Path:
        return self.root / "service"

    @property
    def secret(self) -> Path:
        return self.root / "secret"


def serving(data: Path) -> RunningService:
    """The service with what it stored."""
    return RunningService(
        ServiceConfig(port=0, data_dir=data, api_key=API_KEY, secret_key=Secret(SECRET_KEY), rate_limit=0)
    )


def record(root: Path) -> Recorded:
    """Play the run that all cases are copies of."""
    with serving(Recorded(root).service) as service:
        return played(root, SCENARIO, service.base_url)


def played(root: Path, document: Mapping[str, Any], base_url: str) -> Recorded:
    """A run of a scenario, which has to pass."""
    recorded = Recorded(root)
    recorded.secret.write_text(SECRET_KEY)
    recorded.secret.chmod(0o600)
    scenario = root / "damaged.yaml"
    scenario.write_text(yaml.safe_dump(dict(document), sort_keys=False))
    target = find_target(TargetOptions(base_url, API_KEY, recorded.secret))
    permission = permit(target.base_url, (), owned=False)
    options = RunOptions(read_scenario_file(scenario), target, recorded.run, (permission,))
    found = perform_run(options)
    assert found.verdict.exit_code == 0, found.verdict
    return recorded


@dataclass(slots=True)
class Case:
    """A copy of the run to be damaged, and how it will be looked at.

    Attributes:
        run: the copy of the run's folder.
        data: the copy of the service's data, made by :attr:`database` when it is asked for.
        change: damages answers of the service on their way; None leaves them alone.
        page: so many rows of a list in each page; 0 leaves that to the reader.
    """

    recorded: Recorded
    run: Path
    data: Path
    change: Callable[[ListAnswer], None] | None = None
    page: int = 0
    _database: sqlite3.Connection | None = field(default=None, repr=False)

    @property
    def database(self) -> sqlite3.Connection:
        """What the service stored, to be changed while nobody serves it."""
        if self._database is None:
            shutil.copytree(self.recorded.service, self.data)
            self._database = sqlite3.connect(self.data / DATABASE)
            self._database.row_factory = sqlite3.Row
        return self._database

    def stored(self, statement: str, *values: Any) -> None:
        """Change what is stored; something has to change."""
        assert self.database.execute(statement, values).rowcount > 0, statement

    def close(self) -> bool:
        """Whether the case has data of its own, which can be served now."""
        if self._database is not None:
            self._database.commit()
            self._database.close()
        return self._database is not None

    def ledgers(self, statement: str) -> None:
        """Change what the run wrote down; something has to change."""
        with contextlib.closing(sqlite3.connect(self.run / "run.sqlite")) as database, database:
            assert database.execute(statement).rowcount > 0, statement


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of damage.

    Attributes:
        place: what is damaged.
        name: how, in a few words.
        plant: damages a case.
        code: how the program ends.
        words: what it says, the numbers of this run among them.
    """

    place: str
    name: str
    plant: Callable[[Any], object]
    code: ExitCode
    words: tuple[str, ...]


def planted(place: str, name: str, plant: Callable[[Any], object], code: ExitCode, *words: str) -> Kind:
    """A kind of damage; see there."""
    return Kind(place, name, plant, code, words)


@dataclass(slots=True)
class ListAnswer:
    """An answer on its way from the service to whoever asked.

    Attributes:
        cut: send so many bytes of the body and close; None sends all.
    """

    path: str
    query: dict[str, str]
    status: int
    body: bytes
    content_type: str = "application/json"
    cut: int | None = None

    @property
    def is_readings(self) -> bool:
        return self.path == "/sensor-data"

    @property
    def is_commands(self) -> bool:
        return self.path.startswith("/devices/") and self.path.endswith("/commands")

    def document(self, change: Callable[[dict[str, Any]], Any]) -> None:
        """Change the JSON of the answer: in place, or by what is returned."""
        document = json.loads(self.body)
        changed = change(document)
        self.body = json.dumps(document if changed is None else changed).encode()


class Front:
    """A proxy in front of the service that damages its answers.

    Args:
        base_url: of the service.
        case: how.
    """

    def __init__(self, base_url: str, case: Case) -> None:
        upstream = urlsplit(base_url)

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                split = urlsplit(self.path)
                query = {name: values[0] for name, values in parse_qs(split.query).items()}
                asked = {
                    **{name: value for name, value in query.items() if value != AGAIN},
                    **({"limit": str(case.page)} if case.page and "limit" in query else {}),
                }
                target = f"{split.path}?{urlencode(asked)}" if asked else split.path
                connection = http.client.HTTPConnection(upstream.hostname or "", upstream.port, timeout=60)
                with contextlib.closing(connection):
                    connection.request("GET", target, headers={**self.headers, "connection": "close"})
                    came = connection.getresponse()
                    answer = ListAnswer(split.path, query, came.status, came.read())
                if case.change is not None:
                    case.change(answer)
                self.send_response(answer.status)
                self.send_header("content-type", answer.content_type)
                self.send_header("content-length", str(len(answer.body)))
                self.end_headers()
                self.wfile.write(answer.body if answer.cut is None else answer.body[: answer.cut])

            def log_message(self, *_: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = False

            def handle_error(self, *_: object) -> None:
                pass  # whoever asked has gone away

        self._server = Server(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, name="front")
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def audit_of(case: Case, served: str) -> tuple[int, str]:
    """``fleet-simulator audit`` of a damaged copy: its exit code, and all that it says.

    Args:
        case: the copy.
        served: where the undamaged data is served; data of the case's own is served for it alone.
    """
    with contextlib.ExitStack() as ends:
        if case.close():
            served = ends.enter_context(serving(case.data)).base_url
        if case.change is not None or case.page:
            served = ends.enter_context(Front(served, case)).url
        keys = ["--api-key", API_KEY, "--secret-key-file", str(case.recorded.secret)]
        return called(["audit", str(case.run), "--base-url", served, *keys])


def report_of(case: Case) -> tuple[int, str]:
    """``fleet-simulator report`` of a damaged copy: its exit code, and all that it says."""
    return called(["report", str(case.run)])


def called(arguments: list[str]) -> tuple[int, str]:
    """A command of ``fleet-simulator`` in this process: its exit code, and its output in one line of text."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            main(arguments)
            code: Any = 0
        except SystemExit as end:
            code = end.code
    return int(code or 0), " ".join(said.getvalue().split())


@contextlib.contextmanager
def case_of(recorded: Recorded, folder: Path) -> Iterator[Case]:
    """A copy of the run in ``folder``."""
    shutil.copytree(recorded.run, folder / "run")
    yield Case(recorded, folder / "run", folder / "service")
