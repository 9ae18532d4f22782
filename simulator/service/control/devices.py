"""``/_emulator/devices``: registered devices that the service plays itself, so that who develops an app needs no agent.

What a device does is done with the functions that a request of a real device ends in, but without a request: no key, no
quota, no fault, no line in the request log. All of it is timed by the service's clock.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, Field, ValidationError, model_validator
from pydantic_core import from_json
from starlette.responses import Response

from agent.wire import encoding
from agent.wire.limits import COMMAND_PAYLOAD_BYTES
from agent.wire.models import CommandResult, Items, JsonObject, PostSensorData, Sent, Text, list_faults
from simulator.fleet.signals import DeviceRandom, SignalSet, signals_of_json
from simulator.service.api.commands import IS_OPEN, end_overdue, take_result
from simulator.service.api.readings import store_reading
from simulator.service.db import one
from simulator.service.errors import ApiError, conflict, invalid_all, not_found
from simulator.service.gate import CONTROL_PREFIX
from simulator.service.http import Call, CallDep, Json, Router, answers, created, no_content

if TYPE_CHECKING:
    from simulator.service.service import Service

DEVICES_MAX: Final = 1_000
"""Scripted devices at a time."""
CATCH_UP_MAX: Final = 1_000
"""Polls or readings of one device that are made up for when the clock has jumped; earlier ones are left out."""
SEEN_EVERY_MS: Final = 30_000
"""How often a device that is there counts as seen: it is online for 120 s after that."""
SECONDS_MAX: Final = 366 * 86_400
EVERY_MIN_S: Final = 0.1
NAMED_BY: Final = "command"
"""The member of ``command_payload`` that names the command."""

Every = Annotated[float, Field(strict=False, ge=EVERY_MIN_S, le=SECONDS_MAX)]


class ScriptedAnswer(Sent):
    """What a device answers to a command, and when."""

    command: Annotated[
        Text | None,
        Field(description="The `command` of `command_payload` that is answered like this; all when it is left out."),
    ] = None
    times: Annotated[
        int | None,
        Field(ge=1, le=10**6, description="So many commands are answered like this, later ones by later answers."),
    ] = None
    status: Annotated[
        Literal["succeeded", "failed", "rejected", "never"],
        Field(description="`never`: the command is delivered, and nothing comes back."),
    ] = "succeeded"
    result: Annotated[JsonObject | None, Field(description="What is reported with it.")] = None
    error: Annotated[Text | None, Field(max_length=1000, description="Why it failed or was rejected.")] = None
    after_s: Annotated[
        float | None,
        Field(strict=False, ge=0, le=SECONDS_MAX, description="Seconds of the service's clock after the delivery."),
    ] = None

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        given: tuple[object, ...] = (self.after_s, self.result, self.error)
        if self.status == "never" and any(value is not None for value in given):
            raise ValueError("never has no result, error or after_s: leave them out")
        if self.status == "succeeded" and self.error is not None:
            raise ValueError("error belongs to failed and rejected")
        if self.result is not None and len(encoding.encode_json(self.result)) > COMMAND_PAYLOAD_BYTES:
            raise ValueError(f"result is larger than {COMMAND_PAYLOAD_BYTES} bytes")
        return self


UNKNOWN: Final = ScriptedAnswer(status="rejected", error="this device's script has no answer for the command")


class ScriptedReadings(Sent):
    """What a device sends by itself."""

    every_s: Annotated[Every, Field(description="Seconds of the service's clock between two.")]
    signals: Annotated[
        dict[Text, JsonObject],
        Field(min_length=1, max_length=50, description="Reading -> its signal, as in a scenario: docs/scenarios.md."),
    ]
    seed: Annotated[int, Field(ge=0, lt=1 << 63, description="Of the signals' chance.")] = 0


class DeviceScript(Sent):
    """A registered device, and what it does from now on."""

    device_id: Text
    answers: Annotated[
        Items[ScriptedAnswer],
        Field(
            max_length=50,
            description="For each command the first that fits; a command that none fits is rejected. Without any, "
            "every command succeeds at once.",
        ),
    ] = (ScriptedAnswer(),)
    poll_s: Annotated[
        Every | None,
        Field(
            description="Seconds of the service's clock between two polls. Without it the device is there all the "
            "time, as on a poll that is held."
        ),
    ] = None
    readings: ScriptedReadings | None = None


@dataclass(slots=True)
class _Command:
    """A command that a device has been given and has not ended."""

    answer: ScriptedAnswer
    delivered_ms: int

    @property
    def due_ms(self) -> int | None:
        """When it is answered; None for never."""
        return None if self.answer.status == "never" else self.delivered_ms + round((self.answer.after_s or 0) * 1000)


@dataclass(slots=True)
class ScriptedDevice:
    """A device with its script, and what it has done so far.

    Attributes:
        row: of the device.
        woken: its commands have changed since it looked.
        left: how often each answer may still be used; None for any number.
        delivered: commands that it was given.
        reported: results of its that the service took.
        readings: that it sent.
    """

    row: int
    script: DeviceScript
    signals: tuple[SignalSet, DeviceRandom] | None
    next_poll_ms: int | None
    next_reading_ms: int | None
    left: list[int | None]
    woken: bool = True
    delivered: int = 0
    reported: int = 0
    readings: int = 0
    open: dict[str, _Command] = field(default_factory=dict)

    def choose(self, payload: Mapping[str, Any]) -> ScriptedAnswer:
        """The answer to a command, which uses it once."""
        for place, answer in enumerate(self.script.answers):
            left = self.left[place]
            if left != 0 and answer.command in {None, payload.get(NAMED_BY)}:
                self.left[place] = None if left is None else left - 1
                return answer
        return UNKNOWN

    def next_due_ms(self, now_ms: int) -> int | None:
        """When it has something to do."""
        if self.woken and self.script.poll_s is None:
            return now_ms
        ends = (command.due_ms for command in self.open.values())
        return min((at for at in (self.next_poll_ms, self.next_reading_ms, *ends) if at is not None), default=None)

    def begin_anew(self, now_ms: int) -> None:
        """The clock was set back: what was to be done at a time is not put off until that time comes again."""
        self.woken = True
        self.next_poll_ms = None if self.next_poll_ms is None else min(self.next_poll_ms, now_ms)
        self.next_reading_ms = None if self.next_reading_ms is None else min(self.next_reading_ms, now_ms)
        for command in self.open.values():
            command.delivered_ms = min(command.delivered_ms, now_ms)

    def show(self) -> dict[str, Any]:
        """As the control paths answer it."""
        return {
            "script": self.script.model_dump(exclude_none=True),
            "delivered": self.delivered,
            "reported": self.reported,
            "readings": self.readings,
            "open": list(self.open),
        }


class ScriptedDevices:
    """All scripted devices of a service, as something that falls due."""

    def __init__(self, service: Service) -> None:
        self.by_id: dict[str, ScriptedDevice] = {}
        self._service = service
        self._ticked_ms = self._seen_ms = 0
        self._is_called = False
        service.timers.add(self.next_due_ms, self.run_due)
        service.every_tick(self.tick)
        service.on_reset(lambda _account: self.drop_missing())
        service.changes.listeners.append(self._wake)

    def put(self, script: DeviceScript) -> ScriptedDevice:
        """Have a device act by a script from now on, instead of the one that it had.

        Raises:
            ApiError: 404 ``device_not_found``; 400: a signal is wrong; 409 ``too_many_scripted_devices``.
        """
        device_id, readings, now_ms = script.device_id, script.readings, self._service.clock.now_ms()
        query = "SELECT * FROM devices WHERE id = ? AND removed_at IS NULL"
        row = one(self._service.db.sql, query, (device_id,))
        if row is None:
            raise not_found("device", device_id, "on this service")
        signals = None
        if readings is not None:
            try:
                signals = signals_of_json(readings.signals), DeviceRandom(readings.seed, row["device_identifier"])
            except ValidationError as error:
                raise invalid_all([(f"readings.signals.{name}", issue) for name, issue in list_faults(error)]) from None
        if device_id not in self.by_id and len(self.by_id) >= DEVICES_MAX:
            text = f"The service plays {DEVICES_MAX} devices at most: delete some of their scripts."
            raise conflict("too_many_scripted_devices", text)
        device = self.by_id[device_id] = ScriptedDevice(
            row=row["row"],
            script=script,
            signals=signals,
            next_poll_ms=None if script.poll_s is None else now_ms,
            next_reading_ms=None if signals is None else now_ms,
            left=[answer.times for answer in script.answers],
        )
        self._service.saw(row["row"])
        self._call_soon()
        return device

    def next_due_ms(self) -> int | None:
        """When the next one has something to do; now, where commands were sent to one."""
        now_ms = self._service.clock.now_ms()
        dues = (device.next_due_ms(now_ms) for device in self.by_id.values())
        return min((at for at in dues if at is not None), default=None)

    def run_due(self, now_ms: int) -> None:
        """Let every device do what it has to do by now."""
        for device_id, device in list(self.by_id.items()):
            for _ in range(CATCH_UP_MAX):
                due = device.next_due_ms(now_ms)
                if due is None or due > now_ms:
                    break
                with self._service.db.write() as sql:
                    row = self._row_of(device_id, device)
                    if row is None:
                        self.by_id.pop(device_id, None)
                        break
                    self._act(sql, row, device, now_ms)

    def tick(self) -> None:
        """Time has passed, or the clock was set: who is there counts as seen, and goes on after a step back."""
        now_ms = self._service.clock.now_ms()
        is_back = now_ms < self._ticked_ms
        self._ticked_ms = now_ms
        if not self.by_id or not (is_back or not 0 <= now_ms - self._seen_ms < SEEN_EVERY_MS):
            return
        self._seen_ms = now_ms
        for device in self.by_id.values():
            self._service.saw(device.row)
            if is_back:
                device.begin_anew(now_ms)
                self._call_soon()

    def _wake(self, row: int) -> None:
        """Commands of a device have changed: it sees that at once, as one that holds a poll."""
        for device in self.by_id.values():
            if device.row == row:
                device.woken = True
                self._call_soon()

    def _call_soon(self) -> None:
        """After the write that is going on; once, however many devices are woken in it."""
        if not self._is_called:
            self._is_called = True
            asyncio.get_running_loop().call_soon(self._run_now)

    def _run_now(self) -> None:
        self._is_called = False
        self._service.timers.run_due(self._service.clock.now_ms())

    def drop_missing(self) -> None:
        """Devices may have been deleted or replaced: end the scripts of those that are not there any more."""
        self.by_id = {one: device for one, device in self.by_id.items() if self._row_of(one, device) is not None}

    def _row_of(self, device_id: str, device: ScriptedDevice) -> sqlite3.Row | None:
        query = "SELECT * FROM devices WHERE id = ? AND row = ? AND removed_at IS NULL"
        return one(self._service.db.sql, query, (device_id, device.row))

    def _act(self, sql: sqlite3.Connection, row: sqlite3.Row, device: ScriptedDevice, now_ms: int) -> None:
        polls = device.next_poll_ms is not None and device.next_poll_ms <= now_ms
        if polls or (device.next_poll_ms is None and device.woken):
            self._poll(sql, row, device, now_ms)
        for command_id, command in list(device.open.items()):
            answer, due_ms = command.answer, command.due_ms
            if answer.status == "never" or due_ms is None or due_ms > now_ms:
                continue
            del device.open[command_id]
            said = CommandResult(status=answer.status, result=answer.result, error=answer.error)
            woken = device.woken
            with contextlib.suppress(ApiError):  # it has expired, or was deleted, meanwhile
                take_result(self._service, sql, row, command_id, said, now_ms)
                device.reported += 1
                device.woken = woken
                self._service.saw(device.row)
        if device.next_reading_ms is not None and device.next_reading_ms <= now_ms:
            self._read(sql, row, device, device.next_reading_ms, now_ms)

    def _poll(self, sql: sqlite3.Connection, row: sqlite3.Row, device: ScriptedDevice, now_ms: int) -> None:
        """Take the device's open commands, and choose an answer to each."""
        service = self._service
        end_overdue(service, now_ms)
        service.saw(device.row)
        device.next_poll_ms = _after(device.next_poll_ms, device.script.poll_s, now_ms)
        query = f"SELECT row, id, status, command_payload FROM commands WHERE device = ? AND {IS_OPEN} ORDER BY row"
        listed = sql.execute(query, (device.row,)).fetchall()
        device.open = {one["id"]: device.open[one["id"]] for one in listed if one["id"] in device.open}
        queued = [(now_ms, one["row"]) for one in listed if one["status"] == "queued"]
        if queued:
            sql.executemany("UPDATE commands SET status = 'delivered', delivered_at = ? WHERE row = ?", queued)
            service.changed(device.row)
        for command in listed:
            if command["id"] not in device.open:
                device.delivered += 1
                answer = device.choose(from_json(command["command_payload"]))
                device.open[command["id"]] = _Command(answer, now_ms)
        device.woken = False  # the device itself has changed them, and need not look again

    def _read(self, sql: sqlite3.Connection, row: sqlite3.Row, device: ScriptedDevice, at_ms: int, now_ms: int) -> None:
        """Send the reading of one instant."""
        readings = device.script.readings
        if device.signals is None or readings is None:
            return
        device.next_reading_ms = _after(at_ms, readings.every_s, now_ms)
        signals, chance = device.signals
        values = signals.read(chance, at_ms / 1000)
        if values:
            reading = PostSensorData(device_id=row["id"], sensor_data=dict(values), recorded_at=at_ms)
            store_reading(self._service, sql, row, reading, now_ms)
            device.readings += 1


