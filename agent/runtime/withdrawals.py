"""Commands under way here that the service no longer lists: were they canceled?

A command leaves the list of open ones for more reasons than that: it expired, its time was up, somebody else
concluded it. So the service is asked, once, which ones it has canceled; and only one that tells states is asked, since
on a plain server nothing ever leaves the list.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from agent.core.listed_states import OPEN_STATUSES
from agent.core.values import CommandPoll
from agent.errors import InvalidMessage, ServiceError, StorageError
from agent.runtime.dispatcher import Dispatcher

if TYPE_CHECKING:
    from agent.ports import CommandSource

_log = logging.getLogger(__name__)


class Withdrawals:
    """Cancels here what the service has canceled. Used from one thread.

    Args:
        source: asked about what vanished.
        dispatcher: knows what is under way, and cancels.
    """

    def __init__(self, source: CommandSource, dispatcher: Dispatcher) -> None:
        self._source = source
        self._dispatcher = dispatcher
        # Missing from the last list; False once the service was asked about it.
        self._missing: dict[str, bool] = {}

    def look(self, poll: CommandPoll) -> None:
        """Look at an answer of the source whose commands are in the journal."""
        if poll.pushed or poll.omitted or not poll.is_whole:
            return
        if not poll.unchanged:
            self._compare(poll)
        elif not any(self._missing.values()):
            return
        doubtful = [command_id for command_id, is_new in self._missing.items() if is_new]
        if doubtful:
            self._ask(doubtful)

    def _compare(self, poll: CommandPoll) -> None:
        listed = {command.id for command in poll.commands}
        self._missing = {
            command_id: self._missing.get(command_id, True)
            for command_id, status in self._dispatcher.under_way().items()
            if command_id not in listed and (status or "").lower() in OPEN_STATUSES
        }

    def _ask(self, command_ids: list[str]) -> None:
        try:
            canceled = self._source.canceled(command_ids)
        except (ServiceError, InvalidMessage) as error:
            _log.info("commands=unsure whether %d were canceled is asked again: %s", len(command_ids), error)
            return
        for command_id in command_ids:
            self._missing[command_id] = False
            if command_id in canceled:
                try:
                    self._dispatcher.cancel(command_id, "by the service")
                except StorageError as error:
                    _log.error("journal=failing: a cancel could not be written: %s", error)
