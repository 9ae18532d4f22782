"""An agent starts and a gateway hands out nothing after its end, whatever fails and whoever stands still.

The service's ``Date`` is true when it is made, and may be old when it arrives. What is certain by it is reckoned here
once more, without :mod:`agent.core.timekeeping`: nothing may happen after a command's end by that.
"""

from __future__ import annotations

import json
import tempfile
from contextlib import closing, suppress
from email.utils import formatdate, parsedate_to_datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from agent.adapters.mqtt_session import Message
from agent.core.values import Moment
from agent.errors import AgentError, StorageError
from agent.runtime.service_clock import ServiceClock
from agent.wire.times import parse_time, to_rfc3339
from gateway.backend import Backend
from gateway.command_cache import CommandCache
from gateway.mqtt.outgoing import CommandPublisher
from gateway.ports import Hints
from tests.fault.test_wrong_clocks import Device, World
from tests.unit.gateway.test_service_side import Side

pytestmark = pytest.mark.long

SLACK_S = 0.5
"""What a clock that is learned again after a restart may have lost, and what crystals drift apart."""
TTLS = st.sampled_from([1.0, 5.0, 30.0, 300.0])
STALLS = st.sampled_from([0.0, 0.0, 2.0, 20.0, 400.0])
MODES = st.sampled_from(["ok", "ok", "ok", "down", "500", "lost", "late"])


class Certainty:
    """What the service's clock shows at least, by the answers that came: for each boot by itself."""

    def __init__(self) -> None:
        self._floors: dict[str, float] = {}

    def answered(self, moment: Moment, date: str) -> None:
        floor_s = parsedate_to_datetime(date).timestamp() - moment.monotonic_s
        self._floors[moment.boot_id] = max(floor_s, self._floors.get(moment.boot_id, floor_s))

    def at(self, moment: Moment) -> float:
        return self._floors.get(moment.boot_id, float("-inf")) + moment.monotonic_s


class Harsh(World):
    """The world of :mod:`test_wrong_clocks` where requests fail and time passes where it should not."""

    def __init__(self) -> None:
        super().__init__(0.0)
        self.certainty = Certainty()
        self.mode = "ok"
        self.stall_s = 0.0
        self.ends: dict[str, float] = {}

    def send(self, command_id: str, ttl_s: float) -> None:
        super().send(command_id, ttl_s)
        self.ends[command_id] = parse_time(self.commands[command_id]["expires_at"])

    def answer(self, request: httpx.Request) -> httpx.Response:
        if self.mode == "down":
            raise httpx.ConnectError("no network")
        if self.mode == "500":
            return httpx.Response(500, json={"error": "broken", "message": "no"})
        if self.mode == "lost" and request.method == "GET":
            self._stand_still()
            raise httpx.ReadError("cut")
        answer = super().answer(request)
        if self.mode == "late":  # made before the service stood still
            self._stand_still()
        self.certainty.answered(self.now(), answer.headers["date"])
        return answer

    def _stand_still(self) -> None:
        """Once: a device whose every request took longer than its interval would never have done what is due."""
        self.elapsed_s += self.stall_s
        self.stall_s = 0.0


class Effects(list[str]):
    """What ran: never after its end."""

    def __init__(self, world: Harsh) -> None:
        super().__init__()
        self._world = world

    def append(self, command_id: str) -> None:
        super().append(command_id)
        end_s, certain_s = self._world.ends[command_id], self._world.certainty.at(self._world.now())
        assert certain_s <= end_s + SLACK_S, f"{command_id} was started {certain_s - end_s:.1f} s after its end"


class Agent(Device):
    """A device whose disk may take its time, and whose process may stand still within any step."""

    def __init__(self, world: Harsh, folder: Path) -> None:
        self.harsh = world
        self.slow_s = {"start": 0.0, "decide": 0.0}
        super().__init__(world, folder)

    def start(self) -> None:
        own = Effects(self.harsh)
        own.extend(self.effects)
        self.effects = own
        super().start()
        for name in self.slow_s:
            setattr(self.store.journal, name, self._slow(name, getattr(self.store.journal, name)))

    def _slow(self, name: str, write: Any) -> Any:
        def slow(*arguments: Any, **named: Any) -> Any:
            found = write(*arguments, **named)
            self.harsh.elapsed_s += self.slow_s[name]
            self.slow_s[name] = 0.0
            return found

        return slow


