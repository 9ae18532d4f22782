"""The list of a device's commands, out of all of its pages: what could be read, what could not, and what is missing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from agent.errors import InvalidMessage, ServiceError, UnexpectedAnswer
from agent.wire.answers import Answer
from agent.wire.commands import CommandRecord
from agent.wire.dialect import AnswerReading
from agent.wire.lists import Page

ITEMS_MAX: Final = 20_000
"""So many commands of one list are read: half of them from its beginning, half from its end."""

_OVERLAP_MAX: Final = 50


@dataclass(frozen=True, slots=True)
class CommandList:
    """One answer to the listing of a device's commands.

    Attributes:
        records: every command that could be read, in the service's order.
        malformed: one sentence for each that could not; never its content.
        etag: the list's version, for the next conditional request; None when the service gives none.
        unchanged: 304, the list is the one that ``etag`` names; ``records`` is empty.
        omitted: so many commands at least were listed and not read, since there were too many: what is missing in
            ``records`` may be listed all the same.
        has_hidden: by its own count the list has more items, and the answer does not say how to get them.
        notes: what is odd about the list as a whole, kind -> one sentence with an example, to be said once per kind.
        incomplete: why pages after the first are missing; None when the list is whole. What was read counts all the
            same, since a server may hand each command out once: the caller stores it first and then takes this for
            the error of the call. What is not in ``records`` may still be on the list.
    """

    records: tuple[CommandRecord, ...] = ()
    malformed: tuple[str, ...] = ()
    etag: str | None = None
    unchanged: bool = False
    omitted: int = 0
    has_hidden: bool = False
    notes: Mapping[str, str] = field(default_factory=dict)
    incomplete: ServiceError | None = None

    @property
    def is_whole(self) -> bool:
        """What is not in ``records`` or ``malformed`` is not on the list."""
        return self.incomplete is None and not self.omitted and not self.has_hidden


def read_commands(pages: Iterator[tuple[Answer, Page]], reading: AnswerReading, max_bytes: int) -> CommandList:
    """The commands of all pages, or of as many as are read.

    Args:
        pages: fetched when asked for.
        reading: how this server's answers are read.
        max_bytes: no further page is asked for after so many.

    Raises:
        ServiceError: the first page did not come. One that is missing later is in ``incomplete``.
    """
    found = _Commands(reading)
    page_count, count, size_bytes, omitted, total = 0, 0, 0, 0, None
    etag, unchanged = None, False
    incomplete: ServiceError | None = None
    try:
        for answer, page in pages:
            page_count += 1
            # With more than one page the first one's tag does not speak for the whole list.
            etag = answer.etag if page_count == 1 else None
            unchanged = answer.is_unchanged
            items = page.items
            if len(items) > ITEMS_MAX:
                items = [*items[: ITEMS_MAX // 2], *items[-ITEMS_MAX // 2 :]]
            found.add(items)
            count += len(items)
            omitted += len(page.items) - len(items)
            size_bytes += len(answer.content)
            total = page.total if page.total is not None else total
            if count >= ITEMS_MAX and page.has_more is not False:
                omitted = omitted or 1  # at least one more, for all that is known
                break
            if size_bytes > max_bytes and page.has_more is not False:
                raise UnexpectedAnswer(
                    f"{answer.source} lists more than {max_bytes} bytes of commands, and the rest is not read: "
                    "let the service drop old ones"
                )
    except ServiceError as error:
        if page_count == 0:
            raise
        incomplete, etag = error, None
    if omitted:
        found.notes["omitted"] = (
            f"of one list {count} commands were read, and {omitted} or more were not: they are lost where the server "
            "hands each command out once; let it list fewer at a time"
        )
    has_hidden = total is not None and count < total and incomplete is None and not omitted
    if has_hidden:
        found.notes["more_than_listed"] = (
            f"the list of commands has {total} items by its own count, lists {count}, and not how to get the others"
        )
    return CommandList(
        tuple(found.records),
        tuple(found.malformed),
        etag=etag,
        unchanged=unchanged,
        omitted=omitted,
        has_hidden=has_hidden,
        notes=found.notes,
        incomplete=incomplete,
    )


class _Commands:
    """The commands in the items of a list, page by page: one record that cannot be read never hides the others."""

    def __init__(self, reading: AnswerReading) -> None:
        self._reading = reading
        self._occurrences: dict[str, int] = {}
        self._before: list[object] = []
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

    def _read(self, item: object) -> None:
        try:
            record = CommandRecord.receive(item, self._reading)
        except InvalidMessage as exc:
            place = len(self.records) + len(self.malformed)
            self.malformed.append(f"{_name(item, place)} in the list of commands is skipped: {exc}")
            return
        if not record.id:
            first = record.stable_id()
            occurrence = self._occurrences.get(first, 0)
            self._occurrences[first] = occurrence + 1
            record = record.with_derived_id(occurrence)
            self.notes.setdefault(
                "derived_ids",
                "commands come without an id, so one is derived from content and time, and results carry it: let the "
                "service list ids, or name the member that holds them in service.dialect.command_id",
            )
        self.records.append(record)
        for name in record.unreadable_times:
            consequence = "it is not run, since it may have expired" if name == "expires_at" else "it counts as old"
            self.notes.setdefault(
                f"unreadable_{name}",
                f"{name} of command {str(record.id)[:64]!a} cannot be read as a time "
                f"({ascii(_sent(item, name))[:60]}): {consequence}; let the service write RFC 3339, such as "
                "2026-01-01T00:00:00Z",
            )


def _sent(item: object, name: str) -> object:
    members = item if isinstance(item, dict) else {}
    return members.get(name, members.get(name.replace("_at", "At")))


def _name(item: object, index: int) -> str:
    given_id = item.get("id", item.get("command_id")) if isinstance(item, dict) else None
    return f"command {given_id[:64]!a}" if isinstance(given_id, str) and given_id else f"item {index}"
