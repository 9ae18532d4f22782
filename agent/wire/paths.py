"""Every path of the service that devices and gateways use, relative to ``{base_url}`` (specification, "Endpoints";
extensions are marked). The operator's are in ``simulator/wire/paths.py``.

The constants are templates, as a server routes them. The functions fill in ids, each percent-encoded as one segment.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

from agent.errors import InvalidMessage

DEVICES: Final = "/devices"
DEVICE_COMMANDS: Final = "/devices/{device_id}/commands"
SEND_COMMAND: Final = "/commands/send"
SENSOR_DATA: Final = "/sensor-data"
RUNTIME_DATA: Final = "/database/runtime-data"
ONBOARDING_DEVICES: Final = "/onboarding/device"

DISCOVERY: Final = "/.well-known/device-service"
"""Extension document: which extensions this service has; 404 on a plain server."""
COMMAND_RESULT: Final = "/devices/{device_id}/commands/{command_id}/result"
"""Extension ``command-results``."""
COMMAND_EVENTS: Final = "/commands/events"
"""Extension ``command-events``."""


def segment(value: str) -> str:
    """One path segment: everything but unreserved characters is percent-encoded, the dots of ``.`` and ``..`` too.

    Raises:
        InvalidMessage: the value is empty or has no UTF-8 form.
    """
    if not value:
        raise InvalidMessage("an id in a path must not be empty")
    if value in {".", ".."}:
        return "%2E" * len(value)  # clients and servers would resolve the bare ones away
    try:
        return quote(value, safe="")
    except UnicodeEncodeError:
        raise InvalidMessage("an id in a path must not contain a lone surrogate") from None


def fill(template: str, **ids: str) -> str:
    """The template with each ``{name}`` replaced by its id as one segment."""
    return template.format_map({name: segment(value) for name, value in ids.items()})


def device_commands(device_id: str) -> str:
    """``GET``: commands of that device."""
    return fill(DEVICE_COMMANDS, device_id=device_id)


def command_result(device_id: str, command_id: str) -> str:
    """``POST``, extension: how a command goes or ended."""
    return fill(COMMAND_RESULT, device_id=device_id, command_id=command_id)
