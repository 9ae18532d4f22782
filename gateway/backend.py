"""What the fronts call for a device, over HTTP and MQTT alike: its commands, readings and results, stored and read."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar, cast

from agent.core.values import JsonObject
from agent.errors import StorageError
from agent.ports import Clock
from agent.wire.commands import CommandResult
from agent.wire.limits import ONLINE_WITHIN_S
from agent.wire.secret import mask, mask_json
from gateway.command_cache import CommandCache
from gateway.ports import (
    SHOWN_BYTES,
    SHOWN_MAX,
    CommandTexts,
    Hints,
    NewReading,
    OpenCommands,
    Transport,
    UnknownDevice,
)
from gateway.store.gateway_store import GatewayStore
from gateway.store.service import StoreWriter
from gateway.store.values import ListRead, Presence, Reconciled, StoredCommand

_In = TypeVar("_In")
_Out = TypeVar("_Out")


class Backend:
    """Implements :class:`~gateway.ports.DeviceBackend` on the store and the cache of open commands.

    Args:
        store: where everything is kept.
        cache: the open commands.
        clock: for when things came.
        hints: poll interval and quota state for a device.
        on_arrived: called when a device that was away is back: its commands should be fetched soon.
        on_result, on_reading: called when something new waits for the service.
    """

    def __init__(
        self,
        store: StoreWriter,
        cache: CommandCache,
        clock: Clock,
        *,
        hints: Callable[[str], Hints],
        on_arrived: Callable[[str], None] = lambda _device_id: None,
        on_result: Callable[[], None] = lambda: None,
        on_reading: Callable[[], None] = lambda: None,
    ) -> None:
        self._store = store
        self._cache = cache
        self._clock = clock
        self._hints = hints
        self._on_arrived = on_arrived
        self._on_result = on_result
        self._on_reading = on_reading
        self._lock = threading.Lock()
        self._unknown: set[str] = set()
        self._presence: dict[str, Presence] = {}
        self._unsaved: set[str] = set()

    def begin(self) -> None:
        """Load presence and open commands of an earlier process.

        Raises:
            StorageError: it cannot be read.
        """
        presence, commands = self._store.call(lambda store: (store.presence(), store.commands.open_ones()))
        with self._lock:
            self._presence.update(presence)
        self._cache.load(commands)

    # --- for the fronts -------------------------------------------------------------------------------------------

    def open_commands(self, device_id: str) -> OpenCommands:
        """The device's open commands, from memory. See :class:`gateway.ports.DeviceBackend`."""
        self._refuse_unknown(device_id)
        return self._cache.get(device_id)

    def watch(self, device_id: str, on_change: Callable[[], None]) -> Callable[[], None]:
        """Have ``on_change`` called after each change of the device's open commands, from a thread of the engine."""
        return self._cache.watch(device_id, on_change)

    def watch_all(self, on_change: Callable[[str], None]) -> Callable[[], None]:
        """As :meth:`watch`, for every device; ``on_change`` is called with its id."""
        return self._cache.watch_all(on_change)

    def busy_devices(self) -> list[str]:
        """The devices with open commands, from memory. See :class:`gateway.ports.DeviceBackend`."""
        return self._cache.devices()

    def commands_of(self, device_id: str) -> Future[CommandTexts]:
        """The device's commands that the gateway remembers, concluded ones too; from the store."""
        return self._texts(lambda store: store.commands.of_device(device_id, SHOWN_MAX, SHOWN_BYTES))

    def command_of(self, device_id: str, command_id: str) -> Future[CommandTexts]:
        """The texts of one command; empty when it is not known. See :class:`gateway.ports.DeviceBackend`."""
        return self._texts(lambda store: store.commands.one(device_id, command_id))

    def canceled_of(self, device_id: str, command_ids: Collection[str]) -> Future[tuple[JsonObject, ...]]:
        """The records of those of these commands that the service has canceled; from the store."""
        return self._store.submit(
            lambda store: tuple(command.record for command in store.commands.canceled_of(device_id, command_ids))
        )

    def take_readings(self, device_id: str, readings: Sequence[NewReading]) -> Future[int]:
        """Keep readings until the service has them; the future's value is how many of them were new."""
        fault = self._fault_of(device_id)
        if fault is not None:
            return _failed(fault)
        now_s = self._clock.now().wall_s

        def done(new: int) -> int:
            if new:
                self._on_reading()
            return new

        return _then(self._store.submit(lambda store: store.readings.take(device_id, readings, now_s)), done)

    def take_result(self, device_id: str, command_id: str, result: CommandResult) -> Future[JsonObject]:
        """Keep a result (or ``in_progress``) until the service has it; the value is the command record afterwards."""
        fault = self._fault_of(device_id)
        if fault is not None:
            return _failed(fault)
        now_s = self._clock.now().wall_s

        error = None if result.error is None else mask(result.error)
        result = result.model_copy(update={"result": mask_json(result.result), "error": error})

        def work(store: GatewayStore) -> JsonObject:
            record = store.commands.take_result(device_id, command_id, result, now_s)
            self._show(store, device_id)
            return record

        def done(record: JsonObject) -> JsonObject:
            self._on_result()
            return record

        return _then(self._store.submit(work), done)

    def seen(self, device_id: str, transport: Transport, *, online: bool = True) -> None:
        """Note the device's sign of life; kept in memory and saved once in a while."""
        now_s = self._clock.now().wall_s
        with self._lock:
            before = self._presence.get(device_id)
            self._presence[device_id] = Presence(transport, online, now_s)
            self._unsaved.add(device_id)
        if online and (before is None or not before.online or now_s - before.seen_wall_s > ONLINE_WITHIN_S):
            self._on_arrived(device_id)

    def hints(self, device_id: str) -> Hints:
        """Poll interval and quota state for the device. See :class:`gateway.ports.DeviceBackend`."""
        return self._hints(device_id)

    # --- for the engine -------------------------------------------------------------------------------------------

    def left_out(self, device_id: str, listed: Collection[str]) -> list[str]:
        """Ids of commands that are open here and missing on the service's list: the service may have canceled them."""
        return [str(record["id"]) for record in self._cache.get(device_id).records if record["id"] not in listed]

    def take_listed(self, device_id: str, listed: Sequence[StoredCommand], look: ListRead) -> Reconciled:
        """The service lists these commands for a device, and maybe others; they are kept when this returns.

        Raises:
            StorageError: nothing was kept.
        """
        self.set_known(device_id, known=True)
        now_s = self._clock.now().wall_s

        def work(store: GatewayStore) -> Reconciled:
            found = store.commands.take_listed(device_id, listed, now_s, look)
            store.after_commit(lambda: _put(self._cache, device_id, found.open))
            return found

        return self._store.call(work)

    def finish_list(
        self, device_id: str, listed: Collection[str], look: ListRead, canceled: Sequence[StoredCommand] = ()
    ) -> int:
        """The whole list was read; how many commands have ended by it.

        Args:
            device_id: the device.
            listed: every id on the list.
            look: what kind of list it is.
            canceled: what is not on the list any more because it was canceled, as the service says.

        Raises:
            StorageError: nothing was kept; ask the service again later.
        """
        now_s = self._clock.now().wall_s

        def work(store: GatewayStore) -> int:
            gone = store.commands.finish_list(device_id, listed, now_s, canceled, look)
            self._show(store, device_id)
            return gone

        return self._store.call(work)

    def take_pushed(self, command: StoredCommand, at_s: float | None = None) -> Reconciled:
        """Take a command that the service sent on its own.

        Args:
            command: it was sent just now.
            at_s: this instant on the service's clock, seconds since the epoch; None when it is not known.

        Raises:
            StorageError: it was not kept.
        """
        now_s = self._clock.now().wall_s

        def work(store: GatewayStore) -> Reconciled:
            found = store.commands.admit(command, now_s, at_s)
            store.after_commit(lambda: _put(self._cache, command.device_id, found.open))
            return found

        return self._store.call(work)

    def expire(self, service_now_s: float) -> None:
        """Close the commands that have expired.

        Raises:
            StorageError: nothing was closed.
        """
        now_s = self._clock.now().wall_s

        def work(store: GatewayStore) -> None:
            for device_id in store.commands.expire(service_now_s, now_s):
                self._show(store, device_id)

        self._store.call(work)

    def set_known(self, device_id: str, *, known: bool) -> None:
        """Whether the service knows the device."""
        with self._lock:
            if known:
                self._unknown.discard(device_id)
            else:
                self._unknown.add(device_id)

    def serve_only(self, device_ids: Collection[str]) -> None:
        """Keep the state of these devices, which have a token here, and forget that of others."""
        with self._lock:
            for device_id in [each for each in self._presence if each not in device_ids]:
                del self._presence[device_id]
            self._unsaved &= self._presence.keys()
            self._unknown &= set(device_ids)

    def unknown_devices(self) -> list[str]:
        """The devices that have a token here and are not known to the service."""
        with self._lock:
            return sorted(self._unknown)

    def online(self, within_s: float) -> int:
        """How many devices were seen within this time and did not sign off, seconds."""
        since_s = self._clock.now().wall_s - within_s
        with self._lock:
            return sum(seen.online and seen.seen_wall_s >= since_s for seen in self._presence.values())

    def save_presence(self) -> None:
        """Save the presence of devices seen since the last call.

        Raises:
            StorageError: it is tried again with the next call.
        """
        with self._lock:
            unsaved = {each: self._presence[each] for each in self._unsaved if each in self._presence}
            self._unsaved.clear()
        if not unsaved:
            return
        try:
            self._store.call(lambda store: store.put_presence(unsaved))
        except StorageError:
            with self._lock:
                self._unsaved |= unsaved.keys()
            raise

    # --- inside ---------------------------------------------------------------------------------------------------

    def _texts(self, read: Callable[[GatewayStore], Sequence[tuple[str, float | None]]]) -> Future[CommandTexts]:
        return self._store.submit(lambda store: CommandTexts(tuple(read(store)), self._cache.service_now()))

    def _show(self, store: GatewayStore, device_id: str) -> None:
        now_open = store.commands.open_of(device_id)
        store.after_commit(lambda: _put(self._cache, device_id, now_open))

    def _fault_of(self, device_id: str) -> UnknownDevice | None:
        with self._lock:
            is_unknown = device_id in self._unknown
        if not is_unknown:
            return None
        # It may have been registered meanwhile: the next look at the service will show.
        self._on_arrived(device_id)
        text = f"the service does not know device {device_id!r}: register it, or take its token back"
        return UnknownDevice(text)

    def _refuse_unknown(self, device_id: str) -> None:
        fault = self._fault_of(device_id)
        if fault is not None:
            raise fault


def _put(cache: CommandCache, device_id: str, commands: Sequence[StoredCommand]) -> None:
    cache.put(device_id, commands)


def _failed(error: Exception) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_exception(error)
    return future


def _then(first: Future[_In], follow: Callable[[_In], _Out]) -> Future[_Out]:
    """A future for what ``follow`` makes of the first one's result; errors pass through."""
    second: Future[_Out] = Future()

    def done(ended: Future[_In]) -> None:
        error = ended.exception()
        result = follow(ended.result()) if error is None else None
        if not second.set_running_or_notify_cancel():
            return  # the device hung up; its data is kept all the same
        if error is None:
            second.set_result(cast("_Out", result))
        else:
            second.set_exception(error)

    first.add_done_callback(done)
    return second
