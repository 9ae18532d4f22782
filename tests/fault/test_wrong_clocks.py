"""A device whose wall clock is wrong, jumps, or is set late, on virtual time: every row is right or flagged.

The device is the agent's own parts on its real store; the service is behind httpx and tells its ``Date``.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from email.utils import formatdate
from pathlib import Path
from typing import Any

import httpx
import pytest

from agent.adapters.discovery import Discovery
from agent.adapters.http_source import HttpSource
from agent.adapters.http_uplink import HttpUplink
from agent.adapters.sqlite_store import SqliteStore
from agent.core.outbox import Bounds
from agent.core.poll_interval import PollIntervals
from agent.core.timekeeping import DEVICE_WALL_S, TIME_UNKNOWN
from agent.core.values import Moment
from agent.runtime.service_clock import ServiceClock
from agent.wire.device_client import DeviceClient
from agent.wire.times import parse_time, to_rfc3339
from tests.factories import make_command, make_entry
from tests.fault.virtual_device import VirtualDevice

pytestmark = pytest.mark.long

TRUE_S = 1_767_225_600.37
HOUR_S, DAY_S, YEAR_S = 3600.0, 86_400.0, 365.25 * 86_400.0
SHIFTS = {
    "1970": -TRUE_S + 17.0,
    "two weeks back": -14 * DAY_S,
    "+50 years": 50 * YEAR_S,
    "-1 h": -HOUR_S,
    "right": 0.0,
}


class World:
    """True time, the device's clocks in it, and the service."""

    def __init__(self, shift_s: float) -> None:
        self.elapsed_s = 0.0
        self.shift_s = shift_s
        self.boots = 1
        self._boot_at_s = -10.0
        self.is_up = True
        self.tells_time = True
        self.stored: dict[int, tuple[float | None, dict[str, float]]] = {}
        self.commands: dict[str, dict[str, Any]] = {}
        self.results: list[tuple[str, str, str]] = []
        self.posts = 0

    @property
    def true_s(self) -> float:
        return TRUE_S + self.elapsed_s

    def now(self) -> Moment:
        return Moment(self.elapsed_s - self._boot_at_s, self.true_s + self.shift_s, f"boot-{self.boots}")

    def reboot(self, off_s: float, shift_s: float) -> None:
        """Power off for so long; the clock comes back with another error."""
        self.elapsed_s += off_s
        self.boots += 1
        self._boot_at_s = self.elapsed_s - 10.0
        self.shift_s = shift_s

    def send(self, command_id: str, ttl_s: float) -> None:
        self.commands[command_id] = {
            "id": command_id,
            "command_payload": {"command": "ping"},
            "status": "queued",
            "created_at": to_rfc3339(self.true_s),
            "expires_at": to_rfc3339(self.true_s + ttl_s),
        }

    def answer(self, request: httpx.Request) -> httpx.Response:
        """The service."""
        if not self.is_up:
            raise httpx.ConnectError("no network")
        status, body = self._body(request)
        # As many servers do: cut to the second, and up to a second old.
        headers = {"date": formatdate(int(self.true_s - 0.4), usegmt=True)} if self.tells_time else {}
        return httpx.Response(status, json=body, headers=headers)

    def _body(self, request: httpx.Request) -> tuple[int, Any]:
        path = request.url.path
        if path.startswith("/.well-known"):
            offered = ["batch-sensor-data", "command-results", "command-status", "idempotency-key", "recorded-at"]
            return 200, {"extensions": offered}
        if path == "/sensor-data":
            sent = json.loads(request.content)
            for each in sent if isinstance(sent, list) else [sent]:
                at = each.get("recorded_at")
                number = int(each["sensor_data"]["n"])
                assert number not in self.stored, "a reading was stored twice"
                self.stored[number] = (None if at is None else parse_time(at), each["sensor_data"])
            return (200, {"accepted": len(sent), "errors": []}) if isinstance(sent, list) else (201, {})
        if path.endswith("/result"):
            command_id = path.split("/")[-2]
            told = json.loads(request.content)
            self.results.append((command_id, told["status"], told.get("error") or ""))
            del self.commands[command_id]
            return 200, {}
        wanted = ("canceled",) if "canceled" in str(request.url.query) else ("queued",)
        return 200, {"data": [each for each in self.commands.values() if each["status"] in wanted]}


