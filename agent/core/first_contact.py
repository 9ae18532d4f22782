"""When a device's first contact was, and which commands were sent before it.

The moment is on the service's clock and is kept in the journal (setting :data:`SETTING`), committed with the first
admission: so it is the same for every way in which commands come, and over every restart. A journal that was wiped has
its first contact again.

The service's clock may not be known at that moment, as over MQTT before the gateway's notice. Then the device's own
monotonic clock is kept, and the moment is computed as soon as the time is known. After a reboot in between nobody can
say how long ago it was: then the first contact counts from the moment at which the time became known, since a command
that is not run is better than last week's command run today.
"""

from __future__ import annotations

import json
from typing import Final

from agent.core.values import Command, Moment
from agent.frozen import dataclass

SETTING: Final = "first_contact"
"""Name of the journal's setting."""

RESOLUTION_S: Final = 2.0
"""A command that is older than the first contact by less than this counts as sent after it: the time in ``Date`` and
often ``created_at`` have whole seconds."""

_MINUTE_S: Final = 60.0
_AHEAD_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Contact:
    """What the journal holds about the first contact.

    Attributes:
        at_s: seconds since the epoch on the service's clock; None while nobody can say.
        text: the setting's value; None where there was no first contact, or a version before this one kept none.
    """

    at_s: float | None = None
    text: str | None = None

    def is_after(self, command: Command) -> bool:
        """The command was sent, or first listed, before this contact; False where nobody can say."""
        if self.at_s is None:
            return False
        times = (command.created_at, command.listed_at)
        return any(at is not None and at < self.at_s - _resolution_s(at) for at in times)


def _resolution_s(at_s: float) -> float:
    """How much later than a time its command may have been sent: some servers write times without seconds."""
    return RESOLUTION_S + (_MINUTE_S if at_s % _MINUTE_S == 0 else 0.0)


def lacks_time(text: str | None) -> bool:
    """There was a first contact, and nobody could say yet when it was.

    Args:
        text: the setting's value; None when there is none.
    """
    return text is not None and _read(text)[0] is None


def look_at_contact(text: str | None, now: Moment, service_now_s: float | None, *, is_first: bool) -> Contact:
    """The first contact as it has to be stored now.

    Args:
        text: the setting's value; None when there is none.
        now: this instant, on the device's clocks.
        service_now_s: this instant on the service's clock, seconds since the epoch; None when nobody can say.
        is_first: this is the first contact.
    """
    if is_first:
        return _written(service_now_s) if service_now_s is not None else _pending(now)
    if text is None:
        return Contact()
    at_s, monotonic_s, boot_id = _read(text)
    if at_s is None:
        if service_now_s is None:
            return Contact(None, text)
        is_same_boot = boot_id == now.boot_id and monotonic_s is not None and monotonic_s <= now.monotonic_s
        return _written(service_now_s - (now.monotonic_s - (monotonic_s or 0.0) if is_same_boot else 0.0))
    if service_now_s is not None and at_s > service_now_s + _AHEAD_S:
        # The service's clock was ahead and was set back: nothing new would run until it is there again.
        return _written(service_now_s)
    return Contact(at_s, text)


def _written(at_s: float) -> Contact:
    return Contact(at_s, json.dumps({"at": at_s}))


def _pending(now: Moment) -> Contact:
    return Contact(None, json.dumps({"mono": now.monotonic_s, "boot": now.boot_id}))


def _read(text: str) -> tuple[float | None, float | None, str]:
    """The moment, or the monotonic clock and the boot that it has to be computed from."""
    try:
        kept = json.loads(text)
        if "at" in kept:
            return float(kept["at"]), None, ""
        return None, float(kept["mono"]), str(kept["boot"])
    except (ValueError, TypeError, KeyError):
        return None, None, ""
