"""The gateway's store: what was committed is there, what was handed in twice is there once, what is full says so."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from agent.errors import ConfigurationError, StorageError
from agent.wire.commands import CommandResult
from agent.wire.times import to_rfc3339
from gateway.backend import Backend
from gateway.command_cache import CommandCache
from gateway.ports import Hints, NewReading, StoreFull, UnknownCommand
from gateway.store import reading_rows
from gateway.store.command_rows import AGE_UNKNOWN, FORGET_AFTER_S, HELD_MAX_S, STRANGERS_MAX
from gateway.store.gateway_store import GatewayStore
from gateway.store.schema import FILE_NAME
from gateway.store.service import StoreWriter
from gateway.store.values import ListRead, Presence, Reconciled, StoreBounds, StoredCommand, StoredState
from tests.fakes import START_WALL_S, FakeClock

NOW_S = START_WALL_S
DONE = CommandResult(status="succeeded", result={"n": 1})


def take_whole_list(
    store: GatewayStore, device_id: str, listed: Sequence[StoredCommand], now_s: float, look: ListRead | None = None
) -> Reconciled:
    """What the gateway does with a list that fits on one page."""
    look = look or ListRead()
    taken = store.commands.take_listed(device_id, listed, now_s, look)
    gone = store.commands.finish_list(device_id, {command.id for command in listed}, now_s, (), look)
    return Reconciled(taken.new, taken.gone + gone, tuple(store.commands.open_of(device_id)), taken.left)


class Bench:
    """A store and its thread; :meth:`again` is the next process's."""

    def __init__(self, folder: Path, bounds: StoreBounds | None = None) -> None:
        self.path = folder / FILE_NAME
        self.clock = FakeClock()
        self.bounds = bounds or StoreBounds()
        self.incidents: list[str] = []
        self.service = self._open()

    def __call__(self, work: Callable[[GatewayStore], Any]) -> Any:
        return self.service.call(work)

    def again(self) -> None:
        self.close()
        self.service = self._open()

    def close(self) -> None:
        assert self.service.stop(60)

    def take(self, *readings: NewReading, device: str = "d1", at_s: float = NOW_S) -> int:
        return int(self(lambda store: store.readings.take(device, readings, at_s)))

    def batch(self, limit: int = 500, at_s: float = NOW_S, **more: Any) -> Any:
        return self(lambda store: store.readings.next_batch(limit, at_s, **more))

    def list(self, *commands: StoredCommand, device: str = "d1", at_s: float = NOW_S) -> Any:
        return self(lambda store: take_whole_list(store, device, commands, at_s))

    def result(self, command_id: str, result: CommandResult = DONE, device: str = "d1") -> Any:
        return self(lambda store: store.commands.take_result(device, command_id, result, NOW_S))

    def _open(self) -> StoreWriter:
        service = StoreWriter(self.path, clock=self.clock, bounds=self.bounds, on_incident=self.incidents.append)
        service.start()
        return service


@pytest.fixture
def make_bench(tmp_path: Path) -> Iterator[Callable[..., Bench]]:
    made: list[Bench] = []

    def make(bounds: StoreBounds | None = None) -> Bench:
        made.append(Bench(tmp_path, bounds))
        return made[-1]

    yield make
    for bench in made:
        bench.close()


@pytest.fixture
def store(make_bench) -> Bench:
    return make_bench()


def reading(key: str | None = None, at_s: float = NOW_S, **values: float) -> NewReading:
    return NewReading(values or {"t": 21.5}, at_s, key)


def command(command_id: str, device: str = "d1", **members: Any) -> StoredCommand:
    return StoredCommand(device, command_id, {"id": command_id, "status": "queued"}, **members)


