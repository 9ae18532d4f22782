"""How long the ids of commands that are over are remembered: for as long as the service lists them, and a day more.

A list may be cut short by mistake, and a service may be away for hours behind a page that looks like an empty list:
what is missing from one list is not gone. So an id is forgotten only when it was missing from *every* list of a whole
day. What was listed in the running day is remembered over restarts, since many devices are switched off every night.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from agent.core.commands import OVER_STATES, Triage
from agent.core.outbox import age_s
from agent.core.timekeeping import is_plausible
from agent.core.values import CommandState, Moment
from agent.errors import StorageError

if TYPE_CHECKING:
    from agent.ports import Journal

_log = logging.getLogger(__name__)

SETTING: Final = "listed_window"
"""Name of the journal's setting: when the running day began, and which ids that are over were listed since."""

WINDOW_S: Final = 86_400.0
# A plain server lists everything for ever: then a restart begins a new day instead of writing all of it down.
_WRITTEN_MAX: Final = 200


class ListedWindow:
    """The running day. Used from one thread.

    Args:
        journal: forgets what was not listed for a whole day.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._began: Moment | None = None
        self._listed: set[str] = set()
        self._is_read = False
        self._written: str | None = None

    def saw(self, listed_ids: Sequence[str], result: Triage, now: Moment) -> None:
        """The service answered with this list.

        Args:
            listed_ids: every id in it.
            result: what was decided about it.
            now: this instant, with the true time for a wall clock; while it is not known nothing is forgotten.

        Raises:
            StorageError: nothing was forgotten; the next list tries again.
        """
        if not is_plausible(now.wall_s):
            return
        if not self._is_read:
            self._read()
        over = {
            each.command_id
            for each in result.decisions
            if each.entry is not None and each.entry.state in (*OVER_STATES, CommandState.PUT_ASIDE)
        }
        self._listed |= over
        age = None if self._began is None else age_s(self._began, now)
        if self._began is None or age is None or self._began.wall_s > now.wall_s:
            self._begin(now, over)
        elif age < WINDOW_S:
            self._write()
        else:
            gone = self._journal.forget([*self._listed, *listed_ids], self._began.wall_s)
            if gone:
                _log.info("journal=tidied forgotten=%d commands that the service no longer lists", gone)
            self._begin(now, over)

    def _begin(self, now: Moment, listed: set[str]) -> None:
        self._began, self._listed = now, listed
        self._write()

    def _read(self) -> None:
        self._is_read = True
        self._written = text = self._journal.setting(SETTING)
        try:
            kept = json.loads(text or "null")
            began = Moment(float(kept["mono"]), float(kept["wall"]), str(kept["boot"]))
            listed = {str(each) for each in kept["listed"]}
        except (ValueError, TypeError, KeyError):
            return
        self._began, self._listed = began, listed

    def _write(self) -> None:
        began = self._began
        text = None
        if began is not None and len(self._listed) <= _WRITTEN_MAX:
            members = {"mono": began.monotonic_s, "wall": began.wall_s, "boot": began.boot_id}
            text = json.dumps({**members, "listed": sorted(self._listed)})
        if text == self._written:
            return
        try:
            self._journal.put_setting(SETTING, text)
        except StorageError as error:
            # Only this process knows better now, so the next list tries again.
            _log.error("journal=failing: what the service lists is not remembered beyond a restart: %s", error)
        else:
            self._written = text
