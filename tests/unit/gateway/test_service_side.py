"""The side towards the service, on a service that answers as the test wants and a clock that the test moves."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from datetime import datetime
from email.utils import formatdate
from pathlib import Path
from typing import Any

import httpx
import pytest

from agent.errors import StorageError, TransportError
from agent.runtime.health import Health
from agent.runtime.service_clock import ServiceClock
from agent.wire import extensions
from agent.wire.auth import KeyPair
from agent.wire.commands import CommandResult
from agent.wire.device_client import DeviceClient
from agent.wire.dialect import AnswerReading, CommandLists, Dialect
from agent.wire.lists import ITEMS_MAX
from agent.wire.secret import MASK, Secret
from agent.wire.times import to_rfc3339
from gateway.backend import Backend
from gateway.command_cache import CommandCache
from gateway.core.budget import Budget
from gateway.core.fair_polling import FairIntervals, FairPolling
from gateway.ports import Hints, NewReading, Transport, UnknownDevice
from gateway.service.commands import CommandRequests
from gateway.service.events import EventService
from gateway.service.meter import Meter, MeteredTransport
from gateway.service.offer import Offer
from gateway.service.readings import ReadingRequests
from gateway.service.results import ResultRequests
from gateway.service.worker import RequestSource, RetryGate, Worker
from gateway.store.command_rows import OPEN_MAX
from gateway.store.schema import FILE_NAME
from gateway.store.service import StoreWriter
from gateway.store.values import ListRead, StoredCommand
from tests.fakes import START_WALL_S, FakeClock

Answer = Callable[[httpx.Request], httpx.Response]
EVERYTHING = tuple(sorted(extensions.ALL))


class Side:
    """Store, backend and the source; ``answer`` is the service."""

    def __init__(
        self,
        folder: Path,
        offered: tuple[str, ...] = EVERYTHING,
        dialect: Dialect | None = None,
    ) -> None:
        self.folder = folder
        self.clock = FakeClock()
        self.requests: list[httpx.Request] = []
        self.offered = offered
        self.announce: Answer | None = None
        self.answer: Answer = lambda _request: httpx.Response(200, json={})
        self.store = StoreWriter(folder / FILE_NAME, clock=self.clock)
        self.store.start()
        self.meter = Meter(Budget(), self._now_s)
        transport = MeteredTransport(httpx.MockTransport(self._handle), self.meter)
        self.client = DeviceClient("http://127.0.0.1:1", KeyPair("mk_1", Secret("msk_1")), transport=transport)
        self.health = Health(self.clock)
        self.command_cache = CommandCache(lambda: self.clock.now().wall_s)
        self.arrived: list[str] = []
        self.backend = Backend(
            self.store, self.command_cache, self.clock, hints=lambda _: Hints(60.0), on_arrived=self.arrived.append
        )
        self.offer = Offer(self.client, self.clock, on_change=lambda: None, dialect=dialect, store=self.store)
        self.results = ResultRequests(self.client, self.offer, self.store, self.clock)
        self.readings = self._readings()
        service_clock = ServiceClock(self.clock, trust_wall=True)
        self.client.connection.on_date = service_clock.observe
        self.commands = CommandRequests(
            self.client,
            backend=self.backend,
            polling=FairPolling(FairIntervals()),
            clock=self.clock,
            service_clock=service_clock,
            gate=self.gate("commands"),
            wake=lambda: None,
            offer=self.offer,
        )

    def gate(self, name: str) -> RetryGate:
        return RetryGate(name, self.clock, self.health, lambda: 0.5, 300.0)

    def worker(self, source: RequestSource[Any]) -> Worker:
        return Worker(source, self.meter, self.clock, self.gate(source.name))

    def run(self, worker: Worker, for_s: float = 30.0) -> None:
        """Do what falls due within this time, moving the clock from one due moment to the next."""
        until_s = self._now_s() + for_s
        while (due_s := worker.due_at()) <= until_s:
            self.clock.advance(max(0.0, due_s - self._now_s()))
            worker.step()
        self.clock.advance(until_s - self._now_s())

    def discover(self) -> None:
        self.run(self.worker(self.offer), 1.0)
        self.requests.clear()

    def take(self, *values: dict[str, float], device: str = "d1") -> None:
        now_s = self.clock.now().wall_s
        self.backend.take_readings(device, [NewReading(each, now_s) for each in values]).result(60)
        self.readings.wake()

    def conclude(self, command_id: str = "c1", **members: Any) -> None:
        result = CommandResult(**{"status": "succeeded", **members})
        self.backend.take_result("d1", command_id, result).result(60)
        self.results.wake()

    def bodies(self, path: str) -> list[Any]:
        return [json.loads(each.content) for each in self.requests if each.url.path == path]

    def stats(self) -> Any:
        return self.store.call(lambda store: store.stats())

    def close(self) -> None:
        assert self.store.stop(60)
        self.client.close()

    def _readings(self) -> ReadingRequests:
        return ReadingRequests(
            self.client,
            self.offer,
            store=self.store,
            backend=self.backend,
            clock=self.clock,
            gate=self.gate("readings"),
            gather_s=1.0,
        )

    def _handle(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        if request.url.path == "/.well-known/device-service":
            if self.announce is not None:
                return self.announce(request)
            return httpx.Response(200, json={"extensions": self.offered}) if self.offered else httpx.Response(404)
        return self.answer(request)

    def _now_s(self) -> float:
        return self.clock.now().monotonic_s


@pytest.fixture
def make_side(tmp_path: Path) -> Iterator[Callable[..., Side]]:
    made: list[Side] = []

    def make(**options: Any) -> Side:
        made.append(Side(tmp_path, **options))
        made[-1].discover()
        return made[-1]

    yield make
    for side in made:
        side.close()


@pytest.fixture
def side(make_side) -> Side:
    return make_side()


def accept(request: httpx.Request) -> httpx.Response:
    body = json.loads(request.content)
    return httpx.Response(200, json={"accepted": len(body), "errors": []} if isinstance(body, list) else body)


def unreachable(request: httpx.Request) -> httpx.Response:
    raise httpx.ConnectError("refused", request=request)


def fault(status: int, error: str) -> Answer:
    return lambda _request: httpx.Response(status, json={"error": error, "message": "no"})


class TestReadings:
    def test_readings_of_many_devices_share_one_request(self, side):
        side.answer = accept
        for device in ("d1", "d2", "d3"):
            side.take({"t": 1.0}, device=device)
        side.run(side.worker(side.readings))
        [body] = side.bodies("/sensor-data")
        assert [each["device_id"] for each in body] == ["d1", "d2", "d3"]
        assert side.stats().readings == 0

    def test_a_lost_answer_is_followed_by_the_same_bytes_under_the_same_key(self, side):
        side.take({"t": 1.0}, {"t": 2.0})

        def lose_first(request: httpx.Request) -> httpx.Response:
            side.answer = accept
            raise httpx.ReadTimeout("late", request=request)

        side.answer = lose_first
        worker = side.worker(side.readings)
        side.run(worker, 1.0)
        side.take({"t": 3.0})
        side.run(worker)
        first, second, third = [each for each in side.requests if each.url.path == "/sensor-data"]
        assert first.content == second.content
        assert first.headers["idempotency-key"] == second.headers["idempotency-key"]
        assert third.headers["idempotency-key"] != first.headers["idempotency-key"]

    def test_a_bad_reading_in_a_refused_batch_ends_up_alone_and_the_others_get_through(self, side):
        def pick(request: httpx.Request) -> httpx.Response:
            return fault(400, "bad")(request) if b"13" in request.content else accept(request)

        side.answer = pick
        side.take({"t": 1.0}, {"t": 13.0}, {"t": 2.0}, {"t": 3.0})
        side.run(side.worker(side.readings), 120)
        counters = side.stats().counters
        assert (counters["readings_forwarded"], counters["readings_refused"]) == (3, 1)
        assert (side.stats().readings, side.stats().set_aside) == (0, 1)

    @pytest.mark.parametrize("status", [400, 405, 422, 501])
    def test_arrays_that_are_announced_and_refused_are_withdrawn_and_no_reading_is_lost(self, side, status):
        def strict(request: httpx.Request) -> httpx.Response:
            return fault(status, "no")(request) if request.content.startswith(b"[") else accept(request)

        side.answer = strict
        side.take(*({"t": float(number)} for number in range(8)))
        side.run(side.worker(side.readings), 600)
        assert side.stats().counters["readings_forwarded"] == 8
        assert (side.stats().readings, side.stats().set_aside) == (0, 0)
        assert not side.offer.knows(extensions.BATCH_SENSOR_DATA)
        side.requests.clear()
        side.take({"t": 20.0}, {"t": 21.0})
        side.run(side.worker(side.readings), 600)
        assert not any(each.content.startswith(b"[") for each in side.requests)

    def test_a_service_that_does_not_say_which_ones_it_left_out_is_asked_again_in_parts(self, side):
        def vague(request: httpx.Request) -> httpx.Response:
            body = json.loads(request.content)
            return httpx.Response(200, json={"accepted": 1, "errors": []} if isinstance(body, list) else body)

        side.answer = vague
        side.take({"t": 1.0}, {"t": 2.0})
        side.run(side.worker(side.readings))
        assert side.stats().counters["readings_forwarded"] == 2

    def test_a_removed_device_is_set_aside_and_refused_from_then_on(self, side):
        side.answer = fault(404, "device_not_found")
        side.take({"t": 1.0})
        side.run(side.worker(side.readings))
        assert side.stats().set_aside == 1
        with pytest.raises(UnknownDevice):
            side.take({"t": 1.0})

    def test_a_wrong_address_loses_nothing_and_holds_up_nobody(self, make_side):
        side = make_side(offered=())
        side.answer = fault(404, "not_found")
        side.take({"t": 1.0}, {"t": 2.0})
        side.run(side.worker(side.readings), 600)
        assert side.stats().readings == 2
        assert {json.loads(each.content)["sensor_data"]["t"] for each in side.requests} == {1.0, 2.0}

    def test_a_plain_server_gets_one_reading_with_each_request(self, make_side):
        side = make_side(offered=())
        side.answer = accept
        side.take({"t": 1.0}, {"t": 2.0})
        side.run(side.worker(side.readings))
        assert [each["sensor_data"] for each in side.bodies("/sensor-data")] == [{"t": 1.0}, {"t": 2.0}]
        assert not any("idempotency-key" in each.headers for each in side.requests)

    def test_a_batch_that_was_made_for_another_service_is_taken_apart(self, make_side):
        side = make_side()
        side.answer = unreachable
        side.take({"t": 1.0}, {"t": 2.0}, {"t": 3.0})
        worker = side.worker(side.readings)
        side.run(worker, 2)
        side.offered, side.answer = (), accept
        side.offer.forget()
        side.run(side.worker(side.offer), 61)
        side.run(worker, 400)
        assert {each["sensor_data"]["t"] for each in side.bodies("/sensor-data")[1:] if isinstance(each, dict)} == {
            1,
            2,
            3,
        }
        assert side.stats().readings == 0


class TestTheTimeOfReading:
    def test_a_plain_server_is_sent_no_recorded_at(self, make_side):
        side = make_side(offered=())
        side.answer = accept
        side.take({"t": 1.0})
        side.run(side.worker(side.readings))
        assert side.bodies("/sensor-data") == [{"device_id": "d1", "sensor_data": {"t": 1.0}}]

    def test_where_the_configuration_names_a_reading_it_carries_the_time(self, make_side):
        side = make_side(offered=(), dialect=Dialect(recorded_at_reading="at_s"))
        side.answer = accept
        side.take({"t": 1.0})
        side.run(side.worker(side.readings))
        [body] = side.bodies("/sensor-data")
        assert body["sensor_data"] == {"t": 1.0, "at_s": pytest.approx(START_WALL_S)}
        assert "recorded_at" not in body

    def test_a_service_that_announces_it_and_refuses_it_loses_no_reading(self, side, caplog):
        def strict(request: httpx.Request) -> httpx.Response:
            return fault(400, "unknown_member")(request) if b"recorded_at" in request.content else accept(request)

        side.answer = strict
        side.take({"t": 1.0}, {"t": 2.0}, {"t": 3.0})
        side.run(side.worker(side.readings), 300)
        assert (side.stats().readings, side.stats().set_aside) == (0, 0)
        assert side.stats().counters["readings_forwarded"] == 3
        side.requests.clear()
        side.take({"t": 4.0})
        side.run(side.worker(side.readings), 300)
        assert len(side.bodies("/sensor-data")) == 1
        assert len([each for each in caplog.records if "withdrawn" in each.getMessage()]) == 1

    def test_a_reading_that_is_bad_itself_withdraws_nothing(self, side):
        side.answer = fault(400, "bad_value")
        side.take({"t": 1.0})
        side.run(side.worker(side.readings), 60)
        assert side.stats().set_aside == 1
        assert side.offer.knows(extensions.RECORDED_AT)


class TestResults:
    @pytest.mark.parametrize("status", [500, 403])
    def test_one_without_a_home_is_put_aside_and_holds_up_neither_others_nor_readings(self, side, status):
        def no_home(request: httpx.Request) -> httpx.Response:
            return fault(status, "no")(request) if "homeless" in request.url.path else accept(request)

        side.answer = no_home
        side.conclude("homeless")
        side.conclude("good")
        side.take({"t": 1.0})
        side.run(side.worker(side.readings), 60)
        assert side.stats().readings == 0, "readings are a stream of their own"
        worker = side.worker(side.results)
        side.run(worker, 120)
        assert side.stats().counters["results_reported"] == 1, "the good one went past it"
        side.run(worker, 3600)
        assert (side.stats().results, side.stats().set_aside) == (0, 1)

    def test_an_hour_of_503_puts_nothing_aside(self, side):
        side.answer = fault(503, "away")
        side.conclude()
        worker = side.worker(side.results)
        side.run(worker, 3600)
        assert (side.stats().results, side.stats().set_aside) == (1, 0)

    def test_a_result_goes_to_the_service_and_is_done(self, side):
        side.answer = accept
        side.conclude()
        side.run(side.worker(side.results))
        assert side.bodies("/devices/d1/commands/c1/result") == [{"status": "succeeded"}]
        assert (side.stats().results, side.stats().counters["results_reported"]) == (0, 1)

    def test_a_plain_server_gets_it_as_a_record_of_the_devices_product(self, make_side):
        side = make_side(offered=())

        def plain(request: httpx.Request) -> httpx.Response:
            if request.url.path == "/devices":
                return httpx.Response(200, json=[{"device_id": "d1", "product_id": "p1"}])
            return httpx.Response(201, json={"id": "r1"})

        side.answer = plain
        side.conclude("c1")
        side.conclude("c2", status="failed", error="x: y")
        side.run(side.worker(side.results))
        records = side.bodies("/database/runtime-data")
        assert [each["data_payload"]["command_id"] for each in records] == ["c1", "c2"]
        assert {each["product_id"] for each in records} == {"p1"}
        assert sum(each.url.path == "/devices" for each in side.requests) == 1, "the product was looked up once"

    def test_a_result_that_is_refused_is_told_without_its_content_first(self, side):
        side.answer = lambda request: fault(413, "too_large")(request) if b"big" in request.content else accept(request)
        side.conclude(result={"big": 1})
        side.run(side.worker(side.results))
        told = side.bodies("/devices/d1/commands/c1/result")[-1]
        assert told["status"] == "succeeded"
        assert told["error"].startswith("result_refused")
        assert side.stats().set_aside == 0

    def test_what_the_service_will_never_take_is_set_aside(self, side):
        side.answer = fault(404, "command_not_found")
        side.conclude()
        side.run(side.worker(side.results))
        assert (side.stats().results, side.stats().set_aside, side.stats().commands) == (0, 1, {"unknown": 1})

    def test_an_hour_without_the_service_loses_nothing_spins_never_and_says_so_now_and_then(self, side, caplog):
        side.answer = unreachable
        side.conclude()
        worker = side.worker(side.results)
        with caplog.at_level(logging.INFO):
            side.run(worker, 3600)
        assert 5 < len(side.requests) < 60
        assert len(caplog.records) <= 3600 / 300 + 1
        assert side.health.parts()["results"].state == "unreachable"
        side.answer = accept
        side.run(worker, 400)
        assert side.stats().results == 0
        assert side.health.parts()["results"].state == "ok"

    def test_a_429_is_waited_for_as_long_as_the_service_asked(self, side):
        side.answer = lambda _request: httpx.Response(
            429, json={"error": "rate_limited"}, headers={"retry-after": "40"}
        )
        side.conclude()
        worker = side.worker(side.results)
        side.run(worker, 39)
        assert len(side.requests) == 1
        side.answer = accept
        side.run(worker, 60)
        assert side.stats().results == 0


class TestCommands:
    def test_a_device_is_asked_about_and_its_commands_are_shown(self, side):
        record = {"id": "c1", "command_payload": {"command": "ping"}, "status": "queued"}
        side.answer = lambda _request: httpx.Response(200, json=[record], headers={"etag": '"1"'})
        side.commands.serve({"d1"})
        worker = side.worker(side.commands)
        side.run(worker, 61)
        assert [each["id"] for each in side.backend.open_commands("d1").records] == ["c1"]
        side.answer = lambda _request: httpx.Response(304)
        side.run(worker, 61)
        assert side.requests[-1].headers["if-none-match"] == '"1"'

    def test_when_it_was_listed_is_on_the_clock_of_the_first_answer_where_the_own_one_is_wrong(self, make_side):
        side = make_side(offered=())
        side.backend.finish_list("d1", (), ListRead(), [])  # what an earlier process has seen
        record = {"id": "c1", "command_payload": {"command": "ping"}}
        now_s = side.clock.now().wall_s + 86_400.0
        date = formatdate(now_s, usegmt=True)
        side.answer = lambda _request: httpx.Response(200, json=[record], headers={"date": date})
        side.commands.serve({"d1"})
        side.run(side.worker(side.commands), 61)
        (listed,) = side.backend.open_commands("d1").records
        assert datetime.fromisoformat(listed["listed_at"]).timestamp() == pytest.approx(now_s, abs=120)

    def test_a_command_that_leaves_the_list_is_known_as_canceled_before_the_device_sees_it_go(self, side):
        records = [{"id": f"c{n}", "command_payload": {"command": "ping"}, "status": "delivered"} for n in range(3)]
        canceled = {**records[0], "status": "canceled", "status_reason": "by the operator"}

        def answer(request: httpx.Request) -> httpx.Response:
            # A service that ignores the filter tells more than was asked for.
            asked = request.url.params["status"]
            return httpx.Response(200, json=records if asked == "open" else [canceled, *records])

        side.answer = answer
        side.commands.serve({"d1"})
        worker = side.worker(side.commands)
        side.run(worker, 61)
        asked = {each.url.params["status"] for each in side.requests}
        assert asked == {"open"}, "nothing has vanished: nothing is asked"
        del records[0:2]
        shown: list[list[str]] = []
        side.backend.watch(
            "d1", lambda: shown.append([each["id"] for each in side.backend.open_commands("d1").records])
        )
        side.run(worker, 61)
        assert shown == [["c2"]]
        (known,) = side.backend.canceled_of("d1", ["c0", "c1", "c2", "c9"]).result(60)
        assert (known["id"], known["status"], known["status_reason"]) == ("c0", "canceled", "by the operator")
        states = {each["id"]: each["status"] for each in side.backend.commands_of("d1").result(60).records()}
        assert states == {"c0": "canceled", "c1": "delivered", "c2": "delivered"}
        side.run(worker, 61)
        asked = [each.url.params["status"] for each in side.requests]
        assert asked.count("canceled") == 1, "it is asked once"

    @pytest.mark.parametrize("status", [400, 404])
    def test_a_service_that_tells_no_states_hides_no_new_command(self, side, status):
        listed = ["c1"]

        def answer(request: httpx.Request) -> httpx.Response:
            if request.url.params["status"] == "canceled":
                return httpx.Response(status, json={"error": "invalid_request"})
            return httpx.Response(200, json=[{"id": each, "command_payload": {"command": "x"}} for each in listed])

        side.answer = answer
        side.commands.serve({"d1"})
        worker = side.worker(side.commands)
        side.run(worker, 61)
        listed[:] = ["c2"]
        side.run(worker, 61)
        assert [each["id"] for each in side.backend.open_commands("d1").records] == ["c2"]

    def test_while_the_reason_cannot_be_had_the_command_stays_and_is_asked_about_again(self, side):
        listed = ["c1"]
        reasons = [httpx.Response(503), httpx.Response(200, json=[])]

        def answer(request: httpx.Request) -> httpx.Response:
            if request.url.params["status"] == "canceled":
                return reasons.pop(0)
            return httpx.Response(200, json=[{"id": each, "command_payload": {"command": "x"}} for each in listed])

        side.answer = answer
        side.commands.serve({"d1"})
        worker = side.worker(side.commands)
        side.run(worker, 61)
        listed.clear()
        side.run(worker, 300)
        assert (reasons, side.backend.open_commands("d1").records) == ([], ())

    def test_a_plain_server_is_asked_for_nothing_beyond_the_specification(self, make_side):
        side = make_side(offered=())
        once = [[{"id": "c1", "command_payload": {"command": "x"}}]]
        side.answer = lambda _request: httpx.Response(200, json=once.pop() if once else [])
        side.commands.serve({"d1"})
        side.run(side.worker(side.commands), 300)
        assert len(side.requests) > 2
        assert {str(each.url.query) for each in side.requests} == {"b''"}
        assert [each["id"] for each in side.backend.open_commands("d1").records] == ["c1"], "an empty list ends nothing"
        assert side.backend.open_commands("d1").records[0]["status"] is None, "no status is made up"

    @pytest.mark.parametrize(
        ("offered", "lists", "shown"),
        [
            ((), None, {"queued": None, "in_progress": None, "offen": None}),
            ((), CommandLists.ONCE, {"queued": None, "in_progress": None, "offen": None}),
            ((), CommandLists.OPEN, {"queued": "queued", "in_progress": "in_progress", "offen": "queued"}),
            (("command-status",), None, {"queued": "queued", "in_progress": "in_progress", "offen": "queued"}),
        ],
    )
    def test_devices_get_a_word_for_open_only_where_states_are_announced(self, make_side, offered, lists, shown):
        side = make_side(offered=offered, dialect=Dialect(command_lists=lists))
        words = ["queued", "in_progress", "offen", "done", "succeeded", "Cancelled"]
        records = [{"id": each, "command_payload": {"command": "x"}, "status": each} for each in words]
        side.answer = lambda _request: httpx.Response(200, json=records)
        side.commands.serve({"d1"})
        side.run(side.worker(side.commands), 61)
        assert {each["id"]: each["status"] for each in side.backend.open_commands("d1").records} == shown

    def test_what_was_read_is_kept_when_a_later_page_fails(self, make_side):
        side = make_side(offered=())
        pages = [
            httpx.Response(
                200,
                json=[{"id": "c1", "command_payload": {"command": "x"}}],
                headers={"link": '</devices/d1/commands?page=2>; rel="next"'},
            ),
            httpx.Response(503),
        ]
        side.answer = lambda _request: pages.pop(0) if pages else httpx.Response(200, json=[])
        side.commands.serve({"d1"})
        side.run(side.worker(side.commands), 300)
        assert [each["id"] for each in side.backend.open_commands("d1").records] == ["c1"]

    def test_what_the_disk_did_not_take_is_not_lost_where_a_server_lists_it_once(self, make_side, monkeypatch):
        side = make_side(offered=())
        once = [[{"id": "c1", "command_payload": {"command": "x"}}]]
        side.answer = lambda _request: httpx.Response(200, json=once.pop() if once else [])
        take, faults = side.backend.take_listed, [StorageError("the disk is full")]

        def fail_first(*arguments: Any) -> Any:
            if faults:
                raise faults.pop()
            return take(*arguments)

        monkeypatch.setattr(side.backend, "take_listed", fail_first)
        side.commands.serve({"d1"})
        side.run(side.worker(side.commands), 300)
        assert [each["id"] for each in side.backend.open_commands("d1").records] == ["c1"]

    def test_a_flood_is_held_within_a_bound_and_takes_one_line(self, make_side, caplog):
        side = make_side()
        records = [
            {"id": f"c{number:05}", "command_payload": {"command": "x"}, "status": "queued"} for number in range(3000)
        ]
        side.answer = lambda _request: httpx.Response(200, json=records, headers={"etag": '"1"'})
        side.commands.serve({"d1"})
        side.run(side.worker(side.commands), 130)
        assert len(side.backend.open_commands("d1").records) == OPEN_MAX
        assert len([each for each in caplog.records if "held_back" in each.getMessage()]) == 1
        assert all("if-none-match" not in each.headers for each in side.requests), "the rest must be listed again"

    def test_of_too_many_at_once_none_that_was_not_read_counts_as_ended(self, make_side, caplog):
        side = make_side()
        listed = [{"id": "open-1", "command_payload": {"command": "x"}, "status": "queued"}]
        side.answer = lambda request: httpx.Response(200, json=listed if "open" in str(request.url.query) else [])
        side.commands.serve({"d1"})
        worker = side.worker(side.commands)
        side.run(worker, 61)
        over = [{"id": f"c{n}", "command_payload": {}, "status": "succeeded"} for n in range(ITEMS_MAX + 10)]
        listed[:] = [*over[: ITEMS_MAX // 2 + 5], *listed, *over[ITEMS_MAX // 2 + 5 :]]
        side.run(worker, 61)
        assert [each["id"] for each in side.backend.open_commands("d1").records] == ["open-1"]
        assert len([each for each in caplog.messages if "commands=too_many device=d1 11 or more" in each]) == 1

    def test_a_refused_status_is_withdrawn_and_stays_so_over_a_restart(self, make_side, caplog):
        side = make_side()

        def strict(request: httpx.Request) -> httpx.Response:
            if request.url.query:
                return httpx.Response(400, json={"error": "unknown_parameter"})
            return httpx.Response(200, json=[{"id": "c1", "command_payload": {"command": "x"}, "status": "queued"}])

        side.answer = strict
        side.commands.serve({"d1"})
        side.run(side.worker(side.commands), 130)
        shown = [(each["id"], each["status"]) for each in side.backend.open_commands("d1").records]
        assert shown == [("c1", None)], "nor is it taken at its word about what is open"
        assert sum(bool(each.url.query) for each in side.requests) == 1
        assert "command-status" in side.offer.describe().split("refused")[1]
        again = Offer(side.client, side.clock, on_change=lambda: None, store=side.store)
        again.begin()
        side.run(side.worker(again), 1.0)
        assert not again.knows(extensions.COMMAND_STATUS)
        assert again.knows(extensions.RECORDED_AT)

    def test_another_version_of_the_service_is_another_service(self, make_side):
        side = make_side()
        side.offer.withdraw(extensions.COMMAND_STATUS, "400")
        versions = ["1", "1", "", "2"]
        offer = Offer(side.client, side.clock, on_change=lambda: None, store=side.store)
        offer.begin()

        def announce(request: httpx.Request) -> httpx.Response:
            return httpx.Response(200, json={"extensions": side.offered, "version": versions[0]})

        side.announce = announce
        known = []
        while versions:
            offer.run(offer.name)
            known.append(offer.knows(extensions.COMMAND_STATUS))
            del versions[0]
        assert known == [False, False, False, True]

    def test_a_device_that_comes_is_asked_about_at_once(self, side):
        side.commands.serve({"d1"})
        side.backend.seen("d1", Transport.MQTT)
        assert side.arrived == ["d1"]
        side.commands.hint("d1")
        assert side.worker(side.commands).due_at() <= side.clock.now().monotonic_s
        side.backend.seen("d1", Transport.MQTT)
        assert side.arrived == ["d1"], "it is there already"

    def test_one_malformed_command_hides_no_other(self, side):
        good = {"id": "c1", "command_payload": {"command": "ping"}}
        side.answer = lambda _request: httpx.Response(200, json=[{"id": "bad"}, good])
        side.commands.serve({"d1"})
        side.run(side.worker(side.commands), 61)
        assert [each["id"] for each in side.backend.open_commands("d1").records] == ["c1"]

    def test_a_device_that_the_service_does_not_know_is_refused_until_it_is_registered(self, side):
        side.answer = fault(404, "device_not_found")
        side.commands.serve({"d1"})
        worker = side.worker(side.commands)
        side.run(worker, 61)
        with pytest.raises(UnknownDevice):
            side.backend.open_commands("d1")
        side.answer = lambda _request: httpx.Response(200, json=[])
        side.run(worker, 130)
        assert side.backend.open_commands("d1").records == ()

    def test_a_device_without_a_token_is_asked_about_no_longer(self, side):
        side.answer = lambda _request: httpx.Response(200, json=[])
        side.commands.serve({"d1", "d2"})
        side.commands.serve({"d2"})
        side.run(side.worker(side.commands), 200)
        assert {each.url.path for each in side.requests} == {"/devices/d2/commands"}


class TestSecrets:
    def test_a_result_is_kept_and_reported_without_what_looks_like_a_key(self, side: Side) -> None:
        side.conclude("c1", result={"seen": ["msk_0123456789"]}, error="401 for msk_0123456789")
        (waiting,) = side.store.call(lambda store: store.commands.next_results(5))
        assert (waiting.result, waiting.error) == ({"seen": [MASK]}, f"401 for {MASK}")
        assert b"msk_0123456789" not in b"".join(each.read_bytes() for each in side.folder.iterdir() if each.is_file())


class TestTheServicesTime:
    """A command is over at its end, however old the service's ``Date`` is."""

    def dated(self, at_s: float, *records: dict[str, Any]) -> Answer:
        headers = {"date": formatdate(at_s, usegmt=True)}
        return lambda _request: httpx.Response(200, json={"data": records}, headers=headers)

    def record(self, ends_s: float) -> dict[str, Any]:
        return {
            "id": "c1",
            "device_id": "d1",
            "command_payload": {"command": "ping"},
            "status": "queued",
            "created_at": to_rfc3339(START_WALL_S),
            "expires_at": to_rfc3339(ends_s),
        }

    def test_an_answer_from_before_a_stall_moves_nothing_back(self, side: Side) -> None:
        clock = ServiceClock(side.clock, trust_wall=True)
        side.client.connection.on_date = clock.observe
        side.command_cache = CommandCache(lambda: clock.now() or 0.0)
        side.answer = self.dated(START_WALL_S)
        list(side.client.devices())
        open_one = StoredCommand("d1", "c1", self.record(START_WALL_S + 20), expires_at=START_WALL_S + 20)
        side.command_cache.put("d1", [open_one])
        side.clock.advance(19)
        assert len(side.command_cache.get("d1").records) == 1
        side.clock.advance(11)
        side.answer = self.dated(START_WALL_S + 1)  # the service stood still, and so did its Date
        list(side.client.devices())
        assert side.command_cache.get("d1").records == ()

    def test_who_has_no_token_any_more_is_forgotten(self, side: Side) -> None:
        for device_id in ("d1", "d2"):
            side.backend.seen(device_id, Transport.HTTP)
            side.backend.set_known(device_id, known=False)
        side.backend.serve_only({"d2"})
        assert side.backend.unknown_devices() == ["d2"]
        assert side.backend.online(60.0) == 1
        side.backend.save_presence()

    def test_a_command_that_ended_is_shown_as_expired_before_it_is_moved(self, side: Side) -> None:
        record = self.record(START_WALL_S + 20)
        command = StoredCommand("d1", "c1", record, START_WALL_S, START_WALL_S + 20)
        side.backend.take_listed("d1", [command], ListRead(START_WALL_S))
        assert [one["status"] for one in side.backend.commands_of("d1").result(60).records()] == ["queued"]
        side.clock.advance(21)
        assert [one["status"] for one in side.backend.commands_of("d1").result(60).records()] == ["expired"]


