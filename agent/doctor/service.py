"""The service: is it one, does it take the credentials, does it know the device?

A few requests that change nothing and take no commands.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from itertools import islice
from typing import Any, Final

from agent import errors
from agent.app.transport import make_client
from agent.doctor.device import Device
from agent.doctor.findings import Check, CheckStatus, Finding, failed, ok, skipped, unreachable, warning
from agent.doctor.machine import SET_CLOCK
from agent.doctor.network import TIMEOUT_S
from agent.wire import paths
from agent.wire.client import DeviceClient
from agent.wire.server import COMMAND_STATUS, read_announcement

FLEET_MAX: Final = 1000
"""So many devices of the list are looked at, which takes ten requests at our service."""

_NOT_FOUND: Final = 404
_AGREES_S: Final = 5.0
_WRONG_S: Final = 300.0


def _service(device: Device) -> Iterator[Finding]:
    """Ask for the discovery document, unless the configuration has one, and whether the service knows the device."""
    service = device.config.service
    if service is None:
        yield skipped("no service is configured: commands and readings go through the broker alone")
        return
    service = service.model_copy(update={"timeout_s": min(service.timeout_s, TIMEOUT_S)})
    configured = service.dialect.dialect().extensions
    ahead_s: float | None = None

    def note(server_time: float | None, _took_s: float = 0.0) -> None:
        nonlocal ahead_s
        ahead_s = ahead_s if server_time is None else device.wall() - server_time

    def ask(question: Callable[[], Any]) -> tuple[Any, errors.AgentError | None]:
        try:
            return question(), None
        except errors.AgentError as error:
            note(getattr(error, "server_time", None))
            return None, error

    with make_client(service, device.credentials) as client:
        client.on_date = note
        document, discovery = {"extensions": sorted(configured or ())}, None
        if configured is None:
            document, discovery = ask(lambda: client.request("GET", paths.DISCOVERY).json())
        knows, error = False, discovery
        if not isinstance(discovery, errors.TransportError):
            device_id = device.config.device.device_id
            knows, error = ask(lambda: knows_device(client, device_id, read_announcement(document).extensions))
        # A credential that may not even ask for the document is no good, unless the next answer says otherwise.
        is_forbidden = isinstance(discovery, errors.Forbidden) and not knows and error is None
        if is_forbidden or isinstance(discovery, errors.Unauthorized):
            error = discovery
    answers = _answers(service.base_url, document, error if configured is not None else discovery)
    yield answers
    if ahead_s is not None:
        yield _clock(ahead_s)
    if answers.verdict is CheckStatus.OK:
        yield _credentials_and_device(device, error, knows=knows)


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
    except (errors.Forbidden, errors.Refused):
        return False  # a credential for this device alone, or a server that does not list
    if device_id in listed:
        return True
    if len(listed) >= FLEET_MAX or not any(listed):
        return False
    raise errors.NotFound(404, "device_not_found", f"it is not among the {len(listed)} devices that the service lists")


def _answers(base_url: str, document: Any, error: errors.AgentError | None) -> Finding:
    match error:
        case None:
            names = document.get("extensions") if isinstance(document, dict) else None
            words = ", ".join(sorted(map(str, names))) if isinstance(names, list) else ""
            return ok(f"{base_url} answers, and offers {words or 'no extensions (a plain server)'}")
        case errors.ServerFault():
            cause = f"the service itself is failing ({error})"
            return failed(base_url, cause, "nothing on this device; ask whoever runs the service")
        case errors.TransportError():
            return unreachable(base_url, str(error))
        # Many servers have a web page for paths that they do not know.
        case errors.UnexpectedAnswer() if error.status != _NOT_FOUND:
            return failed(base_url, str(error))
    return ok(f"{base_url} answers")


def _clock(ahead_s: float) -> Finding:
    if abs(ahead_s) <= _AGREES_S:
        return ok("this machine's clock agrees with the service's within 5 s")
    seen = f"this machine's clock is {abs(ahead_s):.0f} s {'ahead of' if ahead_s > 0 else 'behind'} the service's"
    cause = "one of the two clocks is wrong; the agent goes by the service's, other programs do not"
    return (failed if abs(ahead_s) > _WRONG_S else warning)(seen, cause, SET_CLOCK)


def _credentials_and_device(device: Device, error: errors.AgentError | None, *, knows: bool) -> Finding:
    mode = "key pair" if device.config.auth.mode == "key_pair" else "bearer token"
    seen = f"device {device.config.device.device_id}"
    match error:
        case None if not knows:
            return ok(f"the service accepts the {mode}; whether it knows {seen} cannot be asked without a risk")
        case None:
            return ok(f"the service accepts the {mode} and knows {seen}")
        case errors.Unauthorized():
            cause = f"the service does not accept it ({error}): revoked, rotated, or another account's"
            fix = "put the right key or token into the files that auth names, then restart device-agent"
            return failed(f"the {mode} is refused", cause, fix)
        case errors.Forbidden():
            fix = "give the token the scopes for commands and data (docs/oauth.md)"
            return failed(f"the {mode} is refused", f"it is good, and may not do this ({error})", fix)
        case errors.NotFound() if error.error in {"not_found", ""}:
            cause = f"there is no such path at the service ({error})"
            return failed(seen, cause, "check the path at the end of service.base_url")
        case errors.NotFound():
            cause = f"the service does not know it ({error}): removed, or registered under another account"
            fix = "write the id that the registration gave into device.device_id, or register the device again"
            return failed(seen, cause, fix)
        case errors.RateLimited() | errors.TransportError() | errors.UnexpectedAnswer() | errors.ServerFault():
            return skipped(f"{seen}: the service did not answer the question ({error})")
    return failed(seen, f"the service refuses the question ({error})", "check device.device_id")


CHECK: Final[Check[Device]] = Check("service", _service, ("key_files", "tls"), online=True, timeout_s=30.0)