class Device:
    """One process of the device after the other, on one store."""

    def __init__(self, world: World, folder: Path) -> None:
        self.world = world
        self.effects: list[str] = []
        self.numbers: list[float] = []
        self.is_synchronized = False
        self._folder = folder
        self._chance = random.Random(6)
        self._client: DeviceClient | None = None
        self.start()

    def start(self) -> None:
        """A new process."""
        self.close()
        world = self.world
        self.store = SqliteStore(self._folder / "agent.db", clock=world, bounds=Bounds(), trusts_wall=False)
        self._client = DeviceClient("http://service.test", None, transport=httpx.MockTransport(world.answer))
        self.clock = ServiceClock(world, is_synchronized=lambda: self.is_synchronized, times=self.store.boots)
        self._client.connection.on_date = self.clock.observe
        discovery = Discovery(self._client, world)
        self._device = VirtualDevice(
            "d1",
            clock=world,
            journal=self.store.journal,
            outbox=self.store.outbox,
            source=HttpSource(self._client, "d1", discovery),
            uplink=HttpUplink(self._client, "d1", "p1", discovery, self.clock.recorded_at),
            service_clock=self.clock,
            fraction=self._chance.random,
            true_s=lambda: world.true_s,
            effects=self.effects,
            numbers=self.numbers,
            intervals=PollIntervals(5.0, 10.0, 30.0),
            interval_s=20.0,
        )

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self.store.close()

    def run(self, seconds: float) -> None:
        """Time passes."""
        end_s = self.world.elapsed_s + seconds
        while True:
            due_s = self._device.due_at() - self.world.now().monotonic_s
            if self.world.elapsed_s + due_s > end_s:
                break
            self.world.elapsed_s += max(1e-6, due_s)  # below that a float may not move
            self.clock.look()
            self._device.process_all()
        self.world.elapsed_s = end_s

    def judge(self) -> tuple[int, int]:
        """Every reading was stored once, dated right within a second or flagged; how many of each."""
        stored = self.world.stored
        assert sorted(stored) == list(range(len(self.numbers)))
        flagged = 0
        for number, (at_s, values) in stored.items():
            if at_s is None:
                flagged += 1
                assert values[TIME_UNKNOWN] == 1
                assert DEVICE_WALL_S in values
            else:
                assert TIME_UNKNOWN not in values
                assert abs(at_s - self.numbers[number]) <= 1.0, f"reading {number} is dated wrongly"
        return len(stored) - flagged, flagged


@pytest.fixture
def begin(tmp_path) -> Iterator[Callable[..., Device]]:
    with ExitStack() as stack:

        def start(shift_s: float) -> Device:
            return stack.enter_context(closing(Device(World(shift_s), tmp_path)))

        yield start


@pytest.mark.parametrize("shift_s", SHIFTS.values(), ids=SHIFTS)
def test_online_every_row_is_right_however_wrong_the_clock_is(begin, shift_s):
    device = begin(shift_s)
    device.run(600)
    dated, flagged = device.judge()
    assert dated >= 30
    assert flagged == 0


@pytest.mark.parametrize("shift_s", SHIFTS.values(), ids=SHIFTS)
@pytest.mark.parametrize("then", ["restart", "reboot", "reboot with the clock set"])
def test_rows_of_a_boot_whose_time_was_learned_are_right_also_after_a_restart_or_reboot(begin, shift_s, then):
    device = begin(shift_s)
    device.run(60)
    device.world.is_up = False
    device.run(600)
    if then != "restart":
        device.world.reboot(3 * DAY_S, 0.0 if then == "reboot with the clock set" else shift_s)
    device.start()
    device.run(120)
    device.world.is_up = True
    device.run(900)
    dated, flagged = device.judge()
    assert dated > 40
    assert flagged == 0


@pytest.mark.parametrize("shift_s", SHIFTS.values(), ids=SHIFTS)
def test_rows_of_a_boot_in_which_nobody_told_the_time_are_flagged_and_never_dated_wrongly(begin, shift_s):
    device = begin(shift_s)
    device.world.is_up = False
    device.run(600)
    device.world.reboot(2 * DAY_S, 0.0)
    device.start()
    device.world.is_up = True
    device.run(900)
    dated, flagged = device.judge()
    assert flagged >= 30
    assert dated >= 40


@pytest.mark.parametrize("shift_s", SHIFTS.values(), ids=SHIFTS)
def test_a_synchronisation_after_five_minutes_dates_what_came_before_it_also_after_a_reboot(begin, shift_s):
    device = begin(shift_s)
    device.world.is_up = False
    device.run(300)
    device.world.shift_s = 0.0
    device.is_synchronized = True
    device.run(60)
    device.world.reboot(DAY_S, shift_s)
    device.is_synchronized = False
    device.start()
    device.world.is_up = True
    device.run(600)
    _, flagged = device.judge()
    assert flagged == 0


