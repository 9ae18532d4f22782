"""A rollout under way: commands go out wave by wave, results are looked for, and a wave that goes wrong ends it.

One device at a time: before its command is sent that is noted, and after the answer again, both on the disk. Where the
service takes idempotency keys, a command whose answer was lost is sent again under the same key, which stores it once.
Where it does not, nobody can say whether it was stored: the device is not sent a second one and counts as silent.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Final, TypeVar

from agent.errors import Advice, NotFound, RateLimited, ServiceError
from agent.wire.limits import IDEMPOTENCY_S
from agent.wire.sending import SendCommand, SendingClient
from gateway.rollout.book import RolloutBook, Row
from gateway.rollout.plan import Counts, DeviceState, stop_reason
from gateway.rollout.results import CommandEnd, Results
from gateway.rollout.wave import Wave

Value = TypeVar("Value")

GIVE_UP_S: Final = 600.0
"""So long a service that does not answer is asked again."""
_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 30.0
# A key is not used in the last hour in which the service still knows it.
_KEY_GOOD_S: Final = IDEMPOTENCY_S - 3600.0
_UNSENT: Final = frozenset({DeviceState.SENDING, DeviceState.PLANNED})
_UNCLEAR: Final = "whether it was sent is not known, so it is not sent again"
_NO_ID: Final = "the service's answer names no command id, so its result cannot be found"


class Ended(StrEnum):
    """How a rollout ended."""

    DONE = "done"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class Ending:
    """The end of a rollout.

    Attributes:
        reason: why it stopped; None when it is done.
    """

    how: Ended
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a rollout is.

    Attributes:
        wave: the number of the present one, from 1.
        waves: how many there are.
        counts: of the present one.
        note: what holds it up just now; None when nothing does.
    """

    wave: int
    waves: int
    counts: Counts
    note: str | None = None


class Rollout:
    """Carries a rollout out, from wherever its state file says it is.

    Args:
        book: its state file.
        client: for the commands; it keeps to the quota by itself.
        results: where the results are read.
        has_keys: the service takes idempotency keys.
        show: called with each change.
        wall: epoch seconds.
        monotonic: seconds on the monotonic clock.
        sleep: waits so many seconds.
    """

    def __init__(
        self,
        book: RolloutBook,
        client: SendingClient,
        results: Results,
        *,
        has_keys: bool,
        show: Callable[[Progress], None],
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._book = book
        self._begun = book.begun
        self._limits = book.limits
        self._client = client
        self._results = results
        self._has_keys = has_keys
        self._show = show
        self._wall = wall
        self._monotonic = monotonic
        self._sleep = sleep
        self._wave = Wave(0, (), 0.0)
        self._waves = 0

    def run(self) -> Ending:
        """All waves, or those until one goes wrong.

        Raises:
            ServiceError: the service takes the keys no more, or has not answered for ten minutes; to be resumed.
        """
        waves = self._book.waves()
        self._waves = len(waves)
        for number in waves:
            rows = self._book.rows(number)
            self._wave = Wave(number, rows, self._book.last_sent_at(number))
            reason = self._roll_wave([row for row in rows if row.state in _UNSENT])
            if reason is not None:
                return Ending(Ended.STOPPED, reason)
        return Ending(Ended.DONE)

    def _roll_wave(self, unsent: list[Row]) -> str | None:
        """Send and look in turn, until the wave is over; why the rollout stops here, or None."""
        unsent.reverse()
        wave, looks = self._wave, self._wave.looks
        is_look_next = False
        while True:
            counts = wave.counts
            self._show(Progress(wave.number, self._waves, counts))
            reason = stop_reason(wave.number, counts, self._limits, is_over=False)
            if reason is not None:
                return reason
            now_s = self._wall()
            ends_s = float("inf") if unsent else wave.last_sent_at + self._limits.timeout_s
            row = looks.take(now_s, is_last=now_s >= ends_s) if is_look_next or not unsent else None
            is_look_next = not is_look_next
            if row is not None:
                if not self._look(row) and now_s < ends_s:
                    looks.again(row, self._wall())
            elif unsent:
                self._send(unsent.pop())
            elif looks.next_s is None:
                return stop_reason(wave.number, counts, self._limits, is_over=True)
            else:
                self._sleep(max(0.0, min(looks.next_s, ends_s) - now_s))

    def _send(self, row: Row) -> None:
        """Send one device its command.

        Raises:
            ServiceError: see :meth:`run`.
        """
        if row.state is DeviceState.SENDING and not self._may_repeat(row):
            self._note_over(row, DeviceState.SILENT, _UNCLEAR)
            return
        command = SendCommand(
            device_id=row.device_id, command_payload=self._begun.command_payload, ttl_seconds=self._begun.ttl_s
        )
        key = str(uuid.uuid5(uuid.UUID(self._begun.rollout_id), row.device_id)) if self._has_keys else None
        self._book.note_sending(row.position, self._wall())
        self._wave.put(row, DeviceState.SENDING)
        ask = partial(self._client.send_command, command, idempotency_key=key)
        try:
            command_id = self._with_retries(ask, is_repeatable=self._has_keys).id
        except ServiceError as error:
            self._note_refusal(row, error)
            return
        if command_id is None:
            self._note_over(row, DeviceState.SILENT, _NO_ID)
            return
        now_s = self._wall()
        self._book.note_sent(row.position, command_id, now_s)
        self._wave.sent(Row(row.position, row.wave, row.device_id, DeviceState.SENT, command_id), now_s)

    def _note_over(self, row: Row, state: DeviceState, reason: str | None) -> None:
        self._book.note_over(row.position, state, reason)
        self._wave.put(row, state)

    def _may_repeat(self, row: Row) -> bool:
        return self._has_keys and self._wall() - (row.sending_at or 0.0) < _KEY_GOOD_S

    def _note_refusal(self, row: Row, error: ServiceError) -> None:
        if error.advice is Advice.DROP:
            self._note_over(row, DeviceState.FAILED, str(error))
        elif error.advice is Advice.REAUTHENTICATE:
            self._book.note_unsent(row.position)
            raise error
        elif self._has_keys:
            raise error
        else:
            self._note_over(row, DeviceState.SILENT, f"{_UNCLEAR}: {error}")

    def _look(self, row: Row) -> bool:
        """Whether this device's command has ended, which is noted then."""
        try:
            end = self._with_retries(partial(self._results.end_of, row), is_repeatable=True)
        except NotFound as error:
            end = CommandEnd(DeviceState.FAILED, str(error))
        if end is None:
            return False
        self._note_over(row, end.state, end.reason)
        return True

    def _with_retries(self, ask: Callable[[], Value], *, is_repeatable: bool) -> Value:
        """Ask again while the service is away or its quota is used up, for ten minutes.

        Raises:
            ServiceError: it will not be otherwise by asking again, or must not be asked again.
        """
        began_s, pause_s = self._monotonic(), _FIRST_PAUSE_S
        while True:
            try:
                return ask()
            except RateLimited as error:
                # The client waits for the next window before its next request.
                self._show_note(f"the quota of the key is used up ({error}); it goes on by itself")
            except ServiceError as error:
                is_lasting = self._monotonic() - began_s >= GIVE_UP_S
                if error.advice is not Advice.RETRY or not is_repeatable or is_lasting:
                    raise
                self._show_note(f"{error}; trying again in {pause_s:g} s")
                self._sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _show_note(self, text: str) -> None:
        self._show(Progress(self._wave.number, self._waves, self._wave.counts, text))
