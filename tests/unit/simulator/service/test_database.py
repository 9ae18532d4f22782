from __future__ import annotations

import asyncio
import sqlite3

import pytest
from sqlalchemy import insert

from agent.errors import ConfigurationError
from agent.wire.secret import Secret
from simulator.service.config import ServiceConfig
from simulator.service.presence import FLUSH_ROWS, Presence
from simulator.service.service import Service
from simulator.service.storage import stored_answers
from simulator.service.storage.database import Database
from simulator.service.storage.migrate import SCHEMA
from simulator.service.storage.sqlite import FILE_NAME
from simulator.service.storage.tables import rule_firings as rule_firings_table
from tests.service_running import ManualClock


def test_a_file_is_opened_again_with_what_it_holds(tmp_path):
    for _ in range(2):
        database = Database(tmp_path)
        with database.reading() as connection:
            assert connection.exec_driver_sql("PRAGMA user_version").scalar() == SCHEMA
            assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
            assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2
        database.close()


def test_another_schema_is_refused_with_a_sentence_and_left_alone(tmp_path):
    Database(tmp_path).close()
    with sqlite3.connect(tmp_path / FILE_NAME) as file:
        file.execute("PRAGMA user_version = 9999")
    file.close()
    for _ in range(2):
        with pytest.raises(ConfigurationError, match="of another release .schema 9999, this one has"):
            Database(tmp_path)


def test_one_folder_serves_one_service_at_a_time(tmp_path):
    first = Database(tmp_path)
    with pytest.raises(ConfigurationError, match="used by another running service"):
        Database(tmp_path)
    first.close()
    Database(tmp_path).close()


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="give a folder"):
        Database(tmp_path / "file" / "below")


def _service(tmp_path, **settings):
    return Service(ServiceConfig(data_dir=tmp_path, **settings))


def test_keys_are_made_once_shown_once_and_stored_hashed(tmp_path):
    first = _service(tmp_path)
    api_key, secret = first.accounts.api_key, first.accounts.secret_key
    assert api_key.startswith("mk_")
    assert secret.reveal().startswith("msk_")
    first.close()
    stored = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert api_key.encode() in stored
    assert secret.reveal().encode() not in stored
    second = _service(tmp_path)
    assert second.made_keys is None
    assert second.accounts.api_key == api_key
    assert second.callers[api_key.encode()].secret_hash == first.callers[api_key.encode()].secret_hash
    with pytest.raises(ConfigurationError, match="shown on the first start.* a new pair, with --api-key"):
        _ = second.accounts.secret_key
    second.close()


def test_given_keys_keep_working_are_added_to_the_account_and_never_change_their_secret(tmp_path):
    for api_key in ("mk_one", "mk_one", "mk_two"):
        service = _service(tmp_path, api_key=api_key, secret_key=Secret("msk_x"))
        assert service.accounts.api_key == api_key
        accounts = {caller.manufacturer_seq for caller in service.callers.values()}
        assert len(accounts) == 1
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


def test_all_faults_of_the_settings_come_at_once():
    with pytest.raises(ConfigurationError) as caught:
        ServiceConfig(port=-1, rate_limit=-1, api_key="x")
    assert len(caught.value.faults) == 4


def test_presence_is_written_along_and_bounded():
    presence = Presence()
    presence.touch(1, 10_000)
    assert presence.last_seen(1, None) == 10_000
    assert presence.last_seen(2, 5) == 5
    assert presence.is_due(10_000)  # never flushed yet
    presence._flushed_ms = 10_000
    assert not presence.is_due(14_999)
    assert presence.is_due(15_000)
    assert presence.is_due(9_000)  # the clock was set back
    for seq in range(FLUSH_ROWS):
        presence.touch(seq, 10_000)
    assert presence.is_due(10_001)


def test_who_is_being_written_as_seen_stays_seen_for_a_reader_of_the_rows_from_before():
    database, presence = Database(), Presence()
    presence.touch(1, 10_000)
    writer = database.open_writer()
    with database.writing(writer):
        presence.flush(writer, 10_000)
        assert presence.last_seen(1, None) == 10_000  # no reader sees the row before the commit
    assert presence.last_seen(1, 10_000) == 10_000
    presence.touch(1, 9_000)  # the clock was set back
    assert presence.last_seen(1, 10_000) == 9_000
    presence.clear()
    assert presence.last_seen(1, None) is None
    writer.close()
    database.close()


def test_old_answers_and_firings_are_pruned():
    clock = ManualClock(0)
    service = Service(ServiceConfig(clock=clock))
    key = stored_answers.RequestKey(1, "k", b"f")
    answer = stored_answers.StoredAnswer(201, b"{}", ())
    service.writer.call(lambda c: stored_answers.store(c, [(key, answer)], clock.now_ms()))

    async def work():
        await service._do_due()

    firing = {"manufacturer_seq": 1, "rule_seq": 1, "device_seq": 1, "fired_at": 0, "actions": "[]", "id": "f"}
    service.writer.call(lambda c: c.execute(insert(rule_firings_table), firing))

    clock.advance(86_399)
    asyncio.run(work())
    assert service.read_now(lambda c: stored_answers.find(c, [key], clock.now_ms()))
    clock.advance(61)
    asyncio.run(work())
    with service.database.reading() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM stored_answers").scalar() == 0
        assert connection.exec_driver_sql("SELECT count(*) FROM rule_firings").scalar() == 1
    clock.advance(29 * 86_400)
    asyncio.run(work())
    with service.database.reading() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM rule_firings").scalar() == 0
    service.close()
