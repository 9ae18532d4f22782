"""Whether the service knows this device, found out without taking a command from a service that gives each out once."""

from __future__ import annotations

from collections.abc import Container
from itertools import islice
from typing import Final

from agent.errors import Forbidden, NotFound, Refused
from agent.wire.device_client import DeviceClient
from agent.wire.extensions import COMMAND_STATUS

DEVICES_MAX: Final = 1000
"""So many devices of the list are looked at, which takes ten requests at our service."""


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
        listed = [device.device_id for device in islice(client.devices(), DEVICES_MAX)]
    except (Forbidden, Refused):
        return False  # a credential for this device alone, or a server that does not list
    if device_id in listed:
        return True
    if len(listed) >= DEVICES_MAX or not any(listed):
        return False
    raise NotFound(404, "device_not_found", f"it is not among the {len(listed)} devices that the service lists")