def test_with_a_service_that_tells_no_time_the_machines_synchronisation_dates_the_rows(begin):
    device = begin(SHIFTS["1970"])
    device.world.tells_time = False
    device.run(300)
    device.world.shift_s = 0.0
    device.is_synchronized = True
    device.run(300)
    dated, flagged = device.judge()
    assert dated >= 14
    assert flagged >= 14


def test_a_clock_that_jumps_while_it_runs_changes_nothing(begin):
    device = begin(0.0)
    for number, jump_s in enumerate((HOUR_S, -HOUR_S, 50 * YEAR_S, -50 * YEAR_S, -TRUE_S, 0.0)):
        device.world.send(f"before-{number}", ttl_s=60)
        device.run(100)
        device.world.shift_s = jump_s
        device.world.send(f"after-{number}", ttl_s=60)
        device.run(100)
        device.world.is_up = number % 2 == 1
        device.run(200)
        device.world.is_up = True
        device.run(400)
    dated, flagged = device.judge()
    assert (dated >= 200, flagged) == (True, 0)
    assert sorted(device.effects) == sorted(f"{when}-{n}" for when in ("before", "after") for n in range(6))
    assert {status for _, status, _ in device.world.results} == {"succeeded"}


@pytest.mark.parametrize("shift_s", SHIFTS.values(), ids=SHIFTS)
def test_expiry_goes_by_the_services_time_whatever_the_device_believes(begin, shift_s):
    device = begin(shift_s)
    device.run(30)
    device.world.send("fresh", ttl_s=60)
    device.run(30)
    device.world.commands["stale"] = {
        "id": "stale",
        "command_payload": {"command": "ping"},
        "status": "queued",
        "created_at": to_rfc3339(device.world.true_s - 120),
        "expires_at": to_rfc3339(device.world.true_s - 60),
    }
    device.run(60)
    assert device.effects == ["fresh"]
    assert [(each[0], each[1], each[2].split(":")[0]) for each in device.world.results] == [
        ("fresh", "succeeded", ""),
        ("stale", "rejected", "expired"),
    ]


@pytest.mark.parametrize("shift_s", SHIFTS.values(), ids=SHIFTS)
@pytest.mark.parametrize(("off_s", "runs"), [(10.0, True), (3 * DAY_S, False)], ids=["in time", "too late"])
def test_what_waited_through_a_reboot_runs_only_once_the_time_is_known_and_only_in_time(begin, shift_s, off_s, runs):
    device = begin(shift_s)
    device.run(30)
    device.world.send("c1", ttl_s=600)
    entry_before_power_cut(device)
    device.world.is_up = False
    # "Back in time" as a clock that was saved at the shutdown: nothing but the service can tell how long it was off.
    device.world.reboot(off_s, shift_s - off_s)
    device.start()
    device.run(120)
    assert device.effects == []
    device.world.is_up = True
    device.run(400)
    assert device.effects == (["c1"] if runs else [])
    assert [status for _, status, _ in device.world.results] == (["succeeded"] if runs else ["rejected"])


def test_within_a_boot_a_command_expires_by_the_monotonic_clock_though_nobody_tells_the_time(begin):
    device = begin(SHIFTS["1970"])
    device.world.tells_time = False
    device.run(30)
    device.world.send("c1", ttl_s=60)
    entry_before_power_cut(device)
    device.world.elapsed_s += 90
    device.start()
    device.run(60)
    assert device.effects == []
    assert [error.split(":")[0] for _, _, error in device.world.results] == ["expired"]


def test_a_clock_that_is_decades_ahead_drops_no_reading_for_its_age(begin):
    device = begin(0.0)
    device.run(60)
    device.world.is_up = False
    device.run(300)
    device.world.reboot(60.0, 50 * YEAR_S)
    device.start()
    device.run(300)
    assert device.store.outbox.stats().dropped == 0
    device.world.is_up = True
    device.run(600)
    assert device.judge()[1] == 0


def entry_before_power_cut(device: Device) -> None:
    """The journal has the command as received, and its lane had not come to it."""
    record = device.world.commands["c1"]
    command = make_command(
        "c1",
        created_at=parse_time(record["created_at"]),
        expires_at=parse_time(record["expires_at"]),
        status="queued",
    )
    device.store.journal.admit([make_entry(command=command, received=device.world.now())])
