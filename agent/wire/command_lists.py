"""The list of a device's commands, read page by page: one record that cannot be read never hides the others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from agent.errors import InvalidMessage, ServiceError, UnexpectedAnswer
from agent.wire.answers import Answer
from agent.wire.dialect import AnswerReading
from agent.wire.lists import ITEMS_MAX, Page

if TYPE_CHECKING:
    from agent.wire.commands import CommandRecord

_OVERLAP_MAX: Final = 50

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
        server_time: the service's clock, seconds since the epoch; None when the answer has no ``Date``.
        omitted: so many commands at least were listed and not read, since there were too many
            (:mod:`agent.wire.lists`): what is missing in ``records`` may be listed all the same.
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


def read_commands(pages: Iterator[tuple[Answer, Page]], reading: AnswerReading, max_bytes: int) -> CommandList:
    """The commands of all pages, or of as many as are read.

    Args:
        pages: fetched when asked for.
        reading: how this server's answers are read.
        max_bytes: no further page is asked for after so many.

    Raises:
        ServiceError: the first page did not come. One that is missing later is in ``incomplete``.
    """
    found = CommandReader(reading)
    answer, page = next(pages)
    is_unchanged, page_count = answer.is_unchanged, 1
    count, size_bytes, omitted, total = 0, 0, 0, None
    incomplete: ServiceError | None = None
    while True:
        found.add(page.items)
        count += len(page.items)
        omitted += page.omitted
        size_bytes += len(answer.content)
        total = page.total if page.total is not None else total
        if count >= ITEMS_MAX and page.has_more is not False:
            omitted = omitted or 1  # at least one more, for all that is known
            break
        try:
            if size_bytes > max_bytes:
                raise UnexpectedAnswer(
                    f"{answer.source} lists more than {max_bytes} bytes of commands, and the rest is not read: "
                    "let the service drop old ones"
                )
            answer, page = next(pages)
            page_count += 1
        except StopIteration:
            break
        except ServiceError as error:
            incomplete = error
            break
    if total is not None and count < total and incomplete is None and not omitted:
        found.notes[MORE_THAN_LISTED] = (
            f"{answer.source} says that the list has {total} items, lists {count}, and not how to get the others"
        )
    return CommandList(
        tuple(found.records),
        tuple(found.malformed),
        # With more than one page the first one's tag does not speak for the whole list.
        etag=answer.etag if page_count == 1 and incomplete is None else None,
        unchanged=is_unchanged,
        server_time=answer.server_time,
        omitted=omitted,
        notes=found.notes,
        incomplete=incomplete,
    )


class CommandReader:
    """The commands in the items of a list, page by page: the same for every transport.

    Args:
        reading: how this server's answers are read.

    Attributes:
        records: those that could be read, each with an id.
        malformed: one sentence for each that could not.
        notes: see :class:`CommandList`.
    """

    def __init__(self, reading: AnswerReading) -> None:
        self._reading = reading
        self._occurrences: dict[str, int] = {}
        self._before: list[object] = []
        self._index = 0
        self.records: list[CommandRecord] = []
        self.malformed: list[str] = []
        self.notes: dict[str, str] = {}

    def add(self, items: list[object]) -> None:
        """Read the items of a page. What ended the page before it has only moved between the two requests."""
        before, self._before = self._before, items
        longest = min(len(before), len(items), _OVERLAP_MAX)
        again = next((n for n in range(longest, 0, -1) if before[-n:] == items[:n]), 0)
        for item in items[again:]:
            self._read(item)
            self._index += 1

    def _read(self, item: object) -> None:
        from agent.wire.commands import CommandRecord  # with the first command

        try:
            record = CommandRecord.receive(item, self._reading)
        except InvalidMessage as exc:
            self.malformed.append(f"{_name(item, self._index)} in the list of commands is skipped: {exc}")
            return
        if not record.id:
            first = record.stable_id()
            occurrence = self._occurrences.get(first, 0)
            self._occurrences[first] = occurrence + 1
            record = record.with_derived_id(occurrence)
        self.records.append(record)
        if record.unreadable_times or record.has_derived_id:
            for kind, sentence in _notes_on(record, item):
                self.notes.setdefault(kind, sentence)


def _notes_on(record: CommandRecord, item: object) -> Iterator[tuple[str, str]]:
    members = item if isinstance(item, dict) else {}
    for name in record.unreadable_times:
        sent = members.get(name, members.get("".join([name[:-3], "At"])))
        consequence = "it is not run, since it may have expired" if name == "expires_at" else "it counts as old"
        yield (
            f"{UNREADABLE}{name}",
            (
                f"{name} of command {str(record.id)[:64]!a} cannot be read as a time "
                f"({ascii(sent)[:60]}): {consequence}; let the service write RFC 3339, such as 2026-01-01T00:00:00Z"
            ),
        )
    if record.has_derived_id:
        yield (
            DERIVED_IDS,
            (
                "commands come without an id, so one is derived from content and time, and results carry it: let the "
                "service list ids, or name the member that holds them in service.dialect.command_id"
            ),
        )


def _name(item: object, index: int) -> str:
    given_id = item.get("id", item.get("command_id")) if isinstance(item, dict) else None
    return f"command {given_id[:64]!a}" if isinstance(given_id, str) and given_id else f"item {index}"
