"""Commands over HTTP: what is beyond the specification is used where the service offers it, and for as long."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from agent.core.listed import ListWatch
from agent.core.values import Command, CommandPoll
from agent.errors import ErrorAnswer, NotFound, Refused, ServerFault, ServiceError
from agent.transports.discovery import Discovery
from agent.transports.records import read_records
from agent.wire.client import DeviceClient
from agent.wire.commands import OPEN, CommandStatus
from agent.wire.connection import Interrupted
from agent.wire.dialect import CommandLists
from agent.wire.extensions import COMMAND_STATUS, LONG_POLL
from agent.wire.lists import CommandList
from agent.wire.server_profile import CANCELED_QUERY, IF_NONE_MATCH

_log = logging.getLogger(__name__)

REFUSALS: Final = frozenset({400, 404, 405, 412, 422, 431, 501})
"""Statuses with which servers refuse a query parameter or a header that they do not know."""


@dataclass(frozen=True, slots=True)
class _Question:
    """The query parameters and headers of one poll that go beyond the specification."""

    status: str | None = None
    wait_s: float = 0.0
    etag: str | None = None

    def extras(self) -> dict[str, _Question]:
        """Feature -> the question without it, the least needed first, each without those before it, too."""
        found: dict[str, _Question] = {}
        rest = self
        if rest.etag is not None:
            found[IF_NONE_MATCH] = rest = replace(rest, etag=None)
        if rest.wait_s > 0:
            found[LONG_POLL] = rest = replace(rest, wait_s=0.0)
        if rest.status is not None:
            found[COMMAND_STATUS] = replace(rest, status=None)
        return found


class HttpSource:
    """A :class:`~agent.ports.CommandSource` on ``GET /devices/{deviceId}/commands``.

    ``status=open`` is asked for only where the service offers ``command-status``. A plain server may list everything
    for ever, or each command once: the journal decides what is new.

    Args:
        client: only its interruptible requests are used here.
        device_id: whose commands.
        discovery: what the service offers, and what was found out about it.
        may_hold: whether the service may hold a poll where it offers that.
        watch: compares the lists of a plain server; the uplink passes it the results that were taken.
        look_first: is given the first list that was asked for without a state, before it is handed out; may raise.
    """

    def __init__(
        self,
        client: DeviceClient,
        device_id: str,
        discovery: Discovery,
        *,
        may_hold: bool = True,
        watch: ListWatch | None = None,
        look_first: Callable[[Sequence[Command]], object] = lambda _commands: None,
    ) -> None:
        self._client = client
        self._device_id = device_id
        self._discovery = discovery
        self._may_hold = may_hold
        self._watch = ListWatch() if watch is None else watch
        self._look_first: Callable[[Sequence[Command]], object] | None = look_first
        self._etag: str | None = None
        self._unacknowledged: str | None = None
        self._looked_at: str | None = None
        self._listed: frozenset[str] = frozenset()
        self._missing: ServiceError | None = None
        self._is_accepted = False
        self._noted: set[str] = set()

    def poll(self, wait_s: float) -> CommandPoll:
        """The commands that the service lists for this device. See :meth:`agent.ports.CommandSource.poll`.

        Where pages of a list are missing, those that came are returned first and the error is raised by the next call.
        """
        missing, self._missing = self._missing, None
        if missing is not None:
            raise missing
        ended = self._watch.ended
        question, answer = self._ask(wait_s)
        held = question.wait_s > 0
        if answer.unchanged:
            if question.etag == self._looked_at is not None:
                self._keep_lists(self._watch.saw_again(ended))
            return CommandPoll(unchanged=True, held=held)
        self._note(answer)
        commands, malformed = read_records(answer.records, self._device_id)
        if self._look_first is not None and question.status is None:
            self._look_first(commands)
        self._look_first = None
        # Only what is in the journal may be left out next time.
        self._unacknowledged = answer.etag
        self._missing = None if isinstance(answer.incomplete, Interrupted) else answer.incomplete
        is_whole = answer.is_whole
        self._listed = frozenset(command.id for command in commands)
        self._looked_at = answer.etag if question.status is None and is_whole else None
        if question.status is None and is_whole:
            self._look(commands, ended)
        elif question.status is not None:
            self._watch.note_words(command.status for command in commands)
            self._keep_lists(None)
        return CommandPoll(
            commands=tuple(replace(each, status=self._discovery.state_of(each.status)) for each in commands),
            malformed=(*answer.malformed, *malformed),
            held=held,
            is_whole=is_whole,
            omitted=answer.omitted,
        )

    def acknowledge(self, command_ids: Sequence[str]) -> None:
        """The last list is committed: from now on only another one is news.

        Nothing is sent to the service: over HTTP the result is what takes a command off its list.
        """
        del command_ids
        self._etag = self._unacknowledged

    def canceled(self, command_ids: Sequence[str]) -> frozenset[str]:
        """Which of these the service has taken back; none where the service cannot be asked.

        See :meth:`agent.ports.CommandSource.canceled`: one more list where the service offers ``command-status``.

        Where the configuration says that lists hold open commands alone, what left the last one was taken back.
        """
        if not self._discovery.offers(COMMAND_STATUS):
            is_open = self._discovery.dialect.command_lists is CommandLists.OPEN and self._missing is None
            return frozenset(command_ids) - self._listed if is_open else frozenset()
        if self._discovery.profile.is_withdrawn(CANCELED_QUERY):
            return frozenset()
        try:
            answer = self._client.device_commands(self._device_id, status=CommandStatus.CANCELED)
        except (NotFound, Refused, ServerFault) as error:
            if error.status not in REFUSALS:
                raise
            self._discovery.withdraw(CANCELED_QUERY, str(error))
            return frozenset()
        commands, _ = read_records(answer.records, self._device_id)
        # A service that ignores the filter lists others, too.
        listed = {command.id for command in commands if command.status == CommandStatus.CANCELED}
        return frozenset(listed.intersection(command_ids))

    def interrupt(self) -> None:
        """End a held poll."""
        self._client.interrupt()

    def _ask(self, wait_s: float) -> tuple[_Question, CommandList]:
        """The answer; of a refusal it is found out once which part of the question the server cannot take."""
        offers, profile = self._discovery.offers, self._discovery.profile
        is_held = self._may_hold and wait_s > 0 and offers(LONG_POLL)
        question = _Question(
            status=OPEN if offers(COMMAND_STATUS) else None,
            wait_s=wait_s if is_held else 0.0,
            etag=None if profile.is_withdrawn(IF_NONE_MATCH) else self._etag,
        )
        try:
            answer = self._list(question)
        except (NotFound, Refused, ServerFault) as error:
            # A server that took such questions before and has no such device now means the device.
            if error.status not in REFUSALS or (self._is_accepted and isinstance(error, NotFound)):
                raise
            refusal: ErrorAnswer = error
        else:
            self._is_accepted = True
            return question, answer
        for feature, rest in question.extras().items():
            try:
                answer = self._list(rest)
            except (NotFound, Refused, ServerFault) as error:
                if error.status not in REFUSALS:
                    raise
                continue
            self._discovery.withdraw(feature, str(refusal))
            return rest, answer
        raise refusal

    def _list(self, question: _Question) -> CommandList:
        return self._client.device_commands(
            self._device_id, status=question.status, wait_s=question.wait_s, etag=question.etag
        )

    def _note(self, answer: CommandList) -> None:
        """Log what is odd about the list, each kind once, and keep it."""
        for kind, text in answer.notes.items():
            if kind not in self._noted:
                self._noted.add(kind)
                _log.warning("commands=odd %s", text)
        before = self._discovery.profile
        unread = {kind.removeprefix("unreadable_") for kind in answer.notes if kind.startswith("unreadable_")}
        derives_ids = before.derives_ids or "derived_ids" in answer.notes
        unread_time = ", ".join(sorted(unread.union(filter(None, before.unread_time.split(", ")))))
        found = {
            "derives_ids": derives_ids,
            "unread_time": unread_time,
            "more_pages": before.more_pages or answer.notes.get("more_than_listed", ""),
            "unread": self._unread(answer) if answer.omitted else before.unread,
        }
        if any(getattr(before, name) != value for name, value in found.items()):
            self._discovery.note(**found)

    def _unread(self, answer: CommandList) -> str:
        """How many commands of a very long answer were read."""
        read = len(answer.records)
        text = f"{read} of {read + answer.omitted} or more"
        lists = self._discovery.dialect.command_lists or self._discovery.profile.lists
        if lists is not CommandLists.ONCE:
            return text
        _log.warning(
            "commands=lost %d or more: this server hands each command out once, and of one answer %d are read; let it "
            "hand out fewer at a time",
            answer.omitted,
            read,
        )
        return f"{text}, and the others are lost, since each is handed out once"

    def _look(self, commands: Iterable[Command], ended: Iterable[str]) -> None:
        self._keep_lists(self._watch.saw({command.id: command.status for command in commands}, ended))

    def _keep_lists(self, found: CommandLists | None) -> None:
        before = self._discovery.profile
        # What once listed everything may show open commands alone for a while.
        lists = before.lists if found is None or before.lists is CommandLists.EVERYTHING else found
        words = tuple(sorted(self._watch.words.union(before.status_words)))
        if (lists, words) != (before.lists, before.status_words):
            self._discovery.note(lists=lists, status_words=words)
