"""``/_emulator/devices``: devices that the service plays itself, so that who develops an app needs no agent."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import Connection, Row
from typing_extensions import TypedDict

from agent.wire.base import JsonObject
from simulator.service.addresses import CONTROL_PREFIX
from simulator.service.answers import NO_CONTENT, Answer, created, ok
from simulator.service.call import Call
from simulator.service.endpoints import ERROR, Endpoint, Reply
from simulator.service.errors import NotFound, invalid, invalid_all, not_found
from simulator.service.scripted.devices import ScriptedDevice
from simulator.service.scripted.script import DeviceScript, SignalFaultsError, Signals
from simulator.service.storage import devices

_TAG: Final = "control"
_PATH: Final = f"{CONTROL_PREFIX}devices"
_ONE: Final = f"{_PATH}/{{device_id}}"


class ScriptedDeviceRecord(TypedDict):
    """A device that the service plays: its script, how often it did what, and the commands that it has not ended."""

    script: JsonObject
    delivered: int
    reported: int
    readings: int
    open: list[str]


class ScriptedDevicesRecord(TypedDict):
    """Every device that the service plays."""

    data: list[ScriptedDeviceRecord]


async def script_device(call: Call) -> Answer:
    """Have a registered device act by a script from now on."""
    call.query(frozenset())
    script = await call.message(DeviceScript)

    def find(connection: Connection) -> Row[Any]:
        return devices.find_anywhere(connection, script.device_id)

    row = await call.service.look_up(find)
    signals = _signals(call, script, row.device_identifier)
    scripted = call.service.scripted
    is_new = scripted.put(row.manufacturer_seq, row.seq, script, signals)
    record = _show(_of(call, script.device_id))
    return created(record, f"{_PATH}/{script.device_id}") if is_new else ok(record)


def _signals(call: Call, script: DeviceScript, name: str) -> Signals | None:
    readings = script.readings
    if readings is None:
        return None
    make = call.service.config.make_signals
    if make is None:
        raise invalid("readings", "this service was started as a library without make_signals: it has no signals")
    try:
        return make(readings.signals, name, readings.seed)
    except SignalFaultsError as error:
        raise invalid_all([(f"readings.signals.{field}", issue) for field, issue in error.faults]) from None


async def list_scripted(call: Call) -> Answer:
    """Every scripted device."""
    call.query(frozenset())
    return ok({"data": [_show(device) for device in call.service.scripted]})


async def show_scripted(call: Call) -> Answer:
    """One scripted device."""
    call.query(frozenset())
    return ok(_show(_of(call, call.path("device_id"))))


async def end_script(call: Call) -> Answer:
    """End a device's script; the device stays registered, and its commands stay open."""
    call.query(frozenset())
    _of(call, call.path("device_id"))
    call.service.scripted.remove(call.path("device_id"))
    return NO_CONTENT


def _of(call: Call, device_id: str) -> ScriptedDevice:
    found = call.service.scripted.find(device_id)
    if found is None:
        error = not_found("scripted_device", device_id)
        raise NotFound(error.error, f"The device {device_id[:80]!r} has no script.")
    return found


def _show(device: ScriptedDevice) -> ScriptedDeviceRecord:
    return {
        "script": device.script.model_dump(exclude_none=True),
        "delivered": device.delivered,
        "reported": device.reported,
        "readings": device.readings,
        "open": list(device.open),
    }


_NO_SCRIPT: Final = Reply(404, "`scripted_device_not_found`", ERROR)

ENDPOINTS: Final = (
    Endpoint(
        "POST",
        _PATH,
        script_device,
        "script_device",
        "Have a registered device act by a script: answer commands, send readings. A second script replaces the first",
        _TAG,
        (
            Reply(201, "It acts from now on", ScriptedDeviceRecord, located=True),
            Reply(200, "It acts by this script instead of another one", ScriptedDeviceRecord),
            Reply(400, "The script is not valid", ERROR),
            Reply(404, "`device_not_found`", ERROR),
            Reply(409, "`too_many_scripted_devices`", ERROR),
        ),
        body=(DeviceScript,),
        public=True,
    ),
    Endpoint(
        "GET",
        _PATH,
        list_scripted,
        "list_scripted_devices",
        "Every scripted device, with what it has done",
        _TAG,
        (Reply(200, "All of them", ScriptedDevicesRecord), Reply(400, "The query is not valid", ERROR)),
        public=True,
    ),
    Endpoint(
        "GET",
        _ONE,
        show_scripted,
        "show_scripted_device",
        "One scripted device, with what it has done",
        _TAG,
        (Reply(200, "The device", ScriptedDeviceRecord), Reply(400, "The query is not valid", ERROR), _NO_SCRIPT),
        public=True,
    ),
    Endpoint(
        "DELETE",
        _ONE,
        end_script,
        "end_script",
        "End a device's script; the device stays registered",
        _TAG,
        (Reply(204, "Done"), Reply(400, "The query is not valid", ERROR), _NO_SCRIPT),
        public=True,
    ),
)
