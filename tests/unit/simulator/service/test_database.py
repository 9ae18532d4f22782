"""The storage of the service: one folder, one service, one transaction a turn; and the settings that it starts with."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3

import pytest

from agent.errors import ConfigurationError
from agent.wire.secret import Secret
from simulator.service.config import ServiceConfig
from simulator.service.db import FILE, Database, insert
from simulator.service.errors import ApiError
from simulator.service.service import Service


def test_another_schema_is_refused_with_a_sentence_and_left_alone(tmp_path):
    Database(tmp_path).close()
    with sqlite3.connect(tmp_path / FILE) as file:
        file.execute("PRAGMA user_version = 9999")
    file.close()
    for _ in range(2):
        with pytest.raises(ConfigurationError, match="of another version .9999"):
            Database(tmp_path)


def test_one_folder_serves_one_service_at_a_time_and_others_cannot_read_it(tmp_path):
    first = Database(tmp_path)
    assert {path.stat().st_mode & 0o077 for path in tmp_path.iterdir()} == {0}
    with pytest.raises(ConfigurationError, match="used by another running service"):
        Database(tmp_path)
    first.close()
    Database(tmp_path).close()


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="give a folder"):
        Database(tmp_path / "file" / "below")


def _add_user(sql: sqlite3.Connection, name: str) -> None:
    insert(sql, "users", account=1, id=name, created_at=0)


def _users(database: Database) -> list[str]:
    return [row["id"] for row in database.sql.execute("SELECT id FROM users ORDER BY id")]


@pytest.mark.parametrize("serves", [True, False])
def test_a_request_that_fails_takes_back_its_own_writes_only(serves: bool):
    async def work(database: Database) -> None:
        database.loop = asyncio.get_running_loop() if serves else None
        with database.write() as sql:
            _add_user(sql, "a")
        with contextlib.suppress(ZeroDivisionError), database.write() as sql:
            _add_user(sql, "b")
            raise ZeroDivisionError
        with database.write() as sql:
            _add_user(sql, "c")
        await database.committed()
        assert await database.aggregate(lambda sql: sql.execute("SELECT count(*) FROM users").fetchone()[0]) == 2

    database = Database()
    asyncio.run(work(database))
    assert _users(database) == ["a", "c"]
    database.close()


def test_requests_whose_transaction_a_full_disk_ended_are_told_so_and_later_ones_of_the_turn_are_stored():
    async def request(database: Database, name: str) -> None:
        with database.write() as sql:
            _add_user(sql, name)
            if name == "b":
                sql.execute("ROLLBACK")  # as SQLite does when the disk is full
                raise sqlite3.OperationalError("database or disk is full")
        await database.committed()

    async def work(database: Database) -> list[object]:
        database.loop = asyncio.get_running_loop()
        requests = [asyncio.create_task(request(database, name)) for name in "abc"]
        return await asyncio.wait_for(asyncio.gather(*requests, return_exceptions=True), 10)

    database = Database()
    first, second, third = asyncio.run(work(database))
    for failed in (first, second):
        assert isinstance(failed, ApiError)
        assert (failed.status_code, failed.error) == (503, "storage_unavailable")
    assert third is None
    assert _users(database) == ["c"]
    database.close()


def _service(tmp_path, **settings):
    return Service(ServiceConfig(data_dir=tmp_path, **settings))


def test_keys_are_made_once_shown_once_and_stored_hashed(tmp_path):
    first = _service(tmp_path)
    keys = first.own_keys
    assert keys is not None
    assert keys.api_key.startswith("mk_")
    assert keys.secret_key.reveal().startswith("msk_")
    first.close()
    stored = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert keys.api_key.encode() in stored
    assert keys.secret_key.reveal().encode() not in stored
    second = _service(tmp_path)
    assert second.own_keys is None
    second.close()


def test_given_keys_keep_working_are_added_to_the_account_and_never_change_their_secret(tmp_path):
    for api_key in ("mk_one", "mk_one", "mk_two"):
        service = _service(tmp_path, api_key=api_key, secret_key=Secret("msk_x"))
        assert service.db.sql.execute("SELECT count(DISTINCT account) FROM api_keys").fetchone()[0] == 1
        service.close()
    with pytest.raises(ConfigurationError, match="another secret key"):
        _service(tmp_path, api_key="mk_one", secret_key=Secret("msk_y"))
    _service(tmp_path, api_key="mk_one", secret_key=Secret("msk_x")).close()


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"api_key": "mk_a"}, "belong together"),
        ({"secret_key": Secret("msk_a")}, "belong together"),
        ({"api_key": "a", "secret_key": Secret("msk_a")}, "begin with 'mk_'"),
        ({"api_key": "mk_a", "secret_key": Secret("a")}, "begin with 'msk_'"),
        ({"api_key": "mk_ä", "secret_key": Secret("msk_a")}, "visible ASCII"),
        ({"rate_limit": -1}, "rate_limit"),
        ({"port": 65_536}, "port"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named(settings, sentence):
    with pytest.raises(ConfigurationError, match=sentence):
        ServiceConfig(**settings)
