"""The life cycle of a command, as the service keeps it.

Two rules. This module knows states and moves only: no time, no storage, no HTTP. Every legal move is an entry of
``MOVES``; applying an event is a look-up, and a missing entry is the refusal.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final

from agent.wire.command_states import CommandStatus


class Event(Enum):
    """What can happen to a command."""

    DELIVER = auto()
    """The device's poll listed it."""
    PROGRESS = auto()
    SUCCEED = auto()
    FAIL = auto()
    REJECT = auto()
    LAPSE = auto()
    """Its time is over."""
    CANCEL = auto()
    """Its device was removed."""


_S = CommandStatus
_RESULTS: Final[Mapping[Event, CommandStatus]] = {
    Event.SUCCEED: _S.SUCCEEDED,
    Event.FAIL: _S.FAILED,
    Event.REJECT: _S.REJECTED,
}

MOVES: Final[Mapping[CommandStatus, Mapping[Event, CommandStatus]]] = {
    _S.QUEUED: {
        Event.DELIVER: _S.DELIVERED,
        Event.PROGRESS: _S.IN_PROGRESS,  # a device that reads the plain listing is never seen to be delivered to
        **_RESULTS,
        Event.LAPSE: _S.EXPIRED,
        Event.CANCEL: _S.CANCELED,
    },
    _S.DELIVERED: {
        Event.DELIVER: _S.DELIVERED,
        Event.PROGRESS: _S.IN_PROGRESS,
        **_RESULTS,
        Event.LAPSE: _S.TIMED_OUT,
        Event.CANCEL: _S.CANCELED,
    },
    _S.IN_PROGRESS: {
        Event.DELIVER: _S.IN_PROGRESS,
        Event.PROGRESS: _S.IN_PROGRESS,
        **_RESULTS,
        Event.LAPSE: _S.TIMED_OUT,
        Event.CANCEL: _S.CANCELED,
    },
    _S.TIMED_OUT: {**_RESULTS},  # a late result is still taken
    _S.SUCCEEDED: {},
    _S.FAILED: {},
    _S.REJECTED: {},
    _S.EXPIRED: {},
    _S.CANCELED: {},
}

EVENT_OF_STATUS: Final[Mapping[str, Event]] = {
    "in_progress": Event.PROGRESS,
    "succeeded": Event.SUCCEED,
    "failed": Event.FAIL,
    "rejected": Event.REJECT,
}
"""The event that a result's ``status`` is."""


def move(status: CommandStatus, event: Event) -> CommandStatus | None:
    """The state after the event; None when it must not happen in this state."""
    return MOVES[status].get(event)
