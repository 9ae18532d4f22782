"""Every error that the agent, the client and the simulator raise on purpose, and how a process ends.

Each class says through ``advice`` what the caller does next::

    AgentError
    ├── ConfigurationError          EXIT            the configuration is wrong; every fault in one message
    ├── InvalidMessage              DROP            bytes from outside are not what the specification says
    │   ├── InvalidQr               DROP            a QR text that is not a label of ours
    │   └── InvalidSignature        DROP            a signed command that is not what a trusted key signed
    ├── StorageError                RETRY           journal or outbox could not be written or read
    └── ServiceError                                something went wrong between us and the service
        ├── TransportError          RETRY           no answer: DNS, refused, reset, timed out
        │   └── Offline             RETRY           there is no connection to the broker, and why (MQTT)
        │       ├── LockedOut       REAUTHENTICATE  the broker does not accept this device
        │       └── SessionTakenOver       RETRY           another client with this device's id took the connection
        ├── UnexpectedAnswer        RETRY           an answer, but not the service's: a captive portal's page,
        │                                           a redirect, truncated JSON, a body beyond the cap
        └── ErrorAnswer                             the service's own error body (specification, "Errors")
            ├── Unauthorized        REAUTHENTICATE  401
            ├── Forbidden           REAUTHENTICATE  403, a bearer token without the scope
            ├── NotFound            DROP            404
            │   └── NoPlaceForResults DROP          this server takes no results; nothing was sent
            ├── Conflict            DROP            409
            ├── StillRunning        RETRY           409, the same request went out before and is still worked on
            ├── RateLimited         RETRY           429, with the wait that the service asked for
            ├── Refused             DROP            any other 4xx: 400, 405, 413, 415, 422
            └── ServerFault         RETRY           5xx

A message of ours is one line a person can act on: what happened, and what to do about it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar, Final


class Advice(StrEnum):
    """The advice to a caller about an error."""

    RETRY = "retry"
    """Back off and do the same again."""
    DROP = "drop"
    """Set this one item aside with the reason, and go on."""
    REAUTHENTICATE = "re-authenticate"
    """Read the credentials again, back off slowly, and show it in the status."""
    EXIT = "exit"
    """End the process with the exit code on which the service manager does not restart."""


class AgentError(Exception):
    """The root: catching it catches everything that this project raises on purpose."""

    advice: ClassVar[Advice] = Advice.DROP


class ConfigurationError(AgentError):
    """The configuration cannot be used.

    Attributes:
        faults: one sentence per fault, each naming the key and the fix.
        source: the file or the part of the program that they are about.
    """

    advice = Advice.EXIT

    def __init__(self, faults: list[str], source: str = "configuration") -> None:
        self.faults = list(faults)
        self.source = source
        super().__init__("\n".join([f"{source}: {len(faults)} fault(s)", *(f"  - {f}" for f in faults)]))

    @property
    def in_one_line(self) -> str:
        """All faults in one line, behind the file that they are in unless each names it."""
        is_file = "/" in self.source or "." in self.source
        place = f"{self.source}: " if is_file and not all(self.source in fault for fault in self.faults) else ""
        return place + "; ".join(self.faults)


class InvalidMessage(AgentError):
    """Bytes from outside do not have the shape that the specification gives."""


class InvalidQr(InvalidMessage):
    """A QR text is not a label of ours.

    Attributes:
        reason: a stable snake_case word, such as ``not_json`` or ``missing_field``.
    """

    def __init__(self, reason: str, message: str) -> None:
        self.reason = reason
        super().__init__(message)


class InvalidSignature(InvalidMessage):
    """A signed command is malformed, of a key that is not trusted, or not what that key signed.

    Attributes:
        reason: a stable snake_case word, such as ``signature_invalid``.
    """

    def __init__(self, reason: str, message: str) -> None:
        self.reason = reason
        super().__init__(message)


class StorageError(AgentError):
    """The journal or the outbox could not be written or read; nothing was acknowledged."""

    advice = Advice.RETRY


class ServiceError(AgentError):
    """An exchange with the service failed.

    Attributes:
        state: one word for the state that it means.
        meaning, fix: for a person; empty where the error's own text says both.
        only_a_person_ends_it: trying again soon is of no use.
    """

    advice = Advice.RETRY
    state: str = "refused"
    meaning: ClassVar[str] = ""
    fix: ClassVar[str] = ""
    only_a_person_ends_it: ClassVar[bool] = False


class TransportError(ServiceError):
    """No answer came: name resolution, refused, reset or timed out."""

    state = "unreachable"


class Unanswered(TransportError):
    """A request was begun and no answer came: the other side may have it, or it was too large for the link."""


class Offline(TransportError):
    """There is no connection to the broker. The part that keeps the connection logs it; others only wait.

    Attributes:
        state: one word: ``connecting``, ``unreachable``, ``taken_over``, ``bad_certificate``, ...
    """

    def __init__(self, state: str, message: str) -> None:
        self.state = state
        super().__init__(message)


class LockedOut(Offline):
    """The broker does not accept this device: wrong token, or no right to its own topics."""

    advice = Advice.REAUTHENTICATE
    only_a_person_ends_it = True


class SessionTakenOver(Offline):
    """Another client with the same id took the connection: whoever comes back fast throws the other one out again."""

    only_a_person_ends_it = True


class UnexpectedAnswer(ServiceError):
    """An answer came, but not one that the service of the specification gives."""

    state = "unexpected_answer"

    def __init__(self, message: str, status: int | None = None) -> None:
        self.status = status
        super().__init__(message)


class ErrorAnswer(ServiceError):
    """The service answered with an error body.

    Attributes:
        status: the HTTP status code.
        error: the body's ``error``, short text; empty when the body had none.
        message: the body's ``message``, a longer explanation; may be empty.
        retry_after_s: seconds that the service asked us to wait, if it did.
        server_time: the answer's ``Date`` as seconds since the epoch, if it had one.
    """

    def __init__(
        self,
        status: int,
        error: str = "",
        message: str = "",
        *,
        retry_after_s: float | None = None,
        server_time: float | None = None,
    ) -> None:
        self.status = status
        self.error = error
        self.message = message
        self.retry_after_s = retry_after_s
        self.server_time = server_time
        text = ": ".join(part for part in (error, message) if part) or "no error body"
        super().__init__(f"{status} {text}")


class Unauthorized(ErrorAnswer):
    """401: missing or invalid credentials."""

    advice = Advice.REAUTHENTICATE
    state = "unauthorized"
    meaning = "the service does not accept the credentials"
    fix = (
        "put the right key or token into the file that auth names; auth.token_file is read again by itself, for a key "
        "pair or a systemd credential restart this program"
    )
    only_a_person_ends_it = True


class Forbidden(ErrorAnswer):
    """403: the credential is good and may not do this."""

    advice = Advice.REAUTHENTICATE
    state = "forbidden"
    meaning = "the credential may not do this"
    fix = "give it the scope it needs"
    only_a_person_ends_it = True


class NotFound(ErrorAnswer):
    """404: the path or the addressed resource does not exist."""

    advice = Advice.DROP
    state = "not_found"
    meaning = "the service does not know this device or path"
    fix = "check service.base_url and device.device_id, or register the device again"
    only_a_person_ends_it = True


class NoPlaceForResults(NotFound):
    """This server has no place for results, by the configuration or since it cannot be found; nothing was sent."""

    def __init__(self, message: str) -> None:
        super().__init__(404, "no_place_for_results", message)


class Conflict(ErrorAnswer):
    """409: the request contradicts what is stored."""

    advice = Advice.DROP


class StillRunning(ErrorAnswer):
    """409 ``idempotency_key_in_use``: an earlier attempt at this request still runs; ask again for its answer."""

    advice = Advice.RETRY
    state = "still_running"
    meaning = "the service still works on the first attempt"
    fix = "nothing to do here"


class RateLimited(ErrorAnswer):
    """429: the key's quota for this minute is used up; wait ``retry_after_s``."""

    state = "rate_limited"
    meaning = "the key's quota is used up"
    fix = "poll less often or raise the quota"


class Refused(ErrorAnswer):
    """Another 4xx: the request itself is wrong and will be wrong again."""

    advice = Advice.DROP


class ServerFault(ErrorAnswer):
    """5xx: the service failed; the same request may go through later."""

    state = "failing"
    meaning = "the service failed"
    fix = "nothing to do here"


# --- exit codes of device-agent and device-gateway; 0 is good -------------------------------------------------------

EXIT_STOPPED: Final = 0
EXIT_CHECK_FAILED: Final = 1
EXIT_CRASHED: Final = 1
EXIT_CONFIGURATION: Final = 2
EXIT_UNREACHABLE: Final = 5
"""The service or the broker cannot be reached."""
EXIT_RESTART: Final = 75
"""``EX_TEMPFAIL`` of ``sysexits.h``: ended by ``restart_agent``; the service manager shall start it again."""
EXIT_INTERRUPTED: Final = 130
"""Ctrl-C, as a shell reports it."""
EXIT_REPLACE: Final = -1
"""Never seen outside: the program is to be run anew in this very process, with another configuration."""