AGENT_STEPS = st.one_of(
    st.tuples(st.just("send"), TTLS),
    st.tuples(st.just("run"), st.sampled_from([1.0, 6.0, 40.0, 200.0])),
    st.tuples(st.just("still"), STALLS),
    st.tuples(st.sampled_from(["start", "decide"]), STALLS),
    st.tuples(st.just("reboot"), STALLS),
    st.tuples(st.just("restart"), STALLS),
    st.tuples(MODES, STALLS),
)


def judge_agent(steps: list[tuple[str, float]]) -> list[str]:
    with tempfile.TemporaryDirectory() as folder, closing(Agent(Harsh(), Path(folder))) as agent:
        world = agent.harsh
        agent.run(30)
        for number, (step, value) in enumerate(steps):
            if step == "send":
                world.send(f"c{number}", value)
                agent.run(20.0)
            elif step == "run":
                agent.run(value)
            elif step == "still":
                world.elapsed_s += value
            elif step in agent.slow_s:
                agent.slow_s[step] = value
            elif step == "reboot":
                world.reboot(value, 0.0)
                agent.start()
            elif step == "restart":
                world.elapsed_s += value
                agent.start()
            else:
                world.mode, world.stall_s = step, value
        return list(agent.effects)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(AGENT_STEPS, min_size=4, max_size=20))
@example([("start", 400.0), ("send", 30.0)])
@example([("late", 400.0), ("send", 300.0), ("run", 40.0)])
def test_an_agent_starts_nothing_after_its_end(steps):
    judge_agent(steps)


def test_an_agent_starts_what_is_in_time():
    assert judge_agent([("run", 60.0), ("send", 300.0), ("run", 40.0)]) == ["c1"]


DEVICES = ("d1", "d2", "d3")


