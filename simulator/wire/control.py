"""The client of the control surface, ``/_emulator/...``: JSON in, JSON out."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from agent.wire.client import Connection
from agent.wire.encoding import encode_json
from agent.wire.models import JsonObject
from agent.wire.secret import Secret

TOKEN_HEADER = "X-Emulator-Token"  # noqa: S105 - the header's name


class ControlClient:
    """Asks the control surface of one service, each request once.

    Args:
        base_url: of the service.
        token: its control token; None where it needs none.
        timeout_s: for a whole request, seconds.

    Raises:
        ConfigurationError: the base URL cannot be used.
    """

    def __init__(self, base_url: str, token: Secret | None = None, *, timeout_s: float = 10.0) -> None:
        self._connection = Connection(base_url, timeout_s=timeout_s, user_agent="fleet-simulator")
        self._headers = {} if token is None else {TOKEN_HEADER: token.reveal()}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()

    def request(self, method: str, path: str, body: JsonObject | None = None) -> Any:
        """The JSON value that is answered; None for an answer without a body.

        Args:
            method: of HTTP.
            path: from ``/_emulator/`` on, ids percent-encoded.
            body: sent as JSON.

        Raises:
            ServiceError: the class that fits; see :mod:`agent.errors`.
        """
        content = None if body is None else encode_json(body)
        answer = self._connection.request(method, path, body=content, headers=self._headers)
        return answer.json() if answer.content else None
