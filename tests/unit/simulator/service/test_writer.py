from __future__ import annotations

import asyncio
import contextlib

import pytest
from sqlalchemy import func, insert, select, text

from simulator.service.errors import Conflict, Unavailable
from simulator.service.storage import writer as writer_module
from simulator.service.storage.database import Database
from simulator.service.storage.tables import users
from simulator.service.storage.writer import Writer
from tests.sudden_ends import SuddenExit


def _add(name):
    def add(connection):
        connection.execute(insert(users).values(manufacturer_seq=1, id=name, created_at=0))
        return name

    return add


def _refuse_after(name):
    def refuse(connection):
        _add(name)(connection)
        raise Conflict("no", "No.")

    return refuse


def _break(connection):
    connection.execute(text("SELECT * FROM no_such_table"))


def _crash(_connection):
    raise ZeroDivisionError


@pytest.fixture(params=["memory", "file"])
def database(request, tmp_path):
    database = Database(None if request.param == "memory" else tmp_path)
    yield database
    database.close()


@pytest.fixture
def writer(database):
    writer = Writer(database, lambda _connection: None)
    yield writer
    if writer.is_alive:
        writer.stop()


def _names(database):
    with database.reading() as connection:
        return sorted(connection.execute(select(users.c.id)).scalars())


async def _all(writer, operations):
    futures = [writer.submit(operation) for operation in operations]
    writer.start()  # only now: all of them wait, and share one transaction
    return await asyncio.gather(*futures, return_exceptions=True)


def test_many_writes_share_one_commit(database, writer):
    results = asyncio.run(_all(writer, [_add(f"u{i}") for i in range(200)]))
    assert results == [f"u{i}" for i in range(200)]
    assert (writer.groups, writer.jobs) == (1, 200)
    assert len(_names(database)) == 200


def test_a_refused_write_leaves_nothing_and_takes_nobody_with_it(database, writer):
    results = asyncio.run(_all(writer, [_add("a"), _refuse_after("b"), _add("c")]))
    assert results[0] == "a"
    assert isinstance(results[1], Conflict)
    assert results[2] == "c"
    assert _names(database) == ["a", "c"]


@pytest.mark.parametrize(("bad", "kind"), [(_break, Unavailable), (_crash, ZeroDivisionError)])
def test_a_write_that_breaks_takes_nobody_with_it(database, writer, bad, kind, caplog):
    results = asyncio.run(_all(writer, [_add("a"), bad, _add("c")]))
    assert results[0] == "a"
    assert isinstance(results[1], kind)
    assert results[2] == "c"
    assert _names(database) == ["a", "c"]
    assert "rolled back" in caplog.text


def test_a_commit_that_fails_is_an_error_for_everybody_and_the_next_one_goes_through(database, caplog):
    broken = [True]

    def before_commit(connection):
        if broken[0]:
            connection.execute(text("SELECT * FROM no_such_table"))

    writer = Writer(database, before_commit)

    async def run():
        first = await _all(writer, [_add("a"), _add("b")])
        broken[0] = False
        return first, await writer.submit(_add("c"))

    first, last = asyncio.run(run())
    writer.stop()
    assert [error.error for error in first] == ["storage_unavailable"] * 2
    assert last == "c"
    assert _names(database) == ["c"]


def test_items_of_one_batch_are_written_together_and_in_order_with_the_rest(database, writer):
    sizes = []

    def batch(connection, items):
        sizes.append(len(items))
        connection.execute(insert(users), [{"manufacturer_seq": 1, "id": i, "created_at": 0} for i in items])
        seen = connection.execute(select(func.count()).select_from(users)).scalar_one()
        return [(item, seen) for item in items]

    async def run():
        futures = [writer.submit_item(batch, "a"), writer.submit_item(batch, "b"), writer.submit(_add("c"))]
        futures.append(writer.submit_item(batch, "d"))
        writer.start()
        return await asyncio.gather(*futures)

    assert asyncio.run(run()) == [("a", 2), ("b", 2), "c", ("d", 4)]
    assert sizes == [2, 1]


def test_what_waits_is_written_before_the_end(database, writer):
    async def run():
        futures = [writer.submit(_add(f"u{i}")) for i in range(50)]
        writer.start()
        await asyncio.to_thread(writer.stop)
        return await asyncio.gather(*futures)

    assert len(asyncio.run(run())) == 50
    assert len(_names(database)) == 50


def test_another_thread_waits_for_its_write_and_gets_its_error(database, writer):
    writer.start()
    assert writer.call(_add("a")) == "a"
    with pytest.raises(Conflict):
        writer.call(_refuse_after("b"))
    assert _names(database) == ["a"]


def test_more_waiting_writes_than_the_bound_are_503(database, writer, monkeypatch):
    monkeypatch.setattr(writer_module, "WAITING_MAX", 3)

    async def run():
        for i in range(3):
            writer.submit(_add(f"u{i}"))
        with pytest.raises(Unavailable) as caught:
            writer.submit(_add("one too many"))
        assert caught.value.error == "service_busy"

    asyncio.run(run())
    writer.start()


def test_more_bytes_of_waiting_writes_than_the_bound_are_503_until_they_are_written(database, writer, monkeypatch):
    monkeypatch.setattr(writer_module, "WAITING_BYTES_MAX", 1000)

    async def run():
        first = writer.submit(_add("alone it may be larger than the bound"), 1001)
        with pytest.raises(Unavailable) as caught:
            writer.submit_item(lambda _connection, items: items, "too large", 1)
        assert caught.value.error == "service_busy"
        assert caught.value.retry_after_s == 1
        writer.start()
        await first
        await asyncio.gather(*(writer.submit(_add(f"u{i}"), 500) for i in range(2)))
        with contextlib.suppress(Conflict):
            await writer.submit(_refuse_after("refused"), 500)
        given_up = writer.submit(_add("given up"), 500)
        given_up.cancel()
        await writer.submit(_add("u2"), 500)
        await writer.submit(_add("u3"), 1000)  # all others are counted no more

    asyncio.run(run())


def _end_the_thread(_connection):
    raise SuddenExit


def test_a_thread_that_an_error_ends_is_told_of_and_leaves_nobody_waiting(database):
    told = []
    writer = Writer(database, lambda _connection: None, on_failure=lambda *given: told.append(given))
    results = asyncio.run(_all(writer, [_add("a"), _end_the_thread, _add("b")]))
    assert [result.error for result in results] == ["storage_unavailable"] * 3
    assert [(name, type(error)) for name, error in told] == [("service-writer", SuddenExit)]

    async def write():
        return writer.submit(_add("c"))

    with pytest.raises(Unavailable, match="writing thread has ended"):
        asyncio.run(write())
    with pytest.raises(Unavailable, match="writing thread has ended"):
        writer.call(_add("d"))
    writer.stop()
    assert _names(database) == []
