"""What one look at a device's commands tells, and their states.

Apart from :mod:`agent.wire.commands`: a device that is sent none never imports the messages.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from agent.errors import ServiceError
from agent.frozen import dataclass

if TYPE_CHECKING:
    from agent.wire.commands import CommandRecord


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


UNREADABLE: Final = "unreadable_"
"""A kind of note is this and the name of the time: ``unreadable_expires_at``."""
DERIVED_IDS: Final = "derived_ids"
MORE_THAN_LISTED: Final = "more_than_listed"


@dataclass(frozen=True, slots=True)
class CommandList:
    """One answer to the listing of a device's commands.

    Attributes:
        records: every command that could be read, in the service's order.
        malformed: one sentence for each that could not; never its content.
        etag: the list's version, for the next conditional request; None when the service gives none.
        unchanged: 304, the list is the one that ``etag`` names; ``records`` is empty.
        server_time: the service's clock, seconds since the epoch; None when not told.
        omitted: so many commands at least were listed and not read, since there were too many
            (:mod:`agent.wire.long_lists`): what is missing in ``records`` may be listed all the same.
        notes: what is odd about the list as a whole, by kind (``unreadable_created_at``, ``unreadable_expires_at``,
            ``derived_ids``, ``more_than_listed``): one sentence each with an example, to be logged once per kind.
        incomplete: why pages after the first are missing; None when the list is whole. What was read counts all the
            same, since a server may hand each command out once: the caller stores it first and then takes this for
            the error of the call. What is not in ``records`` may still be on the list.
    """

    records: tuple[CommandRecord, ...] = ()
    malformed: tuple[str, ...] = ()
    etag: str | None = None
    unchanged: bool = False
    server_time: float | None = None
    omitted: int = 0
    notes: Mapping[str, str] = field(default_factory=dict)
    incomplete: ServiceError | None = None

    @property
    def has_derived_ids(self) -> bool:
        """At least one command came without an id."""
        return DERIVED_IDS in self.notes
