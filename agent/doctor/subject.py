"""What the checks look at. Everything is read once, when the first check asks for it; nothing is written."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

from agent.adapters.clocks import is_synchronized
from agent.app.status import AgentStatus, look_at
from agent.config import AgentConfig, Credentials, LoadedConfig, read_credentials
from agent.errors import ConfigurationError, ServiceError
from agent.frozen import dataclass
from agent.process.running import ProgramNotStarted, run_program

if TYPE_CHECKING:
    from agent.doctor.exchange import Exchange

UNIT: Final = "device-agent.service"
HELPER: Final = "device-agent-helper.path"
NETWORK_TIMEOUT_S: Final = 5.0

_COMMAND_TIMEOUT_S: Final = 5.0
_PROPERTIES: Final = (
    "LoadState,UnitFileState,ActiveState,SubState,Result,FragmentPath,DropInPaths,NeedDaemonReload,Type,WatchdogUSec,"
    "NRestarts,LoadCredential,LoadCredentialEncrypted,ControlGroup,MemoryMax"
)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Somebody the agent talks to.

    Attributes:
        what: ``service`` or ``broker``; the section of the configuration has the same name, but for ``mqtt``.
        ca_file: the authorities to trust instead of the system's.
        is_web: it speaks HTTP.
        address: as the configuration gives it.
    """

    what: str
    host: str
    port: int
    is_tls: bool
    ca_file: Path | None
    is_web: bool
    address: str

    @property
    def key(self) -> str:
        """The key of the configuration that says where it is."""
        return "service.base_url" if self.is_web else "mqtt.host and mqtt.port"

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class Subject:
    """One device, as the doctor sees it.

    Args:
        load: gives the configuration or raises :class:`~agent.errors.ConfigurationError`.
        environ: of this process.
        root: where ``/proc``, ``/run`` and ``/etc`` are looked for; another one in tests.
        run: runs a system program and returns its output; None when it is not there or failed.
        wall: this machine's clock, seconds since the epoch.
        room: how much room a file system has (statvfs(3)).
        user_id: who runs the doctor; this process's user by default.
        is_synchronized: whether a time service keeps the clock; given systemd-timesyncd's marker.
    """

    def __init__(
        self,
        load: Callable[[], LoadedConfig],
        environ: Mapping[str, str],
        *,
        root: Path = Path("/"),
        run: Callable[[Sequence[str]], str | None] | None = None,
        wall: Callable[[], float] = time.time,
        room: Callable[[Path], os.statvfs_result] = os.statvfs,
        user_id: int | None = None,
        is_synchronized: Callable[[Path], bool] = is_synchronized,
    ) -> None:
        self._load = load
        self.environ = environ
        self.root = root
        self.run = run or run_command
        self.wall = wall
        self.room = room
        self.is_synchronized = is_synchronized
        self.user_id = os.geteuid() if user_id is None else user_id

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
        """The agent's credentials: its own files, or those that its unit hands over.

        Raises:
            ConfigurationError: they cannot be read by whoever runs the doctor, or are wrong.
        """
        auth = self.config.auth
        fields = type(auth).model_fields
        given = {
            f"{name}_file": path
            for name, path in _credentials_of(self.unit.get("LoadCredential", ""), self.path)
            if f"{name}_file" in fields
        }
        try:
            return read_credentials(auth, self.environ)
        except ConfigurationError:
            if not given:
                raise
            return read_credentials(auth.model_copy(update=given), self.environ)

    @cached_property
    def status(self) -> AgentStatus:
        """What ``device-agent status`` knows."""
        return look_at(self.config, self.environ)

    @cached_property
    def has_systemd(self) -> bool:
        """This machine was booted with systemd (sd_booted(3))."""
        return self.path("/run/systemd/system").is_dir()

    @cached_property
    def unit(self) -> Mapping[str, str]:
        """Properties of the agent's unit; empty without systemd."""
        return self.unit_of(UNIT)

    @cached_property
    def unit_credentials(self) -> tuple[tuple[str, Path], ...]:
        """Name and file of each credential that the unit hands over, the encrypted ones too."""
        words = f"{self.unit.get('LoadCredential', '')} {self.unit.get('LoadCredentialEncrypted', '')}"
        return _credentials_of(words, self.path)

    @property
    def has_sealed_credentials(self) -> bool:
        """The unit hands over credentials that nobody but the service itself can read."""
        return bool(self.unit.get("LoadCredentialEncrypted"))

    def may_read(self, path: Path) -> bool:
        """Whether whoever runs the doctor may read this file."""
        return self.user_id == 0 or path.stat().st_uid == self.user_id or bool(path.stat().st_mode & 0o044)

    def unit_of(self, name: str) -> Mapping[str, str]:
        """Properties of a unit, also of one that is not there; empty when systemd cannot be asked."""
        if not self.has_systemd:
            return {}
        text = self.run(["systemctl", "show", name, "--no-pager", f"--property={_PROPERTIES}"])
        properties: dict[str, str] = {}
        for line in (text or "").splitlines():
            key, sign, value = line.partition("=")
            if sign:
                # A list has a line for each item.
                properties[key] = f"{properties[key]} {value}" if key in properties else value
        return properties

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """Whom the agent talks to."""
        found: list[Endpoint] = []
        if self.config.service is not None:
            from urllib.parse import urlsplit

            service = self.config.service
            parts = urlsplit(service.base_url)
            is_tls = parts.scheme == "https"
            port = parts.port or (443 if is_tls else 80)
            found.append(
                Endpoint("service", parts.hostname or "", port, is_tls, service.ca_file, True, service.base_url)
            )
        if self.config.mqtt is not None:
            mqtt = self.config.mqtt
            found.append(Endpoint("broker", mqtt.host, mqtt.port_in_use, mqtt.tls, mqtt.ca_file, False, mqtt.host))
        return tuple(found)

    @cached_property
    def exchange(self) -> Exchange:
        """What the service answered to two requests that change nothing."""
        from agent.doctor.exchange import ask

        return ask(self.config, self.credentials, self.wall)

    def path(self, absolute: str) -> Path:
        """A path of the system, below :attr:`root`."""
        return self.root / absolute.lstrip("/")

    def read(self, absolute: str) -> str | None:
        """A small file of the system; None when it cannot be read."""
        try:
            return self.path(absolute).read_text("utf-8", "replace")
        except OSError:
            return None


def _credentials_of(words: str, place: Callable[[str], Path]) -> tuple[tuple[str, Path], ...]:
    pairs = (word.partition(":") for word in words.split())
    return tuple((name, place(path)) for name, _, path in pairs if path.startswith("/"))


def run_command(argv: Sequence[str]) -> str | None:
    """A system program's output; None when it is not there, fails or takes too long."""
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"}
    try:
        run = run_program(argv, timeout_s=_COMMAND_TIMEOUT_S, environment=environment)
    except ProgramNotStarted:
        return None
    return run.output.decode("utf-8", "replace") if run.exit_code == 0 else None


def words_of(error: Exception) -> str:
    """An error as one line."""
    if isinstance(error, ConfigurationError):
        return "; ".join(error.faults)
    if isinstance(error, OSError) and not isinstance(error, ServiceError):
        return os.strerror(error.errno) if error.errno else str(error)
    return " ".join(str(error).split()) or type(error).__name__
