"""Saves and replaces the whole state while the service runs, so that what is in memory is what is stored."""

from __future__ import annotations

import functools
from pathlib import Path

from sqlalchemy import Connection

from agent.errors import ConfigurationError, StorageError
from simulator.service.accounts import Held, read_held
from simulator.service.clock import ClockState
from simulator.service.errors import Unavailable
from simulator.service.service import Service
from simulator.service.snapshots import loading, reading, writing
from simulator.service.snapshots.document import Header, unfit
from simulator.service.snapshots.folder import not_saved


async def save_to(service: Service, target: Path) -> None:
    """Write all that was answered before into a file, while requests are served.

    Raises:
        Unavailable: ``snapshot_not_saved``: it cannot be written; ``storage_unavailable``.
    """
    async with service.snapshots.turn:
        await service.flush_presence()
        await service.settle_due()
        await service.snapshots.run(functools.partial(_save, service, target))


def save_at_end(service: Service, target: Path) -> None:
    """As :func:`save_to`, once no request is served any more.

    Raises:
        StorageError: it cannot be written; a file that was there before is as it was.
    """
    service.writer.call(lambda _connection: None)  # what is overdue is ended before any write
    try:
        _save(service, target)
    except Unavailable as exc:
        raise StorageError(f"--snapshot-on-exit: {exc.message}") from None


def _save(service: Service, target: Path) -> Header:
    def save(connection: Connection) -> Header:
        state = service.clock.state()
        return writing.save(connection, target, state, service.clock.base_ms(), service.snapshots.stopping)

    try:
        return service.read_now(save)
    except OSError as exc:
        raise not_saved(target, exc) from None
    except writing.SaveStopped:
        raise Unavailable("snapshot_not_saved", "The service ends; the snapshot was not finished.") from None


async def load_from(service: Service, path: Path) -> Header:
    """Replace everything by what a snapshot holds: the new state as a whole, or the old one.

    The file is read as a whole before anything changes. Requests that come meanwhile wait; held polls look again, event
    streams end, and requests that are under way are refused: they may come again.

    Raises:
        Invalid: ``invalid_snapshot``: what is wrong with the file; everything is as it was.
        Unavailable: the storage cannot be written; everything is as it was.
    """
    async with service.snapshots.turn:
        await service.snapshots.run(functools.partial(reading.check, path))
        async with service.due.standing():
            return await _replace(service, path)


async def _replace(service: Service, path: Path) -> Header:
    load = _Load(service, path)
    service.epochs.begin_replacing()
    is_replaced = False
    try:
        try:
            header, held = await service.writer.submit(load)
        except Unavailable:
            # The connection may have been lost during the commit: then only the storage knows what became of it.
            is_replaced = await service.look_up(load.is_stored)
            service.accounts.hold(await service.look_up(read_held))
            raise
        is_replaced = True
        service.accounts.hold(held)
    finally:
        if is_replaced:
            # Everything in the storage is new: nobody has signed in, asked for anything, or guessed a password.
            service.sessions.sign_out_everybody()
            service.quota.clear()
            service.attempts.clear()
        else:
            load.undo()
        service.epochs.end_replacing(is_replaced=is_replaced)
        service.waiters.wake_all()
        service.feed.wake()
    service.ids.restart(reading.look(path)[1])
    await service.scripted.refresh()
    return header


class _Load:
    """Carried out in the writing thread, perhaps twice: what fails together with others is tried again by itself."""

    def __init__(self, service: Service, path: Path) -> None:
        self._service = service
        self._path = path
        self._header: Header | None = None
        self._clock: ClockState | None = None
        self._seen: tuple[dict[int, int], dict[int, int]] | None = None

    def __call__(self, connection: Connection) -> tuple[Header, Held]:
        service = self._service
        self._seen = self._seen or service.presence.set_aside()  # rows of devices that are gone
        header = loading.replace_all(connection, self._path)
        try:
            service.accounts.keep_own(connection)
            held = read_held(connection)
        except ConfigurationError as exc:
            raise unfit("rows.api_keys", f"cannot be used: {exc.in_one_line}") from None
        for reload in service.on_reset:
            reload(connection)
        service.deadline.load(connection)
        # Last, since nothing fails any more: what falls due goes by the clock that the state comes with.
        self._clock = self._clock or service.clock.state()
        self._header = header
        service.clock.restore(header.clock)
        return header, held

    def is_stored(self, connection: Connection) -> bool:
        """Whether the new state is there, as far as the numbers of rows show it."""
        return self._header is not None and loading.count_rows(connection) == self._header.rows

    def undo(self) -> None:
        """Nothing was stored: what is in memory goes on as before."""
        if self._clock is not None:
            self._service.clock.restore(self._clock)
        if self._seen is not None:
            self._service.presence.put_back(self._seen)
        self._service.rules.have_changed()
        self._service.deadline.doubt()
