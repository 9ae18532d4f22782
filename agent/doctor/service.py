"""The service: is it one, does it take the credentials, does it know the device?

A few requests that change nothing and take no commands; several checks judge what came back.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from itertools import islice
from typing import Final

from agent.app.client import make_client
from agent.app.version import VERSION
from agent.doctor.device import Device, Exchange
from agent.doctor.findings import Check, Finding, failed, ok, skipped, unreachable, warning
from agent.doctor.machine import SET_CLOCK
from agent.doctor.network import TIMEOUT_S
from agent.errors import (
    AgentError,
    Forbidden,
    NotFound,
    RateLimited,
    Refused,
    ServerFault,
    TransportError,
    Unauthorized,
    UnexpectedAnswer,
)
from agent.wire import paths
from agent.wire.client import DeviceClient
from agent.wire.extensions import COMMAND_STATUS, read_announcement

FLEET_MAX: Final = 1000
"""So many devices of the list are looked at, which takes ten requests at our service."""

_NOT_FOUND: Final = 404
_AGREES_S: Final = 5.0
_WRONG_S: Final = 300.0


def ask(device: Device) -> Exchange:
    """Ask for the discovery document, unless the configuration replaces it, and whether the service knows the device.

    Raises:
        ConfigurationError: address, keys or certificate file cannot be used.
    """
    service = device.config.service
    assert service is not None  # noqa: S101 - the checks are skipped without one
    service = service.model_copy(update={"timeout_s": min(service.timeout_s, TIMEOUT_S)})
    configured = service.dialect.dialect().extensions
    found = Exchange()

    def note(server_time: float | None, _took_s: float = 0.0) -> None:
        if server_time is not None:
            found.ahead_s = device.wall() - server_time

    with make_client(device.config, service, device.credentials, VERSION) as client:
        client.connection.on_date = note
        if configured is not None:
            found.document = {"extensions": sorted(configured)}
        else:
            try:
                found.document = client.connection.request("GET", paths.DISCOVERY).json()
            except AgentError as error:
                found.discovery_error = error
                note(getattr(error, "server_time", None))
        if isinstance(found.discovery_error, TransportError):
            found.device_error = found.discovery_error
            return found
        try:
            offered = read_announcement(found.document).extensions
            found.knows_device = knows_device(client, device.config.device.device_id, offered)
        except AgentError as error:
            found.device_error = error
            note(getattr(error, "server_time", None))
        # A credential that may not even ask for the document is no good, unless the next answer says otherwise.
        if isinstance(found.discovery_error, Forbidden) and not found.knows_device and found.device_error is None:
            found.device_error = found.discovery_error
        if configured is not None and isinstance(found.device_error, TransportError | UnexpectedAnswer | ServerFault):
            found.discovery_error = found.device_error
    return found


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
        listed = [device.device_id for device in islice(client.devices(), FLEET_MAX)]
    except (Forbidden, Refused):
        return False  # a credential for this device alone, or a server that does not list
    if device_id in listed:
        return True
    if len(listed) >= FLEET_MAX or not any(listed):
        return False
    raise NotFound(404, "device_not_found", f"it is not among the {len(listed)} devices that the service lists")


def _exchange_with(device: Device) -> Exchange:
    """The answers, asked for once."""
    if device.exchange is None:
        device.exchange = ask(device)
    return device.exchange


def _asked(judge: Callable[[Device, Exchange], Finding]) -> Callable[[Device], Iterator[Finding]]:
    def run(device: Device) -> Iterator[Finding]:
        if device.config.service is None:
            yield skipped("no service is configured: commands and readings go through the broker alone")
        else:
            yield judge(device, _exchange_with(device))

    return run


def _service_answers(device: Device, exchange: Exchange) -> Finding:
    base_url = device.config.service.base_url if device.config.service is not None else ""
    match exchange.discovery_error:
        case None:
            names = exchange.document.get("extensions") if isinstance(exchange.document, dict) else None
            words = ", ".join(sorted(map(str, names))) if isinstance(names, list) else ""
            return ok(f"{base_url} answers, and offers {words or 'no extensions (a plain server)'}")
        case ServerFault() as error:
            cause = f"the service itself is failing ({error})"
            return failed(base_url, cause, "nothing on this device; ask whoever runs the service")
        case TransportError() as error:
            return unreachable(base_url, str(error))
        # Many servers have a web page for paths that they do not know.
        case UnexpectedAnswer() as error if error.status != _NOT_FOUND:
            return failed(base_url, str(error))
        case NotFound() | Refused() | UnexpectedAnswer():
            return ok(f"{base_url} answers, and offers no extensions (a plain server)")
        case _:
            return ok(f"{base_url} answers as the service does")


def _clock_against_service(_device: Device, exchange: Exchange) -> Finding:
    ahead_s = exchange.ahead_s
    if ahead_s is None:
        return skipped("the service's answer has no Date")
    if abs(ahead_s) <= _AGREES_S:
        return ok("it agrees with the service's within 5 s")
    seen = f"it is {abs(ahead_s):.0f} s {'ahead of' if ahead_s > 0 else 'behind'} the service's"
    cause = "one of the two clocks is wrong; the agent goes by the service's, other programs do not"
    return (failed if abs(ahead_s) > _WRONG_S else warning)(seen, cause, SET_CLOCK)


def _credentials_accepted(device: Device, exchange: Exchange) -> Finding:
    mode = "key pair" if device.config.auth.mode == "key_pair" else "bearer token"
    first = exchange.discovery_error
    match first if isinstance(first, Unauthorized) else exchange.device_error:
        case Unauthorized() as error:
            cause = f"the service does not accept it ({error}): revoked, rotated, or another account's"
            fix = "put the right key or token into the files that auth names, then restart device-agent"
            return failed(f"the {mode} is refused", cause, fix)
        case Forbidden() as error:
            fix = "give the token the scopes for commands and data (docs/oauth.md)"
            return failed(f"the {mode} is refused", f"it is good, and may not do this ({error})", fix)
        case TransportError() | UnexpectedAnswer() | ServerFault() as error:
            return skipped(f"the service could not be asked: {error}")
        case _:
            return ok(f"the service accepts the {mode}")


def _device_known(device: Device, exchange: Exchange) -> Finding:
    seen = f"device {device.config.device.device_id}"
    match exchange.device_error:
        case None if not exchange.knows_device:
            return skipped("the service does not list its devices, and its list of commands may hand out each one once")
        case None:
            return ok(f"the service knows {seen}")
        case NotFound() as error if error.error in {"not_found", ""}:
            cause = f"there is no such path at the service ({error})"
            return failed(seen, cause, "check the path at the end of service.base_url")
        case NotFound() as error:
            cause = f"the service does not know it ({error}): removed, or registered under another account"
            fix = "write the id that the registration gave into device.device_id, or register the device again"
            return failed(seen, cause, fix)
        case RateLimited():
            return skipped("the key's quota is used up for now")
        case error:
            return failed(seen, f"the service refuses the question ({error})", "check device.device_id")


def _check(name: str, looks_at: str, judge: Callable[[Device, Exchange], Finding], *after: str) -> Check[Device]:
    return Check(name, looks_at, _asked(judge), ("key_files", "tls", *after), online=True, timeout_s=30.0)


CHECKS: Final = (
    _check("service_answers", "the service's discovery document", _service_answers),
    _check("clock_against_service", "this machine's clock beside the service's Date", _clock_against_service),
    _check("credentials_accepted", "whether it takes the credentials", _credentials_accepted, "service_answers"),
    _check("device_known", "whether it knows this device", _device_known, "credentials_accepted"),
)