def _after(at_ms: int | None, every_s: float | None, now_ms: int) -> int | None:
    """The instant after ``at_ms``, not further behind than is made up for."""
    if at_ms is None or every_s is None:
        return None
    every_ms = max(1, round(every_s * 1000))
    behind = (now_ms - at_ms) // every_ms
    return at_ms + every_ms * max(1, behind - CATCH_UP_MAX + 1)


# --- the control paths --------------------------------------------------------------------------------------------

router = Router("scripted devices")
_PATH: Final = f"{CONTROL_PREFIX}devices"
_ONE: Final = f"{_PATH}/{{device_id}}"


class Scripted(BaseModel):
    """A device that the service plays: its script, how often it did what, and the commands that it has not ended."""

    script: DeviceScript
    delivered: int
    reported: int
    readings: int
    open: list[str]


class ScriptedList(BaseModel):
    """Every device that the service plays."""

    data: list[Scripted]


@router.post(
    _PATH,
    status_code=201,
    response_model=Scripted,
    responses={200: {"model": Scripted, "description": "Instead of another script"}, **answers(404, 409)},
)
async def script_device(call: CallDep, body: DeviceScript) -> Response:
    """Have a registered device act by a script: answer commands, send readings. A second script replaces the first."""
    scripted = call.service.scripted
    is_new = body.device_id not in scripted.by_id
    record = scripted.put(body).show()
    return created(record, f"{_PATH}/{body.device_id}") if is_new else Json(record)


@router.get(_PATH, response_model=ScriptedList)
async def list_scripted_devices(call: CallDep) -> Response:
    """Every scripted device, with what it has done."""
    scripted = call.service.scripted
    scripted.drop_missing()
    return Json({"data": [device.show() for device in scripted.by_id.values()]})


@router.get(_ONE, response_model=Scripted, responses=answers(404))
async def show_scripted_device(call: CallDep, device_id: str) -> Response:
    """One scripted device, with what it has done."""
    return Json(_of(call, device_id).show())


@router.delete(_ONE, status_code=204, responses=answers(404))
async def end_script(call: CallDep, device_id: str) -> Response:
    """End a device's script; the device stays registered, and its commands stay open."""
    _of(call, device_id)
    del call.service.scripted.by_id[device_id]
    return no_content()


def _of(call: Call, device_id: str) -> ScriptedDevice:
    found = call.service.scripted.by_id.get(device_id)
    if found is None:
        raise not_found("scripted_device", device_id, "on this service")
    return found
