"""A few requests to the service that change nothing and take no commands; several checks judge what came back."""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from agent.app.client import make_client
from agent.app.version import VERSION
from agent.config import AgentConfig, Credentials
from agent.errors import (
    AgentError,
    Forbidden,
    NotFound,
    Refused,
    ServerFault,
    TransportError,
    UnexpectedAnswer,
)
from agent.wire import paths
from agent.wire.announcement import read_announcement
from agent.wire.device_client import DeviceClient
from agent.wire.extensions import COMMAND_STATUS

NETWORK_TIMEOUT_S: Final = 5.0
"""How long one request or connection of the doctor may take."""

FLEET_MAX: Final = 1000
"""So many devices of the list are looked at, which takes ten requests at our service."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """The answers, and what was learned from them.

    Attributes:
        document: the discovery document, whatever JSON it is; None when there was none.
        discovery_error: why there was none.
        device_error: why nothing was learned of this device; None when the service was asked about it.
        knows_device: whether the service said that it knows this device.
        server_time: the service's clock, seconds since the epoch.
        asked_at: this machine's clock when that answer came.
    """

    document: Any = None
    discovery_error: AgentError | None = None
    device_error: AgentError | None = None
    knows_device: bool = False
    server_time: float | None = None
    asked_at: float | None = None

    @property
    def error(self) -> AgentError | None:
        """The first that went wrong."""
        return self.discovery_error or self.device_error


def ask(config: AgentConfig, credentials: Credentials, wall: Callable[[], float]) -> Exchange:
    """Ask for the discovery document, unless the configuration replaces it, and whether the service knows the device.

    Raises:
        ConfigurationError: address, keys or certificate file cannot be used.
    """
    assert config.service is not None  # noqa: S101 - the check is skipped without one
    service = config.service.model_copy(update={"timeout_s": min(config.service.timeout_s, NETWORK_TIMEOUT_S)})
    configured = service.dialect.dialect().extensions
    with make_client(config, service, credentials, VERSION) as client:
        times = _TimeNotes(client, wall)
        document: Any = None if configured is None else {"extensions": sorted(configured)}
        discovery_error: AgentError | None = None
        if configured is None:
            document, discovery_error = _document(client)
        if isinstance(discovery_error, TransportError):
            return Exchange(discovery_error=discovery_error, device_error=discovery_error)
        # A credential that may not even ask this is no good for the rest, unless the next answer says otherwise.
        is_forbidden = isinstance(discovery_error, Forbidden)
        device_error: AgentError | None = discovery_error if is_forbidden else None
        is_known = False
        try:
            is_known = knows_device(client, config.device.device_id, read_announcement(document).extensions)
            device_error = None if is_known else device_error
        except AgentError as error:
            device_error = error
            times.note(getattr(error, "server_time", None))
        if configured is not None and isinstance(device_error, TransportError | UnexpectedAnswer | ServerFault):
            discovery_error = device_error
        return Exchange(
            document,
            discovery_error,
            device_error,
            is_known,
            times.server_time,
            times.asked_at,
        )


class _TimeNotes:
    """What the answers of a client say of the time.

    Attributes:
        server_time: the service's clock in the last answer that had a ``Date``, seconds since the epoch.
        asked_at: this machine's clock then.
    """

    def __init__(self, client: DeviceClient, wall: Callable[[], float]) -> None:
        self._wall = wall
        self.server_time: float | None = None
        self.asked_at: float | None = None
        client.connection.on_date = self.note

    def note(self, server_time: float | None, _took_s: float = 0.0) -> None:
        """An answer had this ``Date``."""
        if server_time is not None:
            self.server_time, self.asked_at = server_time, self._wall()


def _document(client: DeviceClient) -> tuple[Any, AgentError | None]:
    try:
        return client.connection.request("GET", paths.DISCOVERY).json(), None
    except AgentError as error:
        return None, error


def knows_device(client: DeviceClient, device_id: str, offered: Container[str]) -> bool:
    """True when the service knows the device; False when that cannot be found out without a risk.

    A service with ``command-status`` is asked for the device's running commands, which marks none as delivered. Any
    other may hand out each command once, so its list of devices is read instead.

    Args:
        client: makes the requests.
        device_id: the device.
        offered: the service's extensions, announced or configured.

    Raises:
        NotFound: the service does not know it.
        ServiceError: the service could not be asked, or does not accept the credentials.
    """
    if COMMAND_STATUS in offered:
        client.device_commands(device_id, status="in_progress")
        return True
    try:
        listed = [device.device_id for device in islice(client.devices(), FLEET_MAX)]
    except (Forbidden, Refused):
        return False  # a credential for this device alone, or a server that does not list
    if device_id in listed:
        return True
    if len(listed) >= FLEET_MAX or not any(listed):
        return False
    raise NotFound(404, "device_not_found", f"it is not among the {len(listed)} devices that the service lists")