class TestReadings:
    def test_a_reading_that_was_taken_is_there_for_the_next_process(self, store):
        assert store.take(reading(t=1.0), reading(t=2.0)) == 2
        store.again()
        assert [item["sensor_data"] for item in store.batch().items] == [{"t": 1.0}, {"t": 2.0}]

    def test_a_reading_handed_in_again_under_its_key_is_kept_once(self, store):
        assert store.take(reading("k1")) == 1
        store.again()
        assert store.take(reading("k1"), reading("k2")) == 1
        assert store(lambda s: s.stats()).readings == 2
        assert store(lambda s: s.stats()).counters["readings_repeated"] == 1

    def test_a_key_belongs_to_its_device(self, store):
        assert store.take(reading("k1"), device="d1") == 1
        assert store.take(reading("k1"), device="d2") == 1

    def test_a_key_is_remembered_after_its_reading_was_forwarded(self, store):
        store.take(reading("k1"))
        batch = store.batch()
        store(lambda s: s.readings.batch_stored(batch, {}, NOW_S))
        assert store.take(reading("k1")) == 0

    def test_a_batch_goes_again_with_the_same_bytes_and_key(self, store):
        store.take(reading(t=1.0))
        first = store.batch()
        store.take(reading(t=2.0))
        store.again()
        assert store.batch() == first
        assert store.batch(but_not=[first.id]).items[0]["sensor_data"] == {"t": 2.0}

    def test_a_batch_stays_below_the_largest_body(self, store):
        store.take(*(reading(**{"x" * 100_000: 1.0}) for _ in range(5)))
        assert len(store.batch().items) == 2

    def test_what_is_refused_is_set_aside_with_the_reason_and_the_rest_counts(self, store):
        store.take(reading(t=1.0), reading(t=2.0))
        batch = store.batch()
        store(lambda s: s.readings.batch_stored(batch, {1: "bad_unit: no"}, NOW_S))
        stats = store(lambda s: s.stats())
        assert (stats.readings, stats.size_bytes, stats.set_aside) == (0, 0, 1)
        assert (stats.counters["readings_forwarded"], stats.counters["readings_refused"]) == (1, 1)

    def test_refusals_are_kept_up_to_a_bound_the_newest_ones(self, store, monkeypatch):
        monkeypatch.setattr(reading_rows, "SET_ASIDE_MAX", 2)
        store.take(*(reading(t=float(n)) for n in range(5)))
        batch = store.batch()
        store(lambda s: s.readings.batch_stored(batch, {n: f"no {n}" for n in range(5)}, NOW_S))
        store(lambda s: s.readings.tidy(NOW_S))
        assert store(lambda s: s.stats()).set_aside == 2

    def test_a_batch_that_is_split_loses_nothing(self, store):
        store.take(*(reading(t=float(n)) for n in range(5)))
        batch = store.batch()
        store(lambda s: s.readings.split(batch))
        first, second = store.batch(), store.batch(but_not=[store.batch().id])
        assert [item["sensor_data"]["t"] for half in (first, second) for item in half.items] == [0, 1, 2, 3, 4]
        assert len({batch.key, first.key, second.key}) == 3
        assert store(lambda s: s.stats()).readings == 5

    def test_a_batch_that_is_deferred_lets_the_others_go_first_and_keeps_its_key(self, store):
        for n in range(2):
            store.take(reading(t=float(n)))
        first = store.batch(limit=1)
        second = store.batch(limit=1, but_not=[first.id])
        store.take(reading(t=2.0))
        store(lambda s: s.readings.defer(first, NOW_S + 10))
        assert store.batch() == second
        third = store.batch(but_not=[second.id])
        assert third.items[0]["sensor_data"] == {"t": 2.0}, "what is new goes first, too"
        assert store.batch(but_not=[second.id, third.id]) == first, "nothing else waits"
        assert store.batch(at_s=NOW_S + 20, but_not=[second.id, third.id]) == first

    def test_a_full_store_takes_nothing_and_says_so(self, make_bench):
        store = make_bench(StoreBounds(max_rows=2))
        store.take(reading())
        with pytest.raises(StoreFull, match="store"):
            store.take(reading("k1"), reading("k2"))
        assert store.take(reading("k1")) == 1, "none of the refused ones was kept, nor their keys"

    def test_the_bound_in_bytes_counts_too(self, make_bench):
        store = make_bench(StoreBounds(max_bytes=40))
        store.take(reading(temperature=1.0))
        with pytest.raises(StoreFull):
            store.take(reading(temperature_of_the_other_side=1.0))

    def test_what_is_too_old_is_dropped_and_counted(self, make_bench):
        store = make_bench(StoreBounds(max_age_s=100))
        store.take(reading(), at_s=NOW_S - 200)
        store.take(reading(), at_s=NOW_S - 50)
        assert store(lambda s: s.readings.tidy(NOW_S)) == 1
        stats = store(lambda s: s.stats())
        assert (stats.readings, stats.counters["readings_dropped_for_age"]) == (1, 1)


