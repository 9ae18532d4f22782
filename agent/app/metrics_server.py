"""The figures of a registry at ``GET /metrics``, by the server of prometheus-client; needs the extra ``metrics``."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, start_http_server

from agent.errors import ConfigurationError
from agent.wire.network import authority


class MetricsServer:
    """Serves a registry from now on until :meth:`stop`.

    Args:
        registry: the figures, read at each request.
        host: to listen on.
        port: of TCP; 0 takes a free one.

    Raises:
        ConfigurationError: the address cannot be bound.
    """

    def __init__(self, registry: CollectorRegistry, host: str, port: int) -> None:
        try:
            self._server, self._thread = start_http_server(port, host, registry)
        except OSError as error:
            text = f"metrics.port: {authority(host, port)} cannot be listened on: {error.strerror or error}"
            raise ConfigurationError(
                [f"{text}; choose another one, or remove the section metrics"], "metrics"
            ) from None
        self.address = f"http://{authority(host, self._server.server_port)}/metrics"

    def stop(self, timeout_s: float = 1.0) -> None:
        """End it."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout_s)