class Gateway(Side):
    """The gateway's side towards the service with cache, backend and publisher, its own clock two days wrong."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.answer = self._listed
        self.true_offset_s = self.clock.now().wall_s - self.clock.now().monotonic_s
        self.clock.set_wall(self.clock.now().wall_s - 2 * 86_400.0)
        self.certainty = Certainty()
        self.known_time = ServiceClock(self.clock)
        self.asked_at_s = self.clock.now().monotonic_s
        self.client.connection.on_date = self._learn_time
        self.commands._service_clock = self.known_time
        self.command_cache = CommandCache(self._service_now)
        self.backend = Backend(self.store, self.command_cache, self.clock, hints=lambda _: Hints(60.0))
        self.commands._backend = self.backend
        self.published: list[Message] = []
        self.takes = True
        self.publisher = CommandPublisher(self.backend, self._post, lambda: True, self._service_now)
        self.mode, self.stall_s = "ok", 0.0
        self.open: dict[str, list[dict[str, Any]]] = {device: [] for device in DEVICES}
        self.ends: dict[str, float] = {}
        self.handed_out = 0
        self.store_fault = ""
        self._store_call = self.store.call
        self.store.call = self._call  # type: ignore[method-assign]
        self.discover()

    @property
    def true_s(self) -> float:
        return self.clock.now().monotonic_s + self.true_offset_s

    def send(self, device: str, ttl_s: float) -> None:
        command_id = f"c{len(self.ends)}"
        record = {
            "id": command_id,
            "device_id": device,
            "command_payload": {"command": "ping"},
            "status": "queued",
            "created_at": to_rfc3339(self.true_s),
            "expires_at": to_rfc3339(self.true_s + ttl_s),
        }
        self.open[device].append(record)
        self.ends[command_id] = parse_time(record["expires_at"])

    def fetch(self, device: str) -> None:
        self.asked_at_s = self.clock.now().monotonic_s
        with suppress(AgentError):
            self.commands._look(device)

    def look(self, device: str) -> None:
        """The device asks over HTTP, and comes online over MQTT."""
        for record in self.backend.open_commands(device).records:
            self.judge(str(record["id"]), "handed out")
        self.published.clear()
        self.publisher._publish(device, again=True)
        for message in self.published:
            self.judge(str(json.loads(message.payload)["id"]), "published")

    def judge(self, command_id: str, what: str) -> None:
        self.handed_out += 1
        late_s = self.certainty.at(self.clock.now()) - self.ends[command_id]
        assert late_s <= SLACK_S, f"{command_id} was {what} {late_s:.1f} s after its end"

    def _learn_time(self, date_s: float, _took_s: float) -> None:
        # The connection takes the time of real requests, in which these stalls do not pass.
        self.known_time.observe(date_s, self.clock.now().monotonic_s - self.asked_at_s)

    def _listed(self, request: httpx.Request) -> httpx.Response:
        if self.mode == "down":
            raise httpx.ConnectError("no network", request=request)
        if self.mode == "500":
            return httpx.Response(500, json={"error": "broken", "message": "no"})
        device = request.url.path.split("/")[2] if request.url.path.startswith("/devices/") else ""
        is_open = "canceled" not in str(request.url.query)
        listed = [record for record in self.open.get(device, []) if is_open and self.ends[record["id"]] > self.true_s]
        date = formatdate(int(self.true_s - 0.4), usegmt=True)
        if self.mode in {"late", "lost"}:
            self.clock.advance(self.stall_s)
        if self.mode == "lost":
            raise httpx.ReadError("cut", request=request)
        self.certainty.answered(self.clock.now(), date)
        return httpx.Response(200, json={"data": listed}, headers={"date": date})

    def _call(self, work: Any) -> Any:
        if self.store_fault == "rolled back":
            raise StorageError("disk full")
        found = self._store_call(work)
        if self.store_fault == "in doubt":
            raise StorageError("nobody knows")
        return found

    def _post(self, message: Message) -> bool:
        if self.takes:
            self.published.append(message)
        return self.takes

    def _service_now(self) -> float:
        now_s = self.known_time.now()
        return self.clock.now().wall_s if now_s is None else now_s


GATEWAY_STEPS = st.one_of(
    st.tuples(st.just("send"), st.sampled_from(DEVICES), TTLS),
    st.tuples(st.just("fetch"), st.sampled_from(DEVICES), st.just(0.0)),
    st.tuples(st.just("still"), st.just(""), STALLS),
    st.tuples(st.just("expire"), st.just(""), st.just(0.0)),
    st.tuples(st.just("restart"), st.just(""), STALLS),
    st.tuples(st.just("store"), st.sampled_from(["", "", "rolled back", "in doubt"]), st.just(0.0)),
    st.tuples(st.just("broker"), st.sampled_from(["", "full"]), st.just(0.0)),
    st.tuples(st.just("mode"), MODES, STALLS),
)


def judge_gateway(steps: list[tuple[str, str, float]]) -> int:
    """How many commands were handed out or published, none too late."""
    with tempfile.TemporaryDirectory() as folder, closing(Gateway(Path(folder))) as gateway:
        gateway.fetch("d1")
        for step, which, value in steps:
            if step == "send":
                gateway.send(which, value)
                gateway.fetch(which)
            elif step == "fetch":
                gateway.fetch(which)
            elif step == "still":
                gateway.clock.advance(value)
            elif step == "expire":
                with suppress(StorageError):
                    gateway.backend.expire(gateway._service_now())
            elif step == "restart":
                gateway.clock.advance(value)
                gateway.command_cache.load(gateway._store_call(lambda store: store.commands.open_ones()))
            elif step == "store":
                gateway.store_fault = which
            elif step == "broker":
                gateway.takes = not which
            else:
                gateway.mode, gateway.stall_s = which, value
            for device in DEVICES:
                gateway.look(device)
        return gateway.handed_out


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(GATEWAY_STEPS, min_size=4, max_size=25))
@example([("send", "d1", 5.0), ("still", "", 20.0)])
@example([("fetch", "d1", 0.0), ("mode", "late", 400.0), ("fetch", "d1", 0.0), ("send", "d1", 1.0)])
@example([("send", "d1", 30.0), ("mode", "late", 400.0), ("fetch", "d2", 0.0)])
def test_a_gateway_hands_out_nothing_after_its_end(steps):
    judge_gateway(steps)


def test_a_gateway_hands_out_what_is_in_time():
    assert judge_gateway([("send", "d2", 30.0)]) == 2  # over HTTP and over MQTT
