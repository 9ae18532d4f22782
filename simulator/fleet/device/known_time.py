"""What a device knows of the service's clock; both of its channels learn it and go by it."""

from __future__ import annotations

from typing import Final

from agent.core.timekeeping import BootTime, ServiceTime
from agent.core.values import Moment

_UNKNOWN: Final = ServiceTime(trust_wall=True)


class KnownTime:
    """The core's estimate, kept. One life's: the next one begins without it."""

    __slots__ = ("_estimate",)

    def __init__(self) -> None:
        self._estimate = _UNKNOWN

    @property
    def boot_time(self) -> BootTime | None:
        """What is known of this boot; None before the first answer."""
        return self._estimate.boot_time

    def observe(self, server_time: float | None, moment: Moment) -> None:
        """An answer with this ``Date`` (epoch seconds, or None) arrived at ``moment``."""
        self._estimate = self._estimate.observe(server_time, moment)

    def at(self, moment: Moment) -> float | None:
        """The service's clock at ``moment``, epoch seconds; None when nobody can say."""
        return self._estimate.at(moment)

    def recorded_at(self, moment: Moment) -> float | None:
        """When something happened, for the wire; see :meth:`agent.core.timekeeping.ServiceTime.recorded_at`."""
        return self._estimate.recorded_at(moment)