class TestCommands:
    def test_a_listed_command_is_open_until_its_device_tells_how_it_ended(self, store):
        assert store.list(command("c1")).new == ("c1",)
        assert store.result("c1")["status"] == "succeeded"
        store.again()
        assert store(lambda s: s.commands.open_ones()) == []
        found = store.list(command("c1"))
        assert (found.new, found.open) == ((), ()), "the service lists it until it has the result"

    def test_the_first_final_word_counts(self, store):
        store.list(command("c1"))
        store.result("c1")
        assert store.result("c1", CommandResult(status="failed", error="late"))["status"] == "succeeded"
        [waiting] = store(lambda s: s.commands.next_results(10))
        assert (waiting.status, waiting.result) == ("succeeded", {"n": 1})

    def test_progress_leaves_it_open_and_is_replaced_by_the_end(self, store):
        store.list(command("c1"))
        assert store.result("c1", CommandResult(status="in_progress"))["status"] == "in_progress"
        assert [each.id for each in store(lambda s: s.commands.open_of("d1"))] == ["c1"]
        store.result("c1")
        assert [each.status for each in store(lambda s: s.commands.next_results(10))] == ["succeeded"]

    def test_a_result_for_a_command_of_another_gateway_is_taken(self, store):
        store.result("elsewhere")
        [waiting] = store(lambda s: s.commands.next_results(10))
        assert waiting.command_id == "elsewhere"
        assert store.list(command("elsewhere")).new == ()

    def test_a_command_that_the_service_does_not_know_is_refused_the_second_time(self, store):
        store.result("made up")
        [waiting] = store(lambda s: s.commands.next_results(10))
        store(lambda s: s.commands.result_settled(waiting, "404", StoredState.UNKNOWN, NOW_S))
        with pytest.raises(UnknownCommand):
            store.result("made up")
        assert store(lambda s: s.stats()).set_aside == 1

    @pytest.mark.parametrize("status", ["succeeded", "in_progress"])
    def test_so_many_results_for_commands_that_nobody_has_are_kept_and_no_more(self, store, status):
        result = CommandResult(status=status)
        for number in range(STRANGERS_MAX):
            store.result(f"made up {number}", result)
        store.result("made up 0", result)
        with pytest.raises(StoreFull, match="not known here"):
            store.result("one more", result)
        assert store(lambda s: s.stats()).results == STRANGERS_MAX
        store.list(command("c1"))
        store.result("c1")

    def test_a_device_that_makes_commands_up_is_told_so_at_once(self, store):
        for number in range(STRANGERS_MAX):
            store.result(f"made up {number}")
            [waiting] = store(lambda s: s.commands.next_results(10))
            store(lambda s, w=waiting: s.commands.result_settled(w, "404", StoredState.UNKNOWN, NOW_S))
        with pytest.raises(UnknownCommand):
            store.result("one more")
        assert store(lambda s: s.stats()).results == 0

    def test_a_result_that_came_while_progress_was_told_is_not_lost(self, store):
        store.list(command("c1"))
        store.result("c1", CommandResult(status="in_progress"))
        [progress] = store(lambda s: s.commands.next_results(10))
        store.result("c1")
        store(lambda s: s.commands.result_settled(progress, None, StoredState.REPORTED, NOW_S))
        assert [each.status for each in store(lambda s: s.commands.next_results(10))] == ["succeeded"]

    def test_what_the_service_no_longer_lists_is_gone_and_may_come_back(self, store):
        store.list(command("c1"), command("c2"))
        assert store.list(command("c2")).gone == 1
        assert [each.id for each in store.list(command("c1"), command("c2")).open] == ["c1", "c2"]

    def test_what_a_plain_server_lists_as_over_is_never_open(self, store):
        assert store.list(command("c1", is_open=False)).open == ()

    def test_a_pushed_command_is_known_when_it_is_listed(self, store):
        assert store(lambda s: s.commands.admit(command("c1"), NOW_S)).new == ("c1",)
        assert store(lambda s: s.commands.admit(command("c1"), NOW_S)).new == ()
        assert store.list(command("c1")).new == ()

    def test_a_command_expires_by_the_services_clock(self, store):
        store.list(command("c1", expires_at=500.0), command("c2"))
        assert store(lambda s: s.commands.expire(501.0, NOW_S)) == ["d1"]
        assert [each.id for each in store(lambda s: s.commands.open_ones())] == ["c2"]

    def test_a_list_of_remembered_commands_ends_at_its_bounds_and_none_is_decoded_in_the_stores_thread(
        self, store, monkeypatch
    ):
        note = {"status": "queued", "note": "x" * 1000}
        store.list(*(StoredCommand("d1", f"c{number}", {"id": f"c{number}", **note}) for number in range(20)))
        threads: list[str] = []
        decode = json.loads

        def loads(*arguments: Any, **more: Any) -> Any:
            threads.append(threading.current_thread().name)
            return decode(*arguments, **more)

        monkeypatch.setattr(json, "loads", loads)
        backend = Backend(store.service, CommandCache(lambda: NOW_S), store.clock, hints=lambda _: Hints(60.0))
        assert [each["id"] for each in backend.commands_of("d1").result(60).records()][:2] == ["c19", "c18"]
        assert [each["id"] for each in backend.command_of("d1", "c7").result(60).records()] == ["c7"]
        assert backend.command_of("d1", "other").result(60).records() == ()
        assert threads
        assert "store" not in threads
        assert len(store(lambda s: s.commands.of_device("d1", 5, 1_000_000))) == 5
        assert len(store(lambda s: s.commands.of_device("d1", 20, 5_500))) == 5
        assert len(store(lambda s: s.commands.of_device("d1", 20, 1))) == 1

    def test_a_finished_command_is_forgotten_long_after_it_was_listed_last(self, store):
        store.list(command("c1", is_open=False))
        store.list(command("c1", is_open=False), at_s=NOW_S + FORGET_AFTER_S + 1)
        assert len(store(lambda s: s.commands.of_device("d1", 10, 10_000))) == 1, "it is still listed"
        store.list(at_s=NOW_S + FORGET_AFTER_S + 1)
        assert store(lambda s: s.commands.of_device("d1", 10, 10_000)) == []

    def test_results_are_bounded_and_a_repeat_needs_no_room(self, make_bench):
        store = make_bench(StoreBounds(max_results=1))
        store.list(command("c1"), command("c2"))
        store.result("c1", CommandResult(status="in_progress"))
        store.result("c1")
        with pytest.raises(StoreFull):
            store.result("c2")
        assert [each.id for each in store(lambda s: s.commands.open_of("d1"))] == ["c2"], "nothing of it was kept"


