"""What a list of commands shows: ids, states, times, order."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from agent.errors import InvalidMessage, ServiceError
from agent.wire.command_states import CommandStatus
from agent.wire.commands import ID_NAMES, CommandRecord
from agent.wire.pages import read_page
from agent.wire.probe.line import NOT_JSON, Seen
from agent.wire.probe.notes import Notes
from agent.wire.probe.shapes import TIME_WORDS, list_shape, time_form
from agent.wire.server_findings import shortened

_DEPTH_MAX: Final = 3
_ID_NAME: Final = re.compile(r"(?i)(.*[_-])?(id|_id|uuid|guid|oid|key|ref|number|no|nr)|.*(Id|Uuid|Key|Ref)")
_NOT_ITS_OWN: Final = re.compile(r"(?i)(device|product|user|account|owner|sender|tenant|request|trace).*")
_STATES: Final = frozenset(str(status) for status in CommandStatus)
_TIMES: Final = ("created_at", "createdAt")


def read_commands(notes: Notes, seen: Seen) -> list[dict[str, Any]] | None:
    """Read a list of commands and note what it shows; its records as they came, None when it is no list."""
    value = seen.json()
    if not seen.is_good or value is NOT_JSON:
        return None
    try:
        page = read_page(value, seen.what, "commands")
    except ServiceError:
        return None
    items = [item for item in page.items if isinstance(item, dict)]
    if not items:
        return items
    if notes.value("list_shape") is None:
        shape = list_shape(value, page.items, "commands")
        notes.note("lists", "list_shape", shape, f"{shape} (commands, {len(items)} items)")
    _note_ids(notes, items)
    _note_states(notes, items)
    _note_times(notes, items)
    return items


def _note_ids(notes: Notes, items: list[dict[str, Any]]) -> None:
    known = next((name for name in ID_NAMES if all(item.get(name) is not None for item in items)), None)
    if known is not None:
        kind = "whole numbers" if isinstance(items[0][known], int) else "text"
        notes.note("commands", "command_id", known, f"{known}, {kind}")
        return
    configured = notes.dialect.reading.command_id_path
    path = configured or find_id_path(items)
    if path is None:
        loss = (
            "ids are derived from content and time: equal commands cannot be distinguished, and results name no real id"
        )
        notes.note("commands", "command_id", "none", "no member that could be an id", loss)
        notes.found(derives_ids=True)
        return
    name = ".".join(path)
    if configured is None:
        notes.set("command_id", name, "the member that holds a command's id")
    notes.note("commands", "command_id", name, f"{name}, which service.dialect.command_id names")


def find_id_path(items: Sequence[Mapping[str, Any]]) -> tuple[str, ...] | None:
    """The members that lead to what looks like an id: named like one, there in each command, and never twice."""
    for path in dict.fromkeys(path for item in items for path in _paths(item, ())):
        values = [_at(item, path) for item in items]
        if None not in values and len({str(value) for value in values}) == len(values):
            return path
    return None


def _paths(item: Mapping[str, Any], before: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for name, value in item.items():
        if name in {"command_payload", "commandPayload", "payload", "result"}:
            continue
        is_scalar = isinstance(value, (str, int)) and not isinstance(value, bool)
        if is_scalar and value != "" and _ID_NAME.fullmatch(name) and not _NOT_ITS_OWN.fullmatch(name):
            yield (*before, name)
        elif isinstance(value, Mapping) and len(before) < _DEPTH_MAX and "." not in name:
            yield from _paths(value, (*before, name))


def _at(item: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    value: Any = item
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _note_states(notes: Notes, items: list[dict[str, Any]]) -> None:
    words = [item.get("status") for item in items]
    if all(word is None for word in words):
        notes.note("commands", "status_words", "none", "commands have no status")
    elif all(isinstance(word, str) and word in _STATES for word in words):
        notes.note(
            "commands", "status_words", "complete", f"the agent's own: {', '.join(sorted(set(map(str, words))))}"
        )
    else:
        kind = "number" if all(isinstance(word, int) for word in words) else "own"
        seen_words = sorted({shortened(str(word)[:40]) for word in words if word is not None})
        loss = "whether a listed command has ended is known to the device's journal alone"
        notes.note("commands", "status_words", kind, f"its own: {', '.join(seen_words)}", loss)
        notes.found(status_words=tuple(seen_words))


def _note_times(notes: Notes, items: list[dict[str, Any]]) -> None:
    has_end = any(item.get(name) is not None for item in items for name in ("expires_at", "expiresAt"))
    words = "commands say when they expire" if has_end else "commands do not say when they expire"
    notes.note("commands", "expires_at", "present" if has_end else "absent", words)
    created = next((item[name] for item in items for name in _TIMES if item.get(name) is not None), None)
    if created is None:
        loss = "how old a command is stays unknown: with first_contact skip-history all of the first list are skipped"
        notes.note("commands", "created_at", "absent", "commands do not say when they were sent", loss)
        return
    form = time_form(created)
    loss = ""
    if form == "unreadable":
        loss = "created_at of commands cannot be read, so that each counts as old"
        notes.found(unread_time="created_at")
    notes.note("commands", "created_at", form, f"created_at {TIME_WORDS[form]} ({str(created)[:40]})", loss)
    if notes.value("time_format") is None:
        notes.note("times", "time_format", form, f"{TIME_WORDS[form]} (created_at of commands: {str(created)[:40]})")


def record_of(item: Mapping[str, Any], notes: Notes) -> CommandRecord | None:
    """The command as the agent would read it; None when it could not."""
    try:
        return CommandRecord.receive(item, notes.dialect.reading)
    except InvalidMessage:
        return None
