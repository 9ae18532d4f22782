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
from typing import Any, Final
from urllib.parse import urlsplit

from agent.app.status import AgentStatus, read_agent_status
from agent.app.status_file import StatusFile
from agent.config import AgentConfig, Credentials, LoadedConfig, read_credentials
from agent.errors import AgentError
from agent.process.program import ProgramNotStarted, run_program
from agent.runtime.clocks import is_synchronized
from agent.wire.address import authority

UNIT: Final = "device-agent.service"
_COMMAND_TIMEOUT_S: Final = 5.0
_PROPERTIES: Final = "LoadState,UnitFileState,ActiveState,SubState,Result,FragmentPath,User"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A server that the agent talks to.

    Attributes:
        what: ``service`` or ``broker``.
        ca_file: the authorities to trust instead of the system's.
        section: of the configuration.
        address: the keys of the configuration that say where it is.
    """

    what: str
    host: str
    port: int
    is_tls: bool
    ca_file: Path | None
    section: str
    address: str

    def __str__(self) -> str:
        return authority(self.host, self.port)


@dataclass(slots=True)
class Exchange:
    """The service's answers.

    Attributes:
        document: the discovery document, whatever JSON it is; None when there was none.
        discovery_error: why there was none.
        device_error: why nothing was learned of this device; None when the service was asked about it.
        knows_device: whether the service said that it knows this device.
        ahead_s: this machine's clock minus the ``Date`` of the last answer that had one.
    """

    document: Any = None
    discovery_error: AgentError | None = None
    device_error: AgentError | None = None
    knows_device: bool = False
    ahead_s: float | None = None


class Device:
    """One device, as the checks see it.

    Args:
        load: gives the configuration or raises :class:`~agent.errors.ConfigurationError`.
        environ: of this process.
        loads_plugins: try handlers and sensors here also while an agent runs, which may hold what they need.
        root: where ``/proc``, ``/run`` and ``/etc`` are; another one in tests.
        run: runs a system program and returns its output; None when it is not there or failed.
        wall: this machine's clock, seconds since the epoch.
        is_synchronized: whether a time service keeps the clock; given systemd-timesyncd's marker.
    """

    def __init__(
        self,
        load: Callable[[], LoadedConfig],
        environ: Mapping[str, str],
        *,
        loads_plugins: bool = False,
        root: Path = Path("/"),
        run: Callable[[Sequence[str]], str | None] | None = None,
        wall: Callable[[], float] = time.time,
        is_synchronized: Callable[[Path], bool] = is_synchronized,
    ) -> None:
        self._load = load
        self.environ = environ
        self.loads_plugins = loads_plugins
        self.root = root
        self.run = run or run_command
        self.wall = wall
        self.is_synchronized = is_synchronized
        self.exchange: Exchange | None = None

    @cached_property
    def loaded(self) -> LoadedConfig:
        """The configuration, and where it came from.

        Raises:
            ConfigurationError: every fault of it.
        """
        return self._load()

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
        handed_over = self.path(f"/run/credentials/{UNIT}")
        if handed_over.is_dir():
            return read_credentials(self.config.auth, {"CREDENTIALS_DIRECTORY": str(handed_over), **self.environ})
        fields = type(self.config.auth).model_fields
        files = {f"{name}_file": path for name, path in self.credential_files.items() if f"{name}_file" in fields}
        return read_credentials(self.config.auth.model_copy(update=files), self.environ)

    @cached_property
    def status(self) -> AgentStatus:
        """The result of ``device-agent status``."""
        return read_agent_status(self.config, self.environ)

    @property
    def running(self) -> StatusFile | None:
        """The status that the running agent wrote; None when none runs."""
        return self.status.last_status if self.status.state == "running" else None

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """The servers that the agent talks to."""
        return endpoints_of(self.config)

    @cached_property
    def has_systemd(self) -> bool:
        """Whether this machine was booted with systemd (sd_booted(3))."""
        return self.path("/run/systemd/system").is_dir()

    def unit(self, name: str = UNIT) -> dict[str, str]:
        """Properties of a unit, also of one that is not there; empty when systemd cannot be asked."""
        if not self.has_systemd:
            return {}
        text = self.run(["systemctl", "show", name, "--no-pager", f"--property={_PROPERTIES}"]) or ""
        return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)

    @property
    def credential_files(self) -> dict[str, Path]:
        """The files that the unit hands over, as far as root can read them: the credential's name -> its file."""
        named = (line.partition(":") for line in self.credential_lines)
        files = {name: Path(path) for name, _, path in named if path.startswith("/")}
        return {name: path for name, path in files.items() if path.is_file()}

    @cached_property
    def credential_lines(self) -> list[str]:
        """The unit's assignments of credentials that are in force, such as ``token:/etc/device-agent/token``.

        ``systemctl show`` prints ``[unprintable]`` for them (systemd 252, 257). An empty one takes back those before.
        """
        text = (self.run(["systemctl", "cat", UNIT, "--no-pager"]) or "") if self.has_systemd else ""
        in_force = re.split(r"(?m)^LoadCredential(?:Encrypted)?=\s*$", text)[-1]
        return re.findall(r"(?m)^LoadCredential(?:Encrypted)?=(\S+)", in_force)

    def path(self, absolute: str) -> Path:
        """A path of the system, below ``root``."""
        return self.root / absolute.lstrip("/")


def endpoints_of(config: AgentConfig) -> tuple[Endpoint, ...]:
    """Service and broker, as far as they are configured."""
    found: list[Endpoint] = []
    if config.service is not None:
        parts = urlsplit(config.service.base_url)
        is_tls = parts.scheme == "https"
        port = parts.port or (443 if is_tls else 80)
        host, ca_file = parts.hostname or "", config.service.ca_file
        found.append(Endpoint("service", host, port, is_tls, ca_file, "service", "service.base_url"))
    if config.mqtt is not None:
        mqtt, keys = config.mqtt, "mqtt.host and mqtt.port"
        found.append(Endpoint("broker", mqtt.host, mqtt.port_in_use, mqtt.tls, mqtt.ca_file, "mqtt", keys))
    return tuple(found)


def run_command(argv: Sequence[str]) -> str | None:
    """A system program's output; None when it is not there, fails or takes too long."""
    try:
        run = run_program(argv, timeout_s=_COMMAND_TIMEOUT_S, environment={"LC_ALL": "C"})
    except ProgramNotStarted:
        return None
    return run.output.decode("utf-8", "replace") if run.exit_code == 0 else None