class TestTheThread:
    def test_one_callers_fault_undoes_that_callers_work_only(self, store):
        def fault(s: GatewayStore) -> None:
            s.put_setting("a", "1")
            raise ValueError("mine")

        futures: list[Future[Any]] = [
            store.service.submit(fault),
            store.service.submit(lambda s: s.put_setting("b", "2")),
        ]
        with pytest.raises(StorageError, match="mine"):
            futures[0].result(60)
        futures[1].result(60)
        assert (store(lambda s: s.setting("a")), store(lambda s: s.setting("b"))) == (None, "2")

    def test_what_is_told_after_the_commit_is_told_before_the_caller_knows(self, store):
        told: list[str] = []

        def work(s: GatewayStore) -> None:
            s.after_commit(lambda: told.append("shown"))

        store.service.submit(work).add_done_callback(lambda _: told.append("answered"))
        store(lambda s: None)
        assert told == ["shown", "answered"]

    def test_a_caller_that_hung_up_loses_nothing(self, store):
        held, go = threading.Event(), threading.Event()

        def wait(_store: GatewayStore) -> None:
            held.set()
            go.wait(60)

        store.service.submit(wait)
        assert held.wait(60)
        gone = store.service.submit(lambda s: s.put_setting("a", "1"))
        assert gone.cancel()
        go.set()
        assert store(lambda s: s.setting("a")) == "1"

    def test_after_the_stop_nothing_is_taken(self, store):
        store.close()
        with pytest.raises(StorageError, match="closed"):
            store.take(reading())

    def test_presence_is_kept(self, store):
        store(lambda s: s.put_presence({"d1": Presence("mqtt", online=True, seen_wall_s=1.0)}))
        store(lambda s: s.put_presence({"d1": Presence("http", online=False, seen_wall_s=2.0)}))
        store.again()
        assert store(lambda s: s.presence()) == {"d1": Presence("http", online=False, seen_wall_s=2.0)}

    def test_a_damaged_file_is_moved_aside_and_told(self, store):
        store.take(reading())
        store.close()
        store.path.write_bytes(b"SQLite format 3\0" + b"\xff" * 5000)
        store.again()
        assert store(lambda s: s.stats()).readings == 0
        assert "damaged" in store.incidents[0]
        assert list(store.path.parent.glob("gateway.db.damaged-*"))

    def test_another_programs_file_is_left_alone(self, tmp_path):
        with sqlite3.connect(tmp_path / FILE_NAME) as connection:
            connection.execute("CREATE TABLE schema_version (version INTEGER)")
        connection.close()
        service = StoreWriter(tmp_path / FILE_NAME, clock=FakeClock())
        with pytest.raises(ConfigurationError, match="another program"):
            service.start()


