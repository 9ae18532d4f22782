"""The transports that a fleet can use: a row for each, with everything that other modules ask about it.

What a worker needs to use one, engine, links and driver, is made in :mod:`simulator.fleet.workload.devices`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal


@dataclass(frozen=True, slots=True)
class Transport:
    """A transport of virtual devices, and its facts.

    Attributes:
        word: the scenario's, for ``target.transport``.
        title: the report's.
        protocol: first part of the names of its operations, as in ``http.sensor_data``.
        polls: how commands are fetched: asked for at times, or with a poll that the server holds; empty where they
            are pushed.
        has_sessions: every device has a session of its own, whatever ``target.connections`` says.
        needs_gateway: the service itself does not speak it.
    """

    word: str
    title: str
    protocol: Literal["http", "mqtt"]
    polls: Literal["periodic", "held", ""] = ""
    has_sessions: bool = False
    needs_gateway: bool = False

    @property
    def is_pushed(self) -> bool:
        """Whether commands come without being asked for."""
        return not self.polls


TRANSPORTS: Final = {
    each.word: each
    for each in (
        Transport("http_poll", "HTTP, polling", "http", polls="periodic"),
        Transport("http_long_poll", "HTTP, long polls", "http", polls="held"),
        Transport("mqtt", "MQTT", "mqtt", has_sessions=True, needs_gateway=True),
    )
}
"""Every transport by its word, in the order in which they are offered."""
