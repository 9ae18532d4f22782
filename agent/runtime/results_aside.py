"""Results that were put aside in the journal: when they are offered to the service again.

A few are offered first, and all others follow when one result is taken: at a start, when the server has changed, and by
itself after an hour, two, four, up to a day. Never more often than once an hour, whatever the reason.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from agent.core.commands import IllegalMove
from agent.core.timekeeping import age_s
from agent.core.unreported import REASON_MAX
from agent.core.values import Moment
from agent.runtime.failure_log import FailureLog
from agent.runtime.retry_policy import HOURLY_S

if TYPE_CHECKING:
    from agent.ports import Clock, Journal

_log = logging.getLogger(__name__)

OFFERED: Final = "results.offered"
"""Name of the journal's setting: when results that are put aside were offered last, or first put aside."""

_OFFERED_FIRST: Final = 3
_OFFER_EVERY_S: Final = 3600.0
_OFFER_MAX_S: Final = 86_400.0


class ResultsAside:
    """Puts results aside and offers them again. Used from one thread.

    Args:
        journal: holds them.
        clock: when they were offered last.
        failure_log: for what is said rarely.
    """

    def __init__(self, journal: Journal, clock: Clock, failure_log: FailureLog) -> None:
        self._journal = journal
        self._clock = clock
        self._failure_log = failure_log
        self._is_any = False
        self._noted: Moment | None = None
        self._offered_at_s: float | None = None
        self._wait_s = _OFFER_EVERY_S
        self._wanted_at_s: float | None = None
        self._is_probing = False

    def begin(self) -> None:
        """Offer a few when the last time is long enough ago, or when that is not known.

        Raises:
            StorageError: the journal cannot be read or written.
        """
        self._is_any = self._journal.result_stats().put_aside > 0
        self._noted = _to_moment(self._journal.setting(OFFERED))
        age = None if self._noted is None else age_s(self._noted, self._clock.now())
        if age is None or age >= _OFFER_EVERY_S:
            self._offer()

    def put(self, command_ids: Sequence[str], reason: str, *, is_news: bool = True) -> None:
        """Put these aside; what is over already stays as it is.

        Args:
            command_ids: whose results.
            reason: why, one sentence.
            is_news: False where the configuration says that the service takes no results.

        Raises:
            StorageError: the journal cannot be written.
        """
        reason = reason[:REASON_MAX]
        gave_way = 0
        try:
            gave_way = self._journal.put_aside(dict.fromkeys(command_ids, reason))
        except IllegalMove:
            for each in command_ids:
                gave_way += self._put_one(each, reason)
        level = logging.WARNING if is_news else logging.INFO
        text = f"results=put_aside {len(command_ids)} stay on this device ({reason}); device-agent status lists them"
        self._failure_log.report("put_aside", text, every_s=HOURLY_S, level=level)
        if gave_way:
            text = f"results=given_up {gave_way} gave way to younger ones: too many are put aside"
            self._failure_log.report("given_up", text, every_s=HOURLY_S)
        was_any, self._is_any = self._is_any, True
        if self._noted is None or not was_any:
            self._note(self._clock.now())

    def wanted(self) -> None:
        """The server has changed: offer soon."""
        now_s = self._clock.now().monotonic_s
        last_s = self._offered_at_s
        self._wanted_at_s = now_s if last_s is None else max(now_s, last_s + _OFFER_EVERY_S)

    def offer_when_due(self) -> bool:
        """Offer a few when it is time; True when the server has changed.

        Raises:
            StorageError: the journal cannot be read or written.
        """
        now = self._clock.now()
        if self._wanted_at_s is not None and self._wanted_at_s <= now.monotonic_s:
            self._wanted_at_s = None
            self._offer()
            return True
        age = None if self._noted is None or not self._is_any else age_s(self._noted, now)
        if age is not None and age >= self._wait_s:
            self._wait_s = min(2 * self._wait_s, _OFFER_MAX_S)
            self._offer()
        return False

    def taken(self, *, is_place_back: bool) -> int:
        """A result was taken: offer all that are put aside, where that is news; how many.

        Args:
            is_place_back: results were put aside without a try, since none was taken.

        Raises:
            StorageError: the journal cannot be read or written.
        """
        if is_place_back:
            self._wait_s = _OFFER_EVERY_S
        if not self._is_any or not (self._is_probing or is_place_back):
            return 0
        if not self._is_probing and self._offered_at_s is not None:
            self.wanted()
            return 0
        count = self._journal.offer_again()
        self._is_probing = self._is_any = False
        self._offered_at_s = self._clock.now().monotonic_s
        if count:
            _log.info("results=offered_again %d, since the service takes results", count)
        return count

    def _put_one(self, command_id: str, reason: str) -> int:
        try:
            return self._journal.put_aside({command_id: reason})
        except IllegalMove:
            _log.debug("command=%s its result is settled already", command_id)
            return 0

    def _offer(self) -> None:
        if not self._is_any:
            return
        count = self._journal.offer_again(_OFFERED_FIRST)
        self._is_probing = count > 0
        now = self._clock.now()
        self._offered_at_s = now.monotonic_s
        self._note(now)
        _log.info("results=offered_again %d of those that are put aside", count)

    def _note(self, at: Moment) -> None:
        self._noted = at
        members = {"mono": at.monotonic_s, "wall": at.wall_s, "boot": at.boot_id}
        self._journal.put_setting(OFFERED, json.dumps(members))


def _to_moment(text: str | None) -> Moment | None:
    try:
        found = json.loads(text or "null")
        return Moment(float(found["mono"]), float(found["wall"]), str(found["boot"]))
    except (ValueError, TypeError, KeyError):
        return None
