"""The agent and its surroundings, for the checks.

Everything is read once, when the first check asks for it; nothing is written.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final, Unpack
from urllib.parse import urlsplit

from agent.adapters.clocks import is_synchronized
from agent.app.status import AgentStatus, read_agent_status
from agent.config import AgentConfig, LoadedConfig
from agent.config.model import AuthConfig
from agent.doctor.exchange import ask
from agent.doctor.installed import InstalledProgram, Options
from agent.wire.address import authority

if TYPE_CHECKING:
    from agent.doctor.exchange import Exchange

REBOOT: Final = "device-agent-reboot.timer"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A server that the agent talks to.

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
        return authority(self.host, self.port)


class Subject(InstalledProgram):
    """One device, as the doctor sees it.

    Args:
        load: gives the configuration or raises :class:`~agent.errors.ConfigurationError`.
        environ: of this process.
        wall: this machine's clock, seconds since the epoch.
        room: how much room a file system has (statvfs(3)).
        is_synchronized: whether a time service keeps the clock; given systemd-timesyncd's marker.
        options: those of :class:`~agent.doctor.installed.InstalledProgram`.
    """

    name = "device-agent"

    def __init__(
        self,
        load: Callable[[], LoadedConfig],
        environ: Mapping[str, str],
        *,
        wall: Callable[[], float] = time.time,
        room: Callable[[Path], os.statvfs_result] = os.statvfs,
        is_synchronized: Callable[[Path], bool] = is_synchronized,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(environ, **options)
        self._load = load
        self.wall = wall
        self.room = room
        self.is_synchronized = is_synchronized

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

    @property
    def auth(self) -> AuthConfig:
        """The credentials' section of the configuration."""
        return self.config.auth

    @property
    def further_keys(self) -> tuple[Path, ...]:
        """Private keys and passwords that the configuration names elsewhere."""
        mqtt = self.config.mqtt
        return (mqtt.key_file,) if mqtt is not None and mqtt.key_file is not None else ()

    @cached_property
    def status(self) -> AgentStatus:
        """The result of ``device-agent status``."""
        return read_agent_status(self.config, self.environ)

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """The servers that the agent talks to."""
        found: list[Endpoint] = []
        if self.config.service is not None:
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
        """The service's answers to two requests that change nothing."""
        return ask(self.config, self.credentials, self.wall)