class TestListsThatAreNotTheTruth:
    """Plain servers: a list says nothing about what is not on it."""

    def look(self, store: Bench, *commands: StoredCommand, at_s: float = NOW_S) -> Any:
        look = ListRead(at_s, is_truth=False)
        return store(lambda s: take_whole_list(s, "d1", commands, at_s, look))

    def test_a_command_that_was_handed_out_once_stays_until_its_device_has_ended_it(self, store):
        self.look(store, command("c1"))
        for _ in range(3):
            assert [each.id for each in self.look(store).open] == ["c1"]
        store.result("c1")
        assert self.look(store).open == ()

    def test_it_stays_over_a_restart_and_expires_by_the_services_clock(self, store):
        self.look(store, command("c1", expires_at=NOW_S + 60))
        store.again()
        assert len(self.look(store).open) == 1
        assert store(lambda s: s.commands.expire(NOW_S + 61, NOW_S + 61)) == ["d1"]

    def test_after_a_month_off_the_list_it_is_given_up_and_counted(self, store):
        self.look(store, command("c1"), command("c2"))
        found = self.look(store, command("c2"), at_s=NOW_S + HELD_MAX_S + 1)
        assert [each.id for each in found.open] == ["c2"]
        assert store(lambda s: s.stats()).counters["commands_given_up"] == 1

    def test_a_list_that_never_shrinks_leaves_room_for_new_commands(self, store, monkeypatch):
        look = ListRead(NOW_S, is_truth=False)
        old = [command(f"old-{number}", created_at=NOW_S - 1000 + number) for number in range(10)]
        for _ in range(2):
            found = store(lambda s: s.commands.take_listed("d1", old, NOW_S, look, most_open=5))
        assert [each.id for each in found.open] == [f"old-{number}" for number in range(5, 10)]
        assert found.dropped == 0, "what was dropped is not dropped again"
        new = [*old, command("new", created_at=NOW_S)]
        found = store(lambda s: s.commands.take_listed("d1", new, NOW_S, look, most_open=5))
        assert (found.open[-1].id, found.dropped) == ("new", 1)

    def test_where_the_list_is_the_truth_the_rest_stays_at_the_service(self, store):
        many = [command(f"c{number}", created_at=NOW_S + number) for number in range(10)]
        found = store(lambda s: s.commands.take_listed("d1", many, NOW_S, ListRead(NOW_S), most_open=4))
        assert (len(found.open), found.left) == (4, 6)
        for number in range(4):
            store.result(f"c{number}")
        found = store(lambda s: s.commands.take_listed("d1", many, NOW_S, ListRead(NOW_S), most_open=4))
        assert [each.id for each in found.open] == ["c4", "c5", "c6", "c7"]


