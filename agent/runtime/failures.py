"""What a service does with errors: how long it waits, how it words them, and how often it logs them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from agent.core.backoff import Backoff
from agent.errors import (
    ErrorAnswer,
    Forbidden,
    InvalidMessage,
    LockedOut,
    NotFound,
    Offline,
    RateLimited,
    ServerFault,
    ServiceError,
    SignInEnded,
    StillRunning,
    TakenOver,
    TokensNotStored,
    TransportError,
    Unauthorized,
    UnexpectedAnswer,
)
from agent.frozen import dataclass

HOURLY_S: Final = 3600.0
_MINUTE_S: Final = 60.0
# So many different failures are remembered; beyond it the oldest is forgotten and may be reported anew.
_MOST: Final = 256
# Wrong keys do not mend themselves in seconds, and a service may lock out a client that keeps trying.
_UNAUTHORIZED_BASE_S: Final = 60.0
_UNAUTHORIZED_CAP_S: Final = 900.0


class RetryPolicy:
    """When one connection is tried again. Used from one thread.

    Args:
        fraction: random numbers in [0, 1).
        base_s: the first back-off is drawn from 0 to this, seconds.
        cap_s: no drawn back-off is longer, seconds.
    """

    def __init__(self, fraction: Callable[[], float], *, base_s: float = 1.0, cap_s: float = 300.0) -> None:
        self._fraction = fraction
        self._usual = Backoff(base_s, cap_s)
        self._locked_out = Backoff(max(base_s, _UNAUTHORIZED_BASE_S), max(cap_s, _UNAUTHORIZED_CAP_S))

    def failed(self, error: ServiceError | InvalidMessage) -> float:
        """How long to wait after this error, seconds."""
        retry_after_s = error.retry_after_s if isinstance(error, ErrorAnswer) else None
        if isinstance(error, Unauthorized | Forbidden | NotFound | LockedOut | TakenOver):
            self._locked_out, delay_s = self._locked_out.failed(self._fraction(), retry_after_s)
            # Full jitter may draw nearly nothing, which is right for a network and wrong for a refusal.
            return max(delay_s, self._locked_out.base_s / 2)
        self._usual, delay_s = self._usual.failed(self._fraction(), retry_after_s)
        return delay_s

    def succeeded(self) -> None:
        """The other side is well."""
        self._usual = self._usual.succeeded()
        self._locked_out = self._locked_out.succeeded()


def describe(error: ServiceError | InvalidMessage) -> tuple[str, str, float | None]:  # noqa: C901, PLR0911 - a table
    """One word for the state, one sentence that names the fix, and how often to say it (None: as usual)."""
    match error:
        case SignInEnded():
            return "unauthorized", error.message, HOURLY_S
        case Unauthorized():
            fix = (
                "put the right key or token into the file that auth names; auth.token_file is read again by itself, "
                "for a key pair or a systemd credential restart this program"
            )
            return "unauthorized", f"the service does not accept the credentials ({error}); {fix}", HOURLY_S
        case Forbidden():
            return "forbidden", f"the credential may not do this ({error}); give it the scope it needs", HOURLY_S
        case NotFound():
            fix = "check service.base_url and device.device_id, or register the device again"
            return "not_found", f"the service does not know this device or path ({error}); {fix}", HOURLY_S
        case RateLimited():
            return "rate_limited", f"the key's quota is used up ({error}); poll less often or raise the quota", None
        case StillRunning():
            return "still_running", f"the service still works on the first attempt ({error}); nothing to do here", None
        case ServerFault():
            return "failing", f"the service failed ({error}); nothing to do here", None
        case UnexpectedAnswer():
            return "unexpected_answer", str(error), None
        case Offline():
            return error.state, str(error), HOURLY_S if isinstance(error, LockedOut | TakenOver) else None
        case TransportError():
            return "unreachable", str(error), None
        case TokensNotStored():
            return "tokens_not_stored", str(error), None
        case _:
            return "refused", str(error), None


@dataclass(slots=True)
class _Reported:
    at_s: float
    unsaid: int = 0


class FailureLog:
    """One service's failures. Used from that service's thread only.

    Args:
        log: where to.
        monotonic: seconds on the monotonic clock.
        every_s: how soon the same failure may be reported again, seconds.
    """

    def __init__(self, log: logging.Logger, monotonic: Callable[[], float], every_s: float) -> None:
        self._log = log
        self._monotonic = monotonic
        self._every_s = every_s
        self._reported: dict[str, _Reported] = {}

    def report(self, topic: str, text: str, *, every_s: float | None = None, level: int = logging.WARNING) -> bool:
        """Write a line unless the same failure was reported lately.

        Args:
            topic: what makes two failures the same.
            text: one line: what happened, and what to do about it.
            every_s: instead of the usual time between two lines.
            level: of the line.

        Returns:
            True when a line was written.
        """
        now_s = self._monotonic()
        last = self._reported.get(topic)
        if last is not None and now_s - last.at_s < (self._every_s if every_s is None else every_s):
            last.unsaid += 1
            return False
        again = f" (and {last.unsaid} times more since the last line)" if last is not None and last.unsaid else ""
        self._log.log(level, "%s%s", text, again)
        self._reported.pop(topic, None)
        self._reported[topic] = _Reported(now_s)
        if len(self._reported) > _MOST:
            del self._reported[next(iter(self._reported))]
        return True

    def recovered(self, topic: str, text: str) -> bool:
        """The failure is over: say so, if it was ever reported. True when a line was written."""
        if self._reported.pop(topic, None) is None:
            return False
        self._log.info("%s", text)
        return True


class LineRate:
    """Lines of one kind of which there may be very many: some a minute, the others as one line with their count.

    Args:
        log: where to.
        monotonic: seconds on the monotonic clock.
        level: of all lines.
        most: so many lines of the kind in a minute.
    """

    def __init__(self, log: logging.Logger, monotonic: Callable[[], float], level: int, most: int = 20) -> None:
        self._log = log
        self._monotonic = monotonic
        self._level = level
        self._most = most
        self._begun_s = float("-inf")
        self._written = 0
        self._left_out = 0
        self._summed_s = float("-inf")

    def write(self, text: str, *values: object) -> None:
        """Write the line, or count it."""
        now_s = self._monotonic()
        if now_s - self._begun_s >= _MINUTE_S:
            self._begun_s, self._written = now_s, 0
        if self._written >= self._most:
            self._left_out += 1
            return
        self._written += 1
        self._log.log(self._level, text, *values)

    def sum_up(self, text: str) -> None:
        """Write one line for those that were left out, at most once a minute; ``%d`` in ``text`` is their count."""
        now_s = self._monotonic()
        if self._left_out and now_s - self._summed_s >= _MINUTE_S:
            self._log.log(self._level, text, self._left_out)
            self._summed_s, self._left_out = now_s, 0
