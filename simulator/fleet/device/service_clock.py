"""The estimate that a device has of the service's clock; both of its channels update and use it."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from agent.core.timekeeping import DATE_RESOLUTION_S, EARLIEST_S, BootTime, ServiceTime, date_within, is_plausible
from agent.core.timekeeping import DRIFT as _DRIFT
from agent.core.timekeeping import STEP_S as _STEP_S
from agent.core.values import Moment

_NEVER: Final = ""


class ServiceClock:
    """The core's :class:`~agent.core.timekeeping.ServiceTime`, in place: every answer teaches it.

    A device's own wall clock counts until the first answer. One life's: the next one begins without it.
    """

    __slots__ = ("_at_s", "_back", "_boot_id", "_high_s", "_low_s")

    def __init__(self) -> None:
        self._boot_id = _NEVER
        self._low_s = self._high_s = self._at_s = 0.0
        self._back: ServiceTime | None = None

    @property
    def boot_time(self) -> BootTime | None:
        """What is known of this boot; None before the first answer."""
        return None if self._boot_id == _NEVER else BootTime(self._low_s, self._high_s, self._at_s)

    def observe(self, server_time: float | None, moment: Moment, round_trip_s: float = 0.0) -> None:
        """Learn from an answer; see :meth:`agent.core.timekeeping.ServiceTime.observe`.

        Args:
            server_time: its ``Date``, epoch seconds; None or an impossible time changes nothing.
            moment: when it arrived.
            round_trip_s: how long before that the request was sent; of a held poll the ``Date`` may be that old.
        """
        if server_time is None or server_time < EARLIEST_S:
            return
        at_s = moment.monotonic_s
        low_s = server_time - at_s
        high_s = low_s + DATE_RESOLUTION_S + (round_trip_s if round_trip_s > 0 else 0.0)
        if self._boot_id == moment.boot_id:
            drift_s = _DRIFT * abs(at_s - self._at_s)
            known_low_s, known_high_s = self._low_s - drift_s, self._high_s + drift_s
            narrow_low_s = max(low_s, known_low_s)
            narrow_high_s = min(high_s, known_high_s)
            if narrow_low_s - narrow_high_s <= _STEP_S:
                low_s = narrow_low_s
                high_s = max(narrow_low_s, narrow_high_s)
                self._back = None
            elif narrow_low_s == known_low_s:
                self._observe_earlier(server_time, moment, round_trip_s)
                return
        else:
            self._boot_id = moment.boot_id
            self._back = None
        self._low_s = low_s
        self._high_s = high_s
        self._at_s = at_s

    def _observe_earlier(self, server_time: float, moment: Moment, round_trip_s: float) -> None:
        """An answer from before what is known: a late one, or the service's clock was set back."""
        back = self._back
        known = BootTime(self._low_s, self._high_s, self._at_s)
        time = ServiceTime(boot_id=self._boot_id, boot_time=known)
        if back is not None:
            time = replace(time, set_back=back.set_back, set_back_at_s=back.set_back_at_s)
        self._back = time = time.observe(server_time, moment, round_trip_s)
        found = time.boot_time
        if found is not None:
            self._low_s, self._high_s, self._at_s = found.low_s, found.high_s, found.at_s

    def at(self, moment: Moment) -> float | None:
        """The service's clock at ``moment``, epoch seconds; None when it is not known."""
        if self._boot_id == moment.boot_id:
            return self._low_s + moment.monotonic_s
        return moment.wall_s if is_plausible(moment.wall_s) else None

    def recorded_at(self, moment: Moment) -> float | None:
        """When something happened, for the wire; see :meth:`agent.core.timekeeping.ServiceTime.recorded_at`."""
        if self._boot_id == moment.boot_id:
            return date_within(self._low_s, self._high_s, moment)
        return moment.wall_s if is_plausible(moment.wall_s) else None