class TestWhenACommandWasSeen:
    def test_the_record_says_when_the_gateway_first_saw_it_and_for_ever_the_same(self, store):
        store(lambda s: take_whole_list(s, "d1", [command("c1", created_at=5.0)], NOW_S, ListRead(NOW_S)))
        later = NOW_S + 500
        found = store(lambda s: take_whole_list(s, "d1", [command("c1", created_at=5.0)], later, ListRead(later)))
        assert found.open[0].record["listed_at"] == to_rfc3339(NOW_S)

    def test_without_a_time_of_its_own_the_first_list_may_be_of_any_age_and_the_second_is_new(self, store):
        store(lambda s: take_whole_list(s, "d1", [command("c1")], NOW_S, ListRead(NOW_S)))
        found = store(lambda s: take_whole_list(s, "d1", [command("c1"), command("c2")], NOW_S, ListRead(NOW_S)))
        dates = {each.id: each.record["listed_at"] for each in found.open}
        assert dates == {"c1": AGE_UNKNOWN, "c2": to_rfc3339(NOW_S)}

    def test_every_part_of_the_first_list_may_be_of_any_age(self, store):
        look = ListRead(NOW_S, is_truth=False)
        for name in ("c1", "c2"):
            found = store(lambda s, name=name: s.commands.take_listed("d1", [command(name)], NOW_S, look))
        assert {each.record["listed_at"] for each in found.open} == {AGE_UNKNOWN}

    def test_a_time_beyond_the_services_own_clock_says_nothing_about_the_age(self, store):
        look = ListRead(NOW_S, until_s=NOW_S + 60)
        known = command("known", created_at=NOW_S + 65)  # sent while the list was read, page by page
        found = store(
            lambda s: s.commands.take_listed("d1", [known, command("c1", created_at=NOW_S + 3600)], NOW_S, look)
        )
        dates = {each.id: each.record["listed_at"] for each in found.open}
        assert dates == {"known": to_rfc3339(NOW_S), "c1": AGE_UNKNOWN}
        store(lambda s: s.commands.finish_list("d1", {"known", "c1"}, NOW_S, [], look))
        new = command("c2", created_at=NOW_S + 3700)
        found = store(lambda s: s.commands.take_listed("d1", [new], NOW_S, ListRead(NOW_S + 100, NOW_S + 100)))
        assert {each.record["listed_at"] for each in found.open if each.id == "c2"} == {to_rfc3339(NOW_S + 100)}

    def test_what_an_event_brings_was_sent_just_now(self, store):
        found = store(lambda s: s.commands.admit(command("c1"), NOW_S, NOW_S + 3))
        assert found.open[0].record["listed_at"] == to_rfc3339(NOW_S + 3)
