"""Two requests to the service that change nothing; several checks judge what came back."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any, Final

from agent.app.client import make_client
from agent.app.version import VERSION
from agent.config import AgentConfig, Credentials
from agent.doctor.subject import NETWORK_TIMEOUT_S
from agent.errors import AgentError, ServiceError, TransportError, UnexpectedAnswer
from agent.frozen import dataclass
from agent.wire import paths
from agent.wire.answers import Answer
from agent.wire.device_client import DeviceClient
from agent.wire.rate_limit import RateLimit, read_rate_limit

FLEET_MAX: Final = 1000
"""So many devices are counted at most, which takes ten requests."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """What came back.

    Attributes:
        document: the discovery document, whatever JSON it is; None when there was none.
        discovery_error: why there was none.
        device_error: why the device's commands were not listed; None when they were.
        server_time: the service's clock, seconds since the epoch.
        asked_at: this machine's clock when that answer came.
        rate_limit: how the key's quota stands.
        fleet: devices that share the key, at most :data:`FLEET_MAX`; None when they are not told.
    """

    document: Any = None
    discovery_error: AgentError | None = None
    device_error: AgentError | None = None
    server_time: float | None = None
    asked_at: float | None = None
    rate_limit: RateLimit | None = None
    fleet: int | None = None

    @property
    def error(self) -> AgentError | None:
        """The first that went wrong."""
        return self.discovery_error or self.device_error


def ask(config: AgentConfig, credentials: Credentials, wall: Callable[[], float]) -> Exchange:
    """Ask for the discovery document and for the device's running commands, which marks none as delivered.

    Raises:
        ConfigurationError: address, keys or certificate file cannot be used.
    """
    assert config.service is not None  # noqa: S101 - the check is skipped without one
    service = config.service.model_copy(update={"timeout_s": min(config.service.timeout_s, NETWORK_TIMEOUT_S)})
    with make_client(config, service, credentials, VERSION) as client:
        answer, discovery_error = _try(client, paths.DISCOVERY)
        asked_at = wall()
        document = None
        if isinstance(discovery_error, TransportError):
            return Exchange(discovery_error=discovery_error, device_error=discovery_error)
        if answer is not None:
            try:
                document = answer.json()
            except UnexpectedAnswer as error:
                discovery_error = error
        listed, device_error = _try(client, paths.device_commands(config.device.device_id), {"status": "in_progress"})
        told = listed or answer
        limit = read_rate_limit(told.headers) if told is not None else None
        return Exchange(
            document,
            discovery_error,
            device_error,
            told.server_time if told is not None else getattr(device_error, "server_time", None),
            asked_at if listed is None and answer is not None else wall(),
            limit,
            _fleet(client) if listed is not None and limit is not None else None,
        )


def _try(
    client: DeviceClient, path: str, params: dict[str, str] | None = None
) -> tuple[Answer | None, AgentError | None]:
    try:
        return client.connection.request("GET", path, params=params), None
    except AgentError as error:
        return None, error


def _fleet(client: DeviceClient) -> int | None:
    try:
        return sum(1 for _ in islice(client.devices(), FLEET_MAX))
    except ServiceError:
        return None  # a device's token lists no fleet
