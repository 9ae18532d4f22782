"""The service: is it one, does it take the credentials, does it know the device?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from agent.doctor.clock import SET_IT
from agent.doctor.findings import Check, Finding, cause_and_fix, failed, ok, skipped, unreachable, warning
from agent.doctor.subject import Subject
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

_NO_SERVICE: Final = "no service is configured: commands and readings go through the broker alone"
_TIMEOUT_S: Final = 30.0
_NOT_FOUND: Final = 404
_AGREES_S: Final = 5.0
_WRONG_S: Final = 300.0


def _skipped_without_service(look: Callable[[Subject], Finding]) -> Callable[[Subject], Finding]:
    def look_there(subject: Subject) -> Finding:
        return skipped(_NO_SERVICE) if subject.config.service is None else look(subject)

    return look_there


def _service_answers(subject: Subject) -> Finding:
    exchange, base_url = subject.exchange, subject.endpoints[0].address
    match exchange.discovery_error:
        case None:
            document = exchange.document
            names = document.get("extensions") if isinstance(document, dict) else None
            if isinstance(names, list):
                return ok(f"{base_url} offers {', '.join(sorted(map(str, names))) or 'no extensions'}")
            return ok(f"{base_url} answers, and offers no extensions (a plain server)")
        case ServerFault() as error:
            cause = f"the service itself is failing ({error})"
            return failed(base_url, cause, "nothing on this device; ask whoever runs the service")
        case TransportError() as error:
            cause, fix = cause_and_fix(str(error))
            return unreachable(base_url, cause, fix)
        case UnexpectedAnswer() as error if not _is_plain(error):
            cause, fix = cause_and_fix(str(error))
            return failed(base_url, cause, fix)
        case NotFound() | Refused() | UnexpectedAnswer():
            return ok(f"{base_url} answers, and offers no extensions (a plain server)")
        case _:
            return ok(f"{base_url} answers as the service does")


def _is_plain(error: AgentError) -> bool:
    """Many servers have a web page for paths that they do not know."""
    return getattr(error, "status", None) == _NOT_FOUND


def _credentials_accepted(subject: Subject) -> Finding:
    mode = "key pair" if subject.config.auth.mode == "key_pair" else "bearer token"
    match subject.exchange.error if isinstance(subject.exchange.error, Unauthorized) else subject.exchange.device_error:
        case Unauthorized() as error:
            cause = f"the service does not accept it ({error}): revoked, rotated, or another account's"
            fix = "put the right key or token into the files that auth names, then restart device-agent"
            return failed(f"the {mode} is refused", cause, fix)
        case Forbidden() as error:
            cause = f"it is good, and may not do this ({error})"
            return failed(
                f"the {mode} is refused", cause, "give the token the scopes for commands and data (docs/oauth.md)"
            )
        case TransportError() | UnexpectedAnswer() | ServerFault() as error:
            return skipped(f"the service could not be asked: {error}")
        case _:
            return ok(f"the service accepts the {mode}")


def _device_known(subject: Subject) -> Finding:
    device_id = subject.config.device.device_id
    match subject.exchange.device_error:
        case None if not subject.exchange.knows_device:
            return skipped("the service does not list its devices, and its list of commands may hand out each one once")
        case None:
            return ok(f"the service knows device {device_id}")
        case NotFound() as error if error.error in {"not_found", ""}:
            cause = f"there is no such path at the service ({error})"
            return failed(f"device {device_id}", cause, "check the path at the end of service.base_url")
        case NotFound() as error:
            cause = f"the service does not know it ({error}): removed, or registered under another account"
            fix = "write the id that the registration gave into device.device_id, or register the device again"
            return failed(f"device {device_id}", cause, fix)
        case RateLimited():
            return skipped("the key's quota is used up for now")
        case error:
            return failed(
                f"device {device_id}", f"the service refuses the question ({error})", "check device.device_id"
            )


def _clock_against_service(subject: Subject) -> Finding:
    exchange = subject.exchange
    if exchange.server_time is None or exchange.asked_at is None:
        return skipped("the service's answer has no Date")
    ahead_s = exchange.asked_at - exchange.server_time
    seen = f"it is {abs(ahead_s):.0f} s {'ahead of' if ahead_s > 0 else 'behind'} the service's"
    if abs(ahead_s) <= _AGREES_S:
        return ok("it agrees with the service's within 5 s")
    cause = "one of the two clocks is wrong; the agent goes by the service's, other programs do not"
    return (failed if abs(ahead_s) > _WRONG_S else warning)(seen, cause, SET_IT)


# Without a service each says so itself.
_ASKED: Final = ("configuration", "key_files", "tcp", "tls")
CHECKS: Final = tuple(
    Check(name, looks_at, _skipped_without_service(look), (*_ASKED, *more), online=True, timeout_s=_TIMEOUT_S)
    for name, looks_at, look, more in (
        ("service_answers", "the service's discovery document", _service_answers, ()),
        ("clock_against_service", "this machine's clock beside the service's Date", _clock_against_service, ()),
        (
            "credentials_accepted",
            "whether the service takes the credentials",
            _credentials_accepted,
            ("service_answers",),
        ),
        ("device_known", "whether the service knows this device", _device_known, ("credentials_accepted",)),
    )
)
