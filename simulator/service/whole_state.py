"""Saves and replaces the whole state while the service runs, so that what is in memory is what is stored."""

from __future__ import annotations

import functools
from pathlib import Path

from sqlalchemy import Connection

from agent.errors import StorageError
from simulator.service.accounts import AccountCache, read_held
from simulator.service.service import Service
from simulator.service.snapshots import copies
from simulator.service.snapshots.copies import Header
from simulator.service.snapshots.folder import cannot_be_written, not_saved
from simulator.service.storage.writer import Ended


async def save_as(service: Service, name: str) -> None:
    """Save all that was answered before under a name, while requests are served.

    Raises:
        Invalid: it cannot be a name.
        Conflict: ``snapshot_exists``; ``snapshot_limit_reached``.
        Unavailable: ``snapshot_not_saved``: it cannot be written; ``storage_unavailable``.
    """
    async with service.snapshots.turn:
        target = service.snapshots.place_for(name)  # in here: two saves of one name come one after the other
        await service.flush_presence()
        await service.settle_due()
        try:
            await service.snapshots.run(functools.partial(_save, service, target))
        except OSError as exc:
            raise not_saved(target, exc) from None


def save_at_end(service: Service, target: Path) -> None:
    """As :func:`save_as`, once no request is served any more.

    Raises:
        StorageError: it cannot be written; a file that was there before is as it was.
    """
    service.writer.call(lambda _connection: None)  # what is overdue is ended before any write
    try:
        _save(service, target)
    except OSError as exc:
        issue = cannot_be_written(target, exc)
        raise StorageError(f"--snapshot-on-exit: {issue}; a file that was there before is as it was") from None


def _save(service: Service, target: Path) -> None:
    clock = service.clock
    service.read_now(lambda connection: copies.save(connection, target, clock.state(), clock.base_ms()))


async def load_from(service: Service, path: Path) -> Header:
    """Replace everything by what a snapshot holds: the new state as a whole, or the old one.

    The file is read as a whole before anything changes. Requests that come meanwhile wait; held polls look again, event
    streams end, and requests that are under way are refused: they may come again.

    Raises:
        Invalid: ``invalid_snapshot``: what is wrong with the file; everything is as it was.
        Unavailable: the storage cannot be written; everything is as it was.
    """
    async with service.snapshots.turn:
        await service.snapshots.run(functools.partial(copies.check, path))
        async with service.due.standing():
            return await _replace(service, path)


async def _replace(service: Service, path: Path) -> Header:
    load = _Load(service, path)
    service.epochs.begin_replacing()
    try:
        await service.writer.submit_alone(load, load.ended)
        return await load.take_over()
    finally:
        if not load.is_stored:
            load.undo()
        service.epochs.end_replacing(is_replaced=load.is_stored)
        service.waiters.wake_all()
        service.feed.wake()


class _Load:
    """What a snapshot's load does to the storage, in the writing thread, and to what is in memory.

    Attributes:
        is_stored: the new state is committed.
    """

    def __init__(self, service: Service, path: Path) -> None:
        self.is_stored = False
        self._service = service
        self._path = path
        self._digest = ""
        self._loaded: tuple[Header, AccountCache] | None = None
        self._seen: tuple[dict[int, int], dict[int, int]] | None = None

    def __call__(self, connection: Connection) -> None:
        """Replace all rows; a second time where the connection was lost before."""
        service = self._service
        self._seen = self._seen or service.presence.set_aside()  # rows of devices that are gone
        header = copies.replace_all(connection, self._path)
        self._digest = copies.digest_of(self._path)
        with copies.rows_are_of_a_snapshot():
            service.accounts.keep_own(connection)
            held = read_held(connection)
        for reload in service.on_reset:
            reload(connection)
        service.deadline.load(connection)
        self._loaded = header, held

    def ended(self, outcome: Ended) -> None:
        """The transaction has ended. Before anything else is written the clock is that of the state that is stored."""
        if self._loaded is None:
            return
        self.is_stored = outcome is Ended.WRITTEN
        if self.is_stored:
            self._service.clock.restore(self._loaded[0].clock)

    async def take_over(self) -> Header:
        """Nobody was seen, has signed in, asked for anything, or guessed a password in the new state."""
        if self._loaded is None:
            raise RuntimeError("nothing was loaded")
        header, held = self._loaded
        service = self._service
        service.accounts.hold(held)
        service.sessions.sign_out_everybody()
        service.quota.clear()
        service.ids.restart(self._digest)
        await service.scripted.refresh()  # until then those that are gone are seen
        service.presence.clear()
        return header

    def undo(self) -> None:
        """Put back what is kept in memory: nothing was stored."""
        service = self._service
        if self._seen is not None:
            service.presence.put_back(self._seen)
        service.rules.have_changed()
        service.deadline.doubt()