class TestEvents:
    def test_a_command_has_the_id_that_it_has_in_the_list(self, side):
        record = {"id": 7, "ref": "r7", "device_id": "d1", "command_payload": {"command": "ping"}, "status": "queued"}
        event = f"event: command\ndata: {json.dumps(record)}\n\n"
        side.answer = lambda _request: httpx.Response(200, stream=httpx.ByteStream(event.encode()))
        side.client.reading = AnswerReading(("ref",))
        events = EventService(
            side.client,
            side.offer,
            backend=side.backend,
            commands=side.commands,
            store=side.store,
            fetches=lambda _device_id: True,
            meter=side.meter,
            clock=side.clock,
            gate=side.gate("events"),
        )
        events.step()
        assert [each["id"] for each in side.backend.open_commands("d1").records] == ["r7"]


class TestTheMeter:
    def test_nobody_asks_what_the_service_offers_while_holding_a_grant(self, tmp_path):
        side = Side(tmp_path)
        try:
            with pytest.raises(TransportError):
                side.offer.offers(extensions.BATCH_SENSOR_DATA)
            assert side.requests == []
        finally:
            side.close()

    def test_no_more_requests_are_made_than_the_quota_allows(self, side):
        left = [50]

        def counted(request: httpx.Request) -> httpx.Response:
            left[0] -= 1
            headers = {"ratelimit-policy": '"default";q=50;w=60', "ratelimit": f'"default";r={max(0, left[0])};t=60'}
            return httpx.Response(429 if left[0] < 0 else 200, json={}, headers=headers)

        side.answer = counted
        for number in range(100):
            side.conclude(f"c{number}")
        side.run(side.worker(side.results), 55)
        assert left[0] >= 0
        assert side.meter.state().refused == 0
        assert side.stats().results >= 50
