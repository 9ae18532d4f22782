"""The folder of scenarios: which there are, what is wrong with one, and whether it may be started from here."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from pydantic_core import from_json

from agent.errors import ConfigurationError, StorageError
from agent.wire.times import to_rfc3339
from simulator.console.runs.folder import is_name
from simulator.console.runs.plain_files import read_plain
from simulator.console.runs.programs import Programs
from simulator.console.runs.records import ScenarioChecked, ScenarioFault, ScenarioShown
from simulator.service.control_access import is_loopback_host
from simulator.service.errors import Conflict, Invalid, NotFound
from simulator.yaml_document import BYTES_MAX, read_document

_ENDINGS: Final = (".yaml", ".yml")
_FAULT: Final = re.compile(r"(?:line (?P<line>\d+), column (?P<column>\d+): )?(?P<text>.*)", re.DOTALL)
_FAULTS_MAX: Final = 50
_SHOWN_MAX: Final = 500


class ScenariosFolder:
    """The folder.

    Args:
        path: None where no run may be started.
        programs: check a scenario.

    Raises:
        ConfigurationError: it is no folder.
    """

    def __init__(self, path: Path | None, programs: Programs) -> None:
        self.path = None if path is None else path.absolute()
        self._programs = programs
        if self.path is not None and not self.path.is_dir():
            fix = "name one that scenarios (*.yaml) are in; 'fleet-simulator init' writes one"
            fault = f"--scenarios: {path} is no folder: {fix}"
            raise ConfigurationError([fault], "--scenarios")

    def all(self) -> list[ScenarioShown]:
        """All scenarios, by name; the first five hundred."""
        found = []
        for path in sorted(self._folder().iterdir()):
            if path.suffix in _ENDINGS and is_name(path.name) and path.is_file():
                state = path.stat()
                at = to_rfc3339(state.st_mtime)
                found.append(ScenarioShown(name=path.name, size_bytes=state.st_size, modified_at=at))
        return found[:_SHOWN_MAX]

    def read(self, name: str) -> tuple[Path, bytes]:
        """A scenario's file and what it holds.

        Raises:
            NotFound: there is none.
            Invalid: it cannot be read, or is too large.
        """
        path = self._folder() / name
        try:
            is_there = is_name(name) and path.suffix in _ENDINGS and path.is_file()
            content = read_plain(path.resolve(), BYTES_MAX) if is_there else None
        except StorageError as error:
            raise Invalid("invalid_scenario", f"The scenario cannot be used: {error}.") from None
        if content is None:
            raise NotFound(
                "scenario_not_found", f"There is no scenario {name[:80]!r} in {self.path}: name a .yaml file."
            )
        return path, content

    async def check(self, name: str) -> ScenarioChecked:
        """A scenario with its text, and what `plan` says of it."""
        path, content = self.read(name)
        ended = await self._programs.run("plan", "--json", str(path))
        plan = from_json(ended.output) if ended.exit_code == 0 else None
        faults = [] if plan is not None else faults_of(ended.errors, path)
        return ScenarioChecked(name=name, text=content.decode("utf-8", "replace"), faults=faults, plan=plan)

    def _folder(self) -> Path:
        if self.path is None:
            text = "This service starts no runs: start it with --scenarios DIR, the folder that scenarios are in."
            raise Conflict("no_scenarios", text)
        return self.path


def faults_of(errors: str, path: Path) -> list[ScenarioFault]:
    """What a command wrote about a scenario, fault by fault."""
    found = []
    for line in errors.strip().splitlines()[:_FAULTS_MAX]:
        text = line.removeprefix("Error: ").removeprefix("error: ").removeprefix(f"{path}: ")
        parts = _FAULT.fullmatch(text)
        if text.strip() and parts is not None:
            place = {name: int(parts[name]) if parts[name] else None for name in ("line", "column")}
            found.append(ScenarioFault(line=place["line"], column=place["column"], text=parts["text"]))
    return found or [ScenarioFault(line=None, column=None, text="it cannot be used, and its check did not say why")]


def refuse_foreign(content: bytes, base_url: str) -> None:
    """Refuse a scenario that names somebody else's server: runs from here go to this service and to none beside it.

    Args:
        content: the scenario.
        base_url: of this service.

    Raises:
        Invalid: ``foreign_target``.
    """
    document = read_document(content).value
    target = document.get("target") if isinstance(document, dict) else None
    if not isinstance(target, dict):
        return
    broker = target.get("broker")
    named = {"target.base_url": target.get("base_url")}
    if isinstance(broker, dict):
        named["target.broker.host"] = broker.get("host")
    for key, value in named.items():
        if isinstance(value, str) and not _is_here(value):
            text = (
                f"{key} is {value[:100]!r}, which is not this machine: a run that is started here goes to {base_url}. "
                f"Take {key} out of the scenario; or run it in a terminal, where --i-own-this-target says that it "
                "is yours."
            )
            raise Invalid("foreign_target", text, details=[(key, "is not this machine")])


def _is_here(address: str) -> bool:
    try:
        return is_loopback_host(urlsplit(address if "//" in address else f"//{address}").netloc.rpartition("@")[2])
    except ValueError:
        return False


def name_for(content: bytes) -> str:
    """What the folder of a run is called: the scenario's name and the time."""
    document = read_document(content).value
    name = document.get("scenario") if isinstance(document, dict) else None
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", name if isinstance(name, str) else "run")[:80].strip(".-") or "run"
    return f"{plain}-{time.strftime('%Y%m%d-%H%M%S')}"
