"""The command, the devices and the limits of a rollout, out of its options."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from agent.errors import ConfigurationError, InvalidMessage

if TYPE_CHECKING:
    from agent.wire.sending import SendingClient
    from gateway.rollout.plan import Limits

FAILED: Final = "5%"
SILENT: Final = "20%"
_TIMEOUT_S: Final = 1800.0


def given_payload(text: str | None, path: Path | None) -> dict[str, Any]:
    """The ``command_payload``: JSON text, or a file with it.

    Raises:
        ConfigurationError: it is no JSON object, too large, or cannot be read.
    """
    from agent.wire.json_text import parse_object
    from agent.wire.limits import COMMAND_PAYLOAD_BYTES

    if (text is None) == (path is None):
        raise click.UsageError('give the command: either --command \'{"command":"ping"}\' or --command-file FILE')
    try:
        if path is not None:
            raw = sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
        else:
            raw = (text or "").encode()
        return parse_object(raw, max_bytes=COMMAND_PAYLOAD_BYTES)
    except OSError as error:
        raise ConfigurationError([f"{path} cannot be read: {error.strerror}"], "--command-file") from None
    except (InvalidMessage, UnicodeEncodeError) as error:
        where = "--command" if path is None else str(path)
        fault = f'{where}: {error}; give a JSON object such as {{"command":"ping"}}'
        raise ConfigurationError([fault], "rollout") from None


def given_targets(client: SendingClient, offers: frozenset[str], given: dict[str, Any]) -> list[str]:
    """The ids of the devices: those of a product, or those that were named.

    Raises:
        ConfigurationError: there are none, or the service does not know some of them.
        ServiceError: it could not be asked.
    """
    from gateway.rollout.targets import devices_of_product, known_devices, read_device_ids

    product_id, device_ids, path = given["product_id"], given["device_ids"], given["devices_file"]
    if bool(product_id) == bool(device_ids or path):
        raise click.UsageError("name the devices: either --product-id, or --device-id and --devices")
    if product_id:
        return devices_of_product(client, offers, product_id)
    return known_devices(client, [*device_ids, *(read_device_ids(path) if path else ())])


def given_limits(given: dict[str, Any], before: Limits | None) -> Limits:
    """When the rollout stops; what was not given is as ``before``, or has its default.

    Raises:
        ConfigurationError: a share is none.
    """
    from gateway.rollout.plan import Limits, read_share

    start = before or Limits(read_share(FAILED), read_share(SILENT), _TIMEOUT_S)
    failed, silent = given["max_failed"], given["max_silent"]
    return Limits(
        start.failed if failed is None else read_share(failed),
        start.silent if silent is None else read_share(silent),
        given["timeout_s"] or start.timeout_s,
    )


def given_ttl(given_s: float | None, timeout_s: float, offers: frozenset[str]) -> int | None:
    """How long a command waits for its device, seconds; None where this service takes no such bound.

    Raises:
        ConfigurationError: it was given and cannot be.
    """
    from agent.wire.extensions import COMMAND_TTL
    from agent.wire.limits import TTL_MAX_S

    if COMMAND_TTL not in offers:
        if given_s is not None:
            raise ConfigurationError(["--ttl: this service takes none: leave it out"], "rollout")
        return None
    if given_s is not None and given_s > TTL_MAX_S:
        raise ConfigurationError([f"--ttl: {TTL_MAX_S // 3600}h at most"], "rollout")
    return max(1, round(min(given_s or timeout_s, TTL_MAX_S)))
