"""The states of a command (docs/protocol.md).

Apart from :mod:`agent.wire.commands`: a device that is sent no command never imports its messages.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class CommandStatus(StrEnum):
    """The life cycle: queued -> delivered -> in_progress -> succeeded, failed or rejected.

    ``expired``: never delivered in time. ``timed_out``: no result in time; a late result is still taken.
    """

    QUEUED = "queued"
    DELIVERED = "delivered"
    IN_PROGRESS = "in_progress"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    REJECTED = "rejected"
    EXPIRED = "expired"
    TIMED_OUT = "timed_out"
    CANCELED = "canceled"


OPEN_STATES: Final = frozenset({CommandStatus.QUEUED, CommandStatus.DELIVERED, CommandStatus.IN_PROGRESS})
FINAL_STATES: Final = frozenset(CommandStatus) - OPEN_STATES
RESULT_STATES: Final = frozenset({CommandStatus.SUCCEEDED, CommandStatus.FAILED, CommandStatus.REJECTED})
OPEN: Final = "open"
"""As the ``status`` filter of a listing: every state of :data:`OPEN_STATES`."""
