"""The client that a device needs: devices, commands, sensor data, results. Small, since it runs on small machines."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Self

import httpx

from agent.wire.announcement import ask_for_announcement
from agent.wire.auth import Credential
from agent.wire.connection import Connection
from agent.wire.device_calls import DeviceCalls
from agent.wire.dialect import AnswerReading
from agent.wire.limits import ANSWER_BYTES


class DeviceClient(DeviceCalls):
    """The device's side of the interface, synchronous, usable from any thread.

    Every method makes its requests once: what to do about an error is the caller's, by the error's ``advice``. Methods
    that list return iterators that fetch page after page when asked for, so their errors come while iterating.

    Args:
        base_url: the gateway address, ``{base_url}`` in the specification.
        auth: :class:`~agent.wire.auth.KeyPair` or :class:`~agent.wire.auth.BearerToken`; None sends none.
        timeout_s: for a whole request, seconds; see :class:`~agent.wire.connection.Connection`.
        max_answer_bytes: the largest answer, after decoding.
        ca_file: PEM file with the authorities that alone are trusted; None trusts the system's.
        transport: replaces the network, for tests.
        user_agent: the ``User-Agent`` header.
        reading: how answers are read where servers differ; a server's :class:`~agent.wire.dialect.Dialect` has it.

    Raises:
        ConfigurationError: the base URL cannot be used.
    """

    def __init__(
        self,
        base_url: str,
        auth: Credential | None,
        *,
        timeout_s: float = 10.0,
        max_answer_bytes: int = ANSWER_BYTES,
        ca_file: Path | None = None,
        transport: httpx.BaseTransport | None = None,
        user_agent: str = "device-agent",
        reading: AnswerReading = AnswerReading(),  # noqa: B008 - frozen
    ) -> None:
        super().__init__(
            Connection(
                base_url,
                auth,
                timeout_s=timeout_s,
                max_answer_bytes=max_answer_bytes,
                ca_file=ca_file,
                transport=transport,
                user_agent=user_agent,
            )
        )
        self.reading = reading

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End held polls and release the connections."""
        self.connection.close()

    def discover(self) -> frozenset[str]:
        """``GET /.well-known/device-service``: the names of the extensions that this service has.

        A plain server has none: it answers any 4xx but 401, 408, 425 and 429, 501, a 2xx without such a list, or a web
        page from a service that is proved to be one.

        Raises:
            ServiceError: not known: no answer, a captive portal, wrong credentials, a quota, a failing service.
        """
        return ask_for_announcement(self.connection).extensions
