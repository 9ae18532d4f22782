"""What the checks look at: the agent's configuration, credentials, status and unit. Nothing is written.

Everything is read once, when the first check asks for it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

from agent.app.status import AgentStatus, StatusFile, read_agent_status
from agent.config import AgentConfig, Credentials, LoadedConfig, read_credentials
from agent.process.program import ProgramNotStarted, run_program
from agent.runtime.clocks import is_synchronized

UNIT: Final = "device-agent.service"
_COMMAND_TIMEOUT_S: Final = 5.0
_PROPERTIES: Final = "LoadState,UnitFileState,ActiveState,SubState,Result,FragmentPath,User"


def run_command(argv: Sequence[str]) -> str:
    """A system program's output; empty when it is not there, fails or takes too long."""
    try:
        run = run_program(argv, timeout_s=_COMMAND_TIMEOUT_S, environment={"LC_ALL": "C"})
    except ProgramNotStarted:
        return ""
    return run.output.decode("utf-8", "replace") if run.exit_code == 0 else ""


@dataclass
class Device:
    """One device, as the checks see it.

    Attributes:
        load: gives the configuration or raises :class:`~agent.errors.ConfigurationError`.
        environ: of this process.
        loads_plugins: try handlers and sensors here also while an agent runs, which may hold what they need.
        root: where ``/run`` is; another one in tests.
        run: runs a system program and returns its output.
        wall: this machine's clock, seconds since the epoch.
        is_synchronized: whether a time service keeps the clock; given systemd-timesyncd's marker.
    """

    load: Callable[[], LoadedConfig]
    environ: Mapping[str, str]
    loads_plugins: bool = False
    root: Path = Path("/")
    run: Callable[[Sequence[str]], str] = run_command
    wall: Callable[[], float] = time.time
    is_synchronized: Callable[[Path], bool] = is_synchronized

    @cached_property
    def loaded(self) -> LoadedConfig:
        """The configuration, and where it came from.

        Raises:
            ConfigurationError: every fault of it.
        """
        return self.load()

    @property
    def config(self) -> AgentConfig:
        """The configuration; only for checks that come after ``configuration``."""
        return self.loaded.config

    @cached_property
    def credentials(self) -> Credentials:
        """The agent's own: from its files, or as systemd has handed them to the service that runs.

        Raises:
            ConfigurationError: they cannot be read by whoever runs this, or are wrong.
        """
        auth = self.config.auth
        handed_over = self.path(f"/run/credentials/{UNIT}")
        if handed_over.is_dir():
            return read_credentials(auth, {"CREDENTIALS_DIRECTORY": str(handed_over), **self.environ})
        files = {f"{name}_file": Path(path) for name, path in self.handed_over.items() if Path(path).is_file()}
        known = {name: path for name, path in files.items() if name in type(auth).model_fields}
        return read_credentials(auth.model_copy(update=known), self.environ)

    @cached_property
    def status(self) -> AgentStatus:
        """The result of ``device-agent status``."""
        return read_agent_status(self.config, self.environ)

    @property
    def running(self) -> StatusFile | None:
        """The status that the running agent wrote; None when none runs."""
        return self.status.last_status if self.status.state == "running" else None

    @cached_property
    def has_systemd(self) -> bool:
        """Whether this machine was booted with systemd (sd_booted(3))."""
        return self.path("/run/systemd/system").is_dir()

    def unit(self, name: str = UNIT) -> dict[str, str]:
        """Properties of a unit, also of one that is not there; empty when systemd cannot be asked."""
        if not self.has_systemd:
            return {}
        text = self.run(["systemctl", "show", name, "--no-pager", f"--property={_PROPERTIES}"])
        return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)

    @cached_property
    def handed_over(self) -> dict[str, str]:
        """The credentials that the unit hands over: name -> file, empty for one whose file is encrypted.

        ``systemctl show`` prints ``[unprintable]`` for them (systemd 252, 257). An empty assignment takes back those
        before it.
        """
        text = self.run(["systemctl", "cat", UNIT, "--no-pager"]) if self.has_systemd else ""
        in_force = re.split(r"(?m)^LoadCredential(?:Encrypted)?=\s*$", text)[-1]
        found = re.findall(r"(?m)^LoadCredential(Encrypted)?=([^:\s]+):?(\S*)", in_force)
        return {name: "" if encrypted else path for encrypted, name, path in found}

    def path(self, absolute: str) -> Path:
        """A path of the system, below ``root``."""
        return self.root / absolute.lstrip("/")
