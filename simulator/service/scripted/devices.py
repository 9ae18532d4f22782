"""Plays scripted devices: polls, results and readings, at instants of the service's clock.

What a device does is done inside the service, with the operations that a request of a real device has carried out, but
without a request: no key, no quota, no fault, no line in the request log.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeVar

from pydantic_core import from_json, to_json
from sqlalchemy import Connection

from agent.wire.commands import CommandResult
from agent.wire.limits import OPEN_COMMANDS_MAX
from simulator.service.clock import SettableClock
from simulator.service.errors import Conflict, NotFound, ServiceError, Unavailable
from simulator.service.failure_log import already_logged
from simulator.service.ids import IdSource
from simulator.service.ingest import IncomingReading, ReadingStore, Stored
from simulator.service.presence import Presence
from simulator.service.scripted.script import UNKNOWN, Chooser, DeviceScript, ScriptedAnswer, Signals
from simulator.service.storage import commands, devices
from simulator.service.storage.commands import CommandRecord
from simulator.service.storage.lists import Window
from simulator.service.storage.writer import Writer
from simulator.service.waiting import Waiters

log = logging.getLogger(__name__)

T = TypeVar("T")

DEVICES_MAX: Final = 1_000
"""Scripted devices at a time."""
CATCH_UP_MAX: Final = 1_000
"""Polls or readings of one device that are made up for when the clock has jumped; earlier ones are left out."""
SEEN_EVERY_MS: Final = 30_000
"""How often a device that is there counts as seen: it is online for 120 s after that."""
_ROUNDS_MAX: Final = 200
_ALL_OPEN: Final = Window(OPEN_COMMANDS_MAX, ascending=True, after=None)


@dataclass(slots=True)
class _Command:
    """A command that a device has been given and has not ended."""

    answer: ScriptedAnswer | None
    due_ms: int | None
    polls: int = 0
    in_progress: bool = False


@dataclass(slots=True)
class ScriptedDevice:
    """A device with its script, and what it has done so far.

    Attributes:
        account: row of the account that the device belongs to.
        signals: what its sensors read; None when it sends nothing.
        delivered: commands that it was given.
        reported: results of its that the service took.
        readings: that it sent.
    """

    account: int
    device_seq: int
    script: DeviceScript
    signals: Signals | None
    next_poll_ms: int | None
    next_reading_ms: int | None
    chooser: Chooser
    woken: bool = True
    delivered: int = 0
    reported: int = 0
    readings: int = 0
    open: dict[str, _Command] = field(default_factory=dict)

    def begin_anew(self, now_ms: int) -> None:
        """The clock was set back: what was to be done at a time is not put off until that time comes again."""
        self.woken = True
        self.next_poll_ms = None if self.next_poll_ms is None else min(self.next_poll_ms, now_ms)
        self.next_reading_ms = None if self.next_reading_ms is None else min(self.next_reading_ms, now_ms)
        for command in self.open.values():
            latest_ms = _due_ms(command.answer, now_ms)
            if command.due_ms is not None and latest_ms is not None:
                command.due_ms = min(command.due_ms, latest_ms)

    def next_due_ms(self) -> int | None:
        """When it has something to do, if nothing is sent to it before."""
        ends = (command.due_ms for command in self.open.values())
        return min((at for at in (self.next_poll_ms, self.next_reading_ms, *ends) if at is not None), default=None)


class ScriptedDevices:
    """All scripted devices, as something that falls due. Only the event loop touches it.

    Args:
        clock, ids, writer, waiters, presence, store_readings: the service's.
        look_up: a read of a few rows.
        wake_devices: called with the rows of devices that were sent commands.
    """

    def __init__(
        self,
        *,
        clock: SettableClock,
        ids: IdSource,
        writer: Writer,
        waiters: Waiters,
        presence: Presence,
        store_readings: ReadingStore,
        look_up: Callable[[Callable[[Connection], Any]], Awaitable[Any]],
        wake_devices: Callable[[Iterable[int]], None],
    ) -> None:
        self._clock = clock
        self._ids = ids
        self._writer = writer
        self._waiters = waiters
        self._presence = presence
        self._store_readings = store_readings
        self._look_up = look_up
        self._wake_devices = wake_devices
        self._devices: dict[str, ScriptedDevice] = {}
        self._acting = asyncio.Lock()
        self._news = asyncio.Event()
        self._ticked_ms = 0
        self._seen_ms = 0

    def __iter__(self) -> Iterator[ScriptedDevice]:
        return iter(list(self._devices.values()))

    def find(self, device_id: str) -> ScriptedDevice | None:
        """The scripted device with this id."""
        return self._devices.get(device_id)

    def put(self, account: int, device_seq: int, script: DeviceScript, signals: Signals | None) -> bool:
        """Have a device act by a script from now on, instead of the one that it had.

        Returns:
            Whether it had none.

        Raises:
            Conflict: ``too_many_scripted_devices``.
        """
        is_new = script.device_id not in self._devices
        if is_new and len(self._devices) >= DEVICES_MAX:
            raise Conflict(
                "too_many_scripted_devices",
                f"The service plays {DEVICES_MAX} devices at most: delete some of their scripts.",
            )
        self.remove(script.device_id)
        now_ms = self._clock.now_ms()
        self._devices[script.device_id] = ScriptedDevice(
            account=account,
            device_seq=device_seq,
            script=script,
            signals=signals,
            next_poll_ms=None if script.poll_s is None else now_ms,
            next_reading_ms=None if signals is None else now_ms,
            chooser=Chooser(script.answers),
        )
        self._presence.touch(device_seq, now_ms)
        self._waiters.watchers[device_seq] = self._wake
        self._news.set()
        return is_new

    def remove(self, device_id: str) -> bool:
        """End a script; whether there was one."""
        device = self._devices.pop(device_id, None)
        if device is not None:
            self._waiters.watchers.pop(device.device_seq, None)
        return device is not None

    async def refresh(self) -> None:
        """Devices may have been deleted or replaced: end the scripts of those that are not there any more."""
        for device_id, device in list(self._devices.items()):
            try:
                row = await self._look_up(partial(devices.find, manufacturer_seq=device.account, device_id=device_id))
            except NotFound:
                row = None
            if row is None or row.seq != device.device_seq:
                self.remove(device_id)

    def next_due_ms(self) -> int | None:
        """When the next one has something to do; now, where commands were sent to one."""
        if not self._devices:
            return None
        if any(device.woken and device.next_poll_ms is None for device in self._devices.values()):
            return self._clock.now_ms()
        return min((at for at in (d.next_due_ms() for d in self._devices.values()) if at is not None), default=None)

    async def run_due(self, _now_ms: int) -> None:
        """Let every device do what it has to do by now."""
        async with self._acting:
            for _ in range(_ROUNDS_MAX):
                now_ms = self._clock.now_ms()  # it may be set back between two rounds
                due = self.next_due_ms()
                if due is None or due > now_ms:
                    return
                await self._act(now_ms)
        log.warning("scripted devices answer each other's commands without an end: they go on at the next tick")

    async def finish(self) -> None:
        """Until what they are doing right now is done."""
        async with self._acting:
            pass

    async def serve(self) -> None:
        """Let devices see at once what is sent to them, as those that hold a poll do; runs until it is cancelled."""
        while True:
            await self._news.wait()
            self._news.clear()
            try:
                await self.run_due(self._clock.now_ms())
            except Exception as exc:  # a full disk must not end all of them: the tick tries again
                if not already_logged(exc):
                    log.exception("scripted devices failed; it is tried again")

    def tick(self, now_ms: int) -> None:
        """Time has passed, or the clock was set: who is there counts as seen, and goes on after a step back.

        Called twice a second, and when the clock was set.
        """
        if not self._devices:
            self._ticked_ms = now_ms
            return
        is_back = now_ms < self._ticked_ms
        self._ticked_ms = now_ms
        if not is_back and 0 <= now_ms - self._seen_ms < SEEN_EVERY_MS:
            return
        self._seen_ms = now_ms
        for device in self._devices.values():
            self._presence.touch(device.device_seq, now_ms)
            if is_back:
                device.begin_anew(now_ms)
                self._news.set()

    def _wake(self, device_seq: int) -> None:
        for device in self._devices.values():
            if device.device_seq == device_seq:
                device.woken = True
        self._news.set()

    async def _act(self, now_ms: int) -> None:
        for device in list(self._devices.values()):
            polls = device.next_poll_ms is not None and device.next_poll_ms <= now_ms
            listens = device.next_poll_ms is None and device.woken
            if polls or listens:
                await self._unless_deleted(device, self._poll(device, now_ms))
            if any(command.due_ms is not None and command.due_ms <= now_ms for command in device.open.values()):
                await self._unless_deleted(device, self._report_due(device, now_ms))
        await self._read(now_ms)

    async def _unless_deleted(self, device: ScriptedDevice, acting: Awaitable[None]) -> None:
        """Do it; a device that is not registered any more has no script from then on."""
        try:
            await acting
        except NotFound:
            if self._devices.get(device.script.device_id) is device:
                self.remove(device.script.device_id)

    async def _poll(self, device: ScriptedDevice, now_ms: int) -> None:
        """Poll the device's open commands, and choose an answer to each."""
        device.woken = False
        try:
            listed = await self._list_open(device, now_ms)
        except Unavailable:
            device.woken = True
            raise
        self._presence.touch(device.device_seq, now_ms)
        device.next_poll_ms = _after(device.next_poll_ms, device.script.poll_s, now_ms)
        for gone in device.open.keys() - {command_id for command_id, _ in listed}:
            del device.open[gone]
        for command_id, payload in listed:
            if command_id not in device.open:
                device.delivered += 1
                answer = device.chooser.choose(payload)
                device.open[command_id] = _Command(answer, _due_ms(answer, now_ms))
                if answer is not None and answer.in_progress:
                    await self._report(device, command_id, CommandResult(status="in_progress"), now_ms)
            command = device.open.get(command_id)
            if command is None:
                continue
            command.polls += 1
            wanted = None if command.answer is None else command.answer.after_polls
            if wanted is not None and command.polls >= wanted:
                command.due_ms = now_ms

    async def _list_open(self, device: ScriptedDevice, now_ms: int) -> list[tuple[str, Any]]:
        """(id, payload) of the open commands, oldest first; those that were queued are delivered."""
        device_id, account = device.script.device_id, device.account

        def look(connection: Connection) -> list[Any]:
            row = devices.find(connection, account, device_id)
            return list(commands.list_page(connection, row.seq, commands.OPEN, _ALL_OPEN, ends_after_ms=now_ms))

        rows = await self._look_up(look)
        if any(row.delivered_at is None for row in rows):

            def deliver(connection: Connection) -> list[Any]:
                found = look(connection)
                commands.deliver(connection, found, now_ms)
                return found

            rows = await self._writer.submit(deliver)
            self._has_changed(device)
        return [(row.id, from_json(row.command_payload)) for row in rows]

    def _has_changed(self, device: ScriptedDevice) -> None:
        """Polls of others see it; the device itself did it, and need not look again."""
        woken = device.woken
        self._waiters.wake(device.device_seq)
        device.woken = woken

    async def _report_due(self, device: ScriptedDevice, now_ms: int) -> None:
        for command_id, command in list(device.open.items()):
            if command.due_ms is None or command.due_ms > now_ms:
                continue
            result = UNKNOWN if command.answer is None else command.answer.report()
            if result is not None:
                await self._report(device, command_id, result, now_ms)
                device.open.pop(command_id, None)

    async def _report(self, device: ScriptedDevice, command_id: str, result: CommandResult, now_ms: int) -> None:
        device_id, account = device.script.device_id, device.account

        def report(connection: Connection) -> CommandRecord | ServiceError:
            row = devices.find(connection, account, device_id)
            try:
                return commands.report(connection, row, command_id, result, now_ms)
            except (Conflict, NotFound) as error:  # it has expired, or was deleted, meanwhile
                return error

        answered = await self._writer.submit(report)
        if isinstance(answered, CommandRecord):
            device.reported += 1
            self._presence.touch(device.device_seq, now_ms)
            self._has_changed(device)

    async def _read(self, now_ms: int) -> None:
        """One reading of each device that has one due, in one write."""
        due: list[tuple[ScriptedDevice, IncomingReading]] = []
        for device in self._devices.values():
            at_ms = device.next_reading_ms
            if device.signals is None or device.script.readings is None or at_ms is None or at_ms > now_ms:
                continue
            values = device.signals.read(at_ms / 1000)
            if values:
                due.append((device, self._reading(device, values, at_ms, now_ms)))
            else:
                device.next_reading_ms = _after(at_ms, device.script.readings.every_s, now_ms)
        if not due:
            return
        items = [item for _, item in due]
        outcomes: list[Stored | ServiceError] = await self._writer.submit(lambda c: self._store_readings(c, items))
        for (device, item), outcome in zip(due, outcomes, strict=True):
            if isinstance(outcome, ServiceError):
                self.remove(device.script.device_id)
                continue
            device.readings += 1
            every_s = None if device.script.readings is None else device.script.readings.every_s
            device.next_reading_ms = _after(item.recorded_at, every_s, now_ms)
            self._presence.touch(device.device_seq, now_ms)
            if outcome.changed:
                self._wake_devices(outcome.changed)

    def _reading(self, device: ScriptedDevice, values: Any, at_ms: int, now_ms: int) -> IncomingReading:
        return IncomingReading(
            manufacturer_seq=device.account,
            device_id=device.script.device_id,
            id=self._ids.next(),
            recorded_at=at_ms,
            received_at=now_ms,
            sensor_data=to_json(dict(values)).decode(),
        )


def _due_ms(answer: ScriptedAnswer | None, now_ms: int) -> int | None:
    """When a command that is delivered now is answered; None where polls say it, or nothing does."""
    if answer is None:
        return now_ms
    if answer.status == "never" or answer.after_polls is not None:
        return None
    return now_ms + round((answer.after_s or 0) * 1000)


def _after(at_ms: int | None, every_s: float | None, now_ms: int) -> int | None:
    """The instant after ``at_ms``, not further behind than is made up for."""
    if at_ms is None or every_s is None:
        return None
    every_ms = max(1, round(every_s * 1000))
    behind = (now_ms - at_ms) // every_ms
    return at_ms + every_ms * max(1, behind - CATCH_UP_MAX + 1)
