"""One try to connect as a device: is the broker there, does it take the token, may the device subscribe?"""

from __future__ import annotations

from typing import Literal

from agent.adapters.mqtt_device import subscriptions_of
from agent.adapters.mqtt_session import Broker, Role, Session, Version
from agent.wire.secret import Secret


def probe(broker: Broker, device_id: str, token: Secret, version: Literal["auto", "5", "3.1.1"]) -> Version:
    """Connect, subscribe, disconnect; the version that was spoken.

    What the broker keeps for the device stays there, and nobody is told that the device is online. A running agent with
    the same id would lose its connection: ask only when there is none.

    Raises:
        Offline: it did not work, and why.
    """
    role = Role(
        subscriptions=subscriptions_of(device_id),
        on_arrival=lambda _arrival: None,  # not acknowledged, so the agent gets it
        on_up=lambda session: session.end(),
    )
    attempts: tuple[Version, ...] = ("5", "3.1.1") if version == "auto" else (version,)
    for attempt in attempts:
        session = Session(broker, token, attempt, role)
        error = session.run()
        if session.up_at_s is not None:
            return attempt
        if not session.was_connected or (session.was_answered and error.state != "unsupported_version"):
            break
    raise error
