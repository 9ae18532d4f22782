"""Every moment of a recording at which the power may go, what the disk may hold then, and what must come of it.

A *moment* is a place in the recording: the disk has done the operations before it, the world (commands, results,
readings at the service, effects of handlers) is as it was, and the last promise is what the agent took for safe. For
each sync of a file or of the directory there are two moments: right after it has returned, and right before, when all
that it was to make durable is still up to chance. The images of a moment are what :class:`~tests.fault.disk.Loss` says.
"""

from __future__ import annotations

import contextlib
import random
import shutil
import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from agent.adapters.clocks import SystemClock
from agent.adapters.sqlite_store import FILE_NAME, SqliteStore
from agent.errors import AgentError
from tests.fault.disk import Disk, Loss, Operation, Sync, SyncFolder, lay_out
from tests.fault.recording import Event, Recording
from tests.fault.small_service import Happening, World
from tests.fault.verdict import readings_of

_ORDER: Final = {"received": 0, "started": 1, "finished": 2, "put_aside": 2, "reported": 3, "skipped": 3, "given_up": 3}
_ROWS_MAX: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Moment:
    """A place in the recording.

    Attributes:
        number: how many events lie before it.
        disk: as it is then; used up by the images that are made of it.
        promise: what the agent took for safe, last; empty before its first commit.
        next_promise: what it would take for safe next: an image may hold that already.
        past: what had happened at the service.
        effects: lines that handlers had written.
    """

    number: int
    disk: Disk
    promise: Mapping[str, Any]
    next_promise: Mapping[str, Any]
    past: tuple[Happening, ...]
    effects: tuple[dict[str, Any], ...]

    @property
    def world(self) -> World:
        """The service."""
        return World.after(self.past)


@dataclass(frozen=True, slots=True)
class Image:
    """One state of the disk after the power went at one moment."""

    moment: Moment
    loss: Loss
    files: dict[str, bytes]

    def __str__(self) -> str:
        return f"power cut before event {self.moment.number}, {self.loss}"


def moments(recording: Recording) -> Iterator[Moment]:
    """Each one in turn, the end of the recording last. The disk moves on with the iteration."""
    events = recording.events
    promises = [(index, event.what) for index, event in enumerate(events) if event.kind == "promise"]
    disk = Disk()
    for index, event in enumerate(events):
        if _is_sync(event):
            yield _moment(index, events, disk, promises)
        if event.kind == "disk":
            disk.do(_operation(event))
        if _is_sync(event):
            yield _moment(index + 1, events, disk, promises)
    yield _moment(len(events), events, disk, promises)


def _moment(number: int, events: Sequence[Event], disk: Disk, promises: Sequence[tuple[int, Any]]) -> Moment:
    made = [promise for index, promise in promises if index < number]
    to_come = [promise for index, promise in promises if index >= number]
    past = tuple(event.what for event in events[:number] if isinstance(event.what, Happening))
    effects = tuple(event.what for event in events[:number] if event.kind == "effect" and isinstance(event.what, dict))
    return Moment(number, disk, made[-1] if made else {}, to_come[0] if to_come else {}, past, effects)


def images(moment: Moment, chance: random.Random, *, of_sectors: int) -> Iterator[Image]:
    """What the disk may hold: each kind of loss once, random sectors as often as asked for; equal ones once."""
    losses = [Loss.ALL]
    if moment.disk.unsynced:
        losses += [Loss.NONE, Loss.TORN, Loss.SIZES, Loss.NAMES, *[Loss.SECTORS] * of_sectors]
    seen: list[dict[str, bytes]] = []
    for loss in losses:
        files = moment.disk.after_power_cut(loss, chance)
        if files not in seen:
            seen.append(files)
            yield Image(moment, loss, files)


def open_and_judge(image: Image, folder: Path) -> list[str]:
    """Open the store on the image as an agent does, and hold it against the promise; what is wrong, one line each."""
    shutil.rmtree(folder, ignore_errors=True)
    lay_out(image.files, folder)
    try:
        with contextlib.closing(SqliteStore(folder / FILE_NAME, clock=SystemClock())) as store:
            faults = [*_judge_store(store, image.moment), *_judge_file(store)]
    except AgentError as error:
        faults = [f"the store does not open: {error}"]
    return [f"{image}: {fault}" for fault in faults]


def states_in(image: Image, folder: Path, command_ids: Collection[str]) -> dict[str, str]:
    """The state of each of these commands in the journal that the image holds; the store has to open."""
    if not command_ids:
        return {}
    shutil.rmtree(folder, ignore_errors=True)
    lay_out(image.files, folder)
    with contextlib.closing(SqliteStore(folder / FILE_NAME, clock=SystemClock())) as store:
        return {name: str(entry.state) for name, entry in store.journal.known(list(command_ids)).items()}


def _judge_store(store: SqliteStore, moment: Moment) -> Iterator[str]:
    promise, following = moment.promise, moment.next_promise
    known = store.journal.known(list(promise.get("commands", {})))
    for command_id, (state, attempts) in promise.get("commands", {}).items():
        entry = known.get(command_id)
        if entry is None:
            yield f"acknowledged command lost: {command_id} was {state}"
        elif _ORDER[entry.state] < _ORDER[state] or entry.attempts < attempts:
            now = f"{entry.state} ({entry.attempts})"
            yield f"acknowledged command lost: {command_id} was {state} ({attempts}), is {now}"
    waiting = {reading for row in store.outbox.next_batch(_ROWS_MAX) for reading in readings_of(row.reading.values)}
    for values in promise.get("readings", []):
        for reading in readings_of(values):
            if reading not in waiting and reading not in moment.world.stored():
                yield f"reading lost: {reading}"
    for name in promise.get("settings", {}).keys() | following.get("settings", {}).keys():
        allowed = {each.get("settings", {}).get(name) for each in (promise, following)}
        if store.journal.setting(name) not in allowed:
            yield f"setting {name!r} is {store.journal.setting(name)!r}, promised were {allowed}"


def _judge_file(store: SqliteStore) -> Iterator[str]:
    if store.incidents:
        yield f"the store was replaced: {store.incidents}"
    with contextlib.suppress(sqlite3.Error):
        (verdict,) = store._db.execute("PRAGMA integrity_check").fetchone()
        if verdict != "ok":
            yield f"the file is damaged: {verdict}"


def _is_sync(event: Event) -> bool:
    return event.kind == "disk" and isinstance(event.what, Sync | SyncFolder)


def _operation(event: Event) -> Operation:
    assert not isinstance(event.what, dict | Happening)
    return event.what
