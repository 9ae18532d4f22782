"""Bytes of requests, from a head that is the same for all devices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from agent.errors import ConfigurationError
from simulator.fleet.device.http_codec import Request
from simulator.fleet.engine.http.origin import Origin

USER_AGENT: Final = "fleet-simulator"


class RequestTemplate:
    """The head that all requests to one address share: the prefix of the path and the fixed headers.

    Args:
        origin: the address.
        headers: sent with every request, such as the two keys.

    Raises:
        ConfigurationError: a header cannot be sent.
    """

    __slots__ = ("_fixed", "_prefix")

    def __init__(self, origin: Origin, headers: Mapping[str, str]) -> None:
        self._prefix = origin.prefix
        fixed = {"host": origin.authority, "accept-encoding": "identity", "user-agent": USER_AGENT, **headers}
        for name, value in fixed.items():
            if any(character in name + value for character in "\r\n\0") or not (name + value).isascii():
                raise ConfigurationError(
                    [f"header {name}: a line break, NUL or what is not ASCII is not allowed in it"], "fleet"
                )
        self._fixed = "".join([f"{name}: {value}\r\n" for name, value in fixed.items()])

    def message(self, request: Request) -> bytes:
        """The whole request, ready for the wire (RFC 9112)."""
        head = f"{request.method} {self._prefix}{request.target} HTTP/1.1\r\n{self._fixed}"
        for name, value in request.headers.items():
            head += f"{name}: {value}\r\n"
        body = request.body
        if body is None:
            return f"{head}\r\n".encode()
        return f"{head}content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body
