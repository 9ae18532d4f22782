"""The service: is it one, does it take the credentials, does it know the device, is the quota enough?"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Final

from agent.adapters.sqlite_store import FILE_NAME
from agent.adapters.store.status import read_status
from agent.app.status import server_findings
from agent.doctor.clock import SET_IT
from agent.doctor.exchange import FLEET_MAX
from agent.doctor.findings import Check, Finding, cause_and_fix, failed, ok, skipped, unreachable, warning
from agent.doctor.subject import Subject
from agent.errors import (
    AgentError,
    Forbidden,
    NotFound,
    RateLimited,
    Refused,
    ServerFault,
    SignInEnded,
    StorageError,
    TokensNotStored,
    TransportError,
    Unauthorized,
    UnexpectedAnswer,
)
from agent.wire.announcement import read_announcement
from agent.wire.dialect import ResultPlace
from agent.wire.extensions import LONG_POLL
from agent.wire.server_findings import ServerFindings, describe, sentence

_NO_SERVICE: Final = "no service is configured: commands and readings go through the broker alone"
_TIMEOUT_S: Final = 30.0
_NOT_FOUND: Final = 404
_PORTAL: Final = 511  # RFC 6585, section 6
_ALMOST: Final = 0.8
_AGREES_S: Final = 5.0
_WRONG_S: Final = 300.0


def _skipped_without_service(look: Callable[[Subject], Finding]) -> Callable[[Subject], Finding]:
    def look_there(subject: Subject) -> Finding:
        return skipped(_NO_SERVICE) if subject.config.service is None else look(subject)

    return look_there


def _captive_portal(subject: Subject) -> Finding:
    for error in (subject.exchange.discovery_error, subject.exchange.device_error):
        # Only of the redirects and web pages the text says so; broken JSON is the service's own.
        is_stranger = isinstance(error, UnexpectedAnswer) and "captive portal" in str(error)
        if error is not None and ((is_stranger and not _is_plain(error)) or getattr(error, "status", None) == _PORTAL):
            cause = f"somebody else answers in the service's place: {error}"
            fix = "sign this device in to the network (a browser, or its operator), or correct service.base_url"
            return unreachable("the answer is not the service's", cause, fix)
    return ok("nobody answers in the service's place")


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
        case SignInEnded() as error:
            cause, fix = cause_and_fix(error.message)
            return failed(f"the {mode} is refused", cause, fix)
        case Unauthorized() as error:
            cause = f"the service does not accept it ({error}): revoked, rotated, or another account's"
            fix = "put the right key or token into the files that auth names, then restart device-agent"
            return failed(f"the {mode} is refused", cause, fix)
        case Forbidden() as error:
            cause = f"it is good, and may not do this ({error})"
            return failed(
                f"the {mode} is refused", cause, "give the token the scopes for commands and data (docs/oauth.md)"
            )
        case TokensNotStored() as error:
            cause, fix = cause_and_fix(str(error))
            return failed(f"the {mode} cannot be renewed", cause, fix)
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


def _quota(subject: Subject) -> Finding:
    exchange = subject.exchange
    errors = (exchange.discovery_error, exchange.device_error)
    limited = next((error for error in errors if isinstance(error, RateLimited)), None)
    if limited is not None:
        wait = f"; it asks to wait {limited.retry_after_s:.0f} s" if limited.retry_after_s else ""
        cause = f"all devices of the key together ask more than it allows{wait}"
        return failed(
            "the key's quota is used up", cause, "raise commands.poll.idle_s on all devices, or use the gateway"
        )
    limit = exchange.rate_limit
    if limit is None or limit.limit is None:
        return ok("the service announces no quota")
    per_minute = 60.0 * _polls_per_s(subject)
    window_s = limit.window_s or 60.0
    fleet = exchange.fleet or 1
    wanted = per_minute * fleet * window_s / 60.0
    many = f"at least {fleet}" if fleet >= FLEET_MAX else str(fleet)
    left = "?" if limit.remaining is None else limit.remaining
    seen = f"{left} of {limit.limit} requests are left; {many} devices that poll like this need {wanted:.0f}"
    if wanted > limit.limit * _ALMOST:
        least_s = 60.0 * fleet / (limit.limit * 60.0 / window_s * _ALMOST)
        cause = "the polls of the fleet alone use up the key's quota, and readings and results need some, too"
        fix = f"set commands.poll.idle_s to {least_s:.0f} or more and long_poll: 'off', or use the gateway"
        return warning(seen, cause, fix)
    return ok(seen)


def _server_dialect(subject: Subject) -> Finding:
    """What the agent found out, or, before it ran, what the server announces."""
    config = subject.config
    assert config.service is not None  # noqa: S101 - the check is skipped without one
    dialect, found = config.service.dialect.dialect(), ServerFindings()
    with suppress(StorageError):
        store = read_status(config.state_dir / FILE_NAME, last=0)
        kept = None if store is None else server_findings(store.settings, config)
        found = kept or found
    error = subject.exchange.discovery_error
    if found.announced is None and (error is None or isinstance(error, NotFound | Refused) or _is_plain(error)):
        announced = read_announcement(subject.exchange.document).extensions
        found = replace(found, announced=tuple(sorted(announced)))
    words = describe(found, dialect)
    seen = sentence(words)
    if found.no_place and dialect.results is not ResultPlace.NONE:
        cause = f"results of commands stay on this device, since the server has no place for them: {found.no_place}"
        fix = f"create the table {dialect.results_table}, or set service.dialect.results to none if that is meant"
        return warning(seen, cause, fix)
    if found.unread or found.more_pages:
        cause = "commands that are not read do not run"
        return warning(seen, cause, "let the server list open commands alone, and fewer of them at a time")
    if found.derives_ids:
        cause = "commands without an id of the server's cannot be distinguished when they are alike"
        return warning(seen, cause, "set service.dialect.command_id to the member that holds the id")
    if found.unread_time:
        cause = "whether a command is too old or has expired cannot be decided"
        return warning(seen, cause, "write times as RFC 3339 on the server, such as 2026-01-01T00:00:00Z")
    return ok(seen)


def _polls_per_s(subject: Subject) -> float:
    commands, document = subject.config.commands, subject.exchange.document
    offered = document.get("extensions") if isinstance(document, dict) else None
    is_held = commands.long_poll == "auto" and isinstance(offered, list) and LONG_POLL in offered
    if subject.config.mqtt is not None:
        return 1.0 / subject.config.mqtt.list_every_s
    return 1.0 / (commands.long_poll_wait_s if is_held else commands.poll.idle_s)


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
        ("captive_portal", "whether somebody else answers in the service's place", _captive_portal, ()),
        ("service_answers", "the service's discovery document", _service_answers, ("captive_portal",)),
        ("clock_against_service", "this machine's clock beside the service's Date", _clock_against_service, ()),
        (
            "credentials_accepted",
            "whether the service takes the credentials",
            _credentials_accepted,
            ("service_answers",),
        ),
        ("device_known", "whether the service knows this device", _device_known, ("credentials_accepted",)),
        ("server_dialect", "what the service was found to be beside the specification", _server_dialect, ()),
        ("quota", "the key's quota beside the polls of the fleet", _quota, ("service_answers",)),
    )
)
