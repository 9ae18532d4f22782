"""What the tests' own shortcuts save is not what the tests are about."""

from __future__ import annotations

import asyncio

import httpx
import psycopg
import uvicorn
from sqlalchemy import create_engine, text

from agent.wire.secret import Secret
from simulator.service.storage import database
from tests import shortcuts
from tests.service_running import running, stored_on

SQLITE = "SELECT type, name, sql FROM sqlite_master UNION ALL SELECT 'revision', version_num, '' FROM alembic_version"
POSTGRESQL = """
    SELECT table_name, column_name, data_type, column_default, is_nullable FROM information_schema.columns
        WHERE table_schema = 'public'
    UNION ALL SELECT tablename, indexname, indexdef, '', '' FROM pg_indexes WHERE schemaname = 'public'
    UNION ALL SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid), '', '' FROM pg_constraint
        WHERE connamespace = 'public'::regnamespace
    UNION ALL SELECT 'revision', version_num, '', '', '' FROM alembic_version
"""


KEYS = {"api_key": "mk_test", "secret_key": Secret("msk_test")}


def schema_in(folder) -> set[tuple]:
    with running(data_dir=folder, **KEYS):
        pass
    engine = create_engine(f"sqlite:///{next(folder.glob('*.db'))}")
    try:
        with engine.connect() as connection:
            return {tuple(row) for row in connection.execute(text(SQLITE))}
    finally:
        engine.dispose()


def test_tables_by_shortcut_are_those_of_the_migrations(tmp_path, monkeypatch):
    monkeypatch.setattr(shortcuts, "_written_down", {})
    first, second = schema_in(tmp_path / "first"), schema_in(tmp_path / "second")
    assert first == second
    assert any(kind == "revision" for kind, *_ in first)
    assert set(shortcuts._written_down) == {"sqlite"}


def look(bench, statement: str) -> list[tuple]:
    with bench.service._service.database.reading() as connection:
        return [tuple(row) for row in connection.execute(text(statement))]


def test_tables_by_shortcut_are_those_of_the_migrations_on_postgresql(postgresql, monkeypatch):
    monkeypatch.setattr(shortcuts, "_written_down", {})
    monkeypatch.setattr(postgresql, "_spare", [])
    with stored_on(postgresql), running() as first, running() as second:
        found = [set(look(bench, POSTGRESQL)) for bench in (first, second)]
    assert len(found[0]) > 100
    assert found[0] == found[1]


def test_a_database_of_postgresql_that_is_used_again_is_as_good_as_a_new_one(postgresql, monkeypatch):
    monkeypatch.setattr(postgresql, "_spare", [])
    tables = "SELECT relname FROM pg_stat_user_tables"
    numbers = "SELECT sequencename, last_value FROM pg_sequences WHERE last_value IS NOT NULL"
    found, names = [], []
    with stored_on(postgresql):
        for _ in range(2):
            with running() as bench:
                counts = {}
                for (name,) in look(bench, tables):
                    [(counts[name],)] = look(bench, f"SELECT count(*) FROM {name}")  # noqa: S608 - the database's own
                found.append((set(look(bench, POSTGRESQL)), counts, sorted(look(bench, numbers))))
                bench.send(bench.device())
                bench.post_reading(bench.device(identifier="SN-2"))
                assert look(bench, "SELECT count(*) FROM readings") == [(1,)]
                names.append(look(bench, "SELECT current_database()"))
    assert names[0] == names[1]
    assert found[0] == found[1]
    assert found[0][1]["readings"] == found[0][1]["commands"] == 0


def test_a_database_of_postgresql_whose_tables_were_changed_is_not_used_again(postgresql, monkeypatch):
    monkeypatch.setattr(postgresql, "_spare", [])
    names = []
    with stored_on(postgresql):
        for _ in range(2):
            with running() as bench:
                names.append(look(bench, "SELECT current_database()"))
                with psycopg.connect(bench.service.config.database, autocommit=True) as connection:
                    connection.execute("ALTER TABLE readings ADD COLUMN of_a_test text")
    assert names[0] != names[1]


def test_a_server_rests_a_tenth_as_long_before_it_ends(monkeypatch):
    rests = []

    async def rest(seconds: float) -> None:
        rests.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", rest)
    asyncio.run(uvicorn.server.asyncio.sleep(0.1))
    assert rests == [0.01]


def test_a_database_that_has_a_schema_is_migrated_as_ever(tmp_path, monkeypatch):
    schema_in(tmp_path / "data")
    migrated = []
    monkeypatch.setattr(database, "migrate", shortcuts._quick_schema(migrated.append))
    with running(data_dir=tmp_path / "data", **KEYS):
        assert len(migrated) == 1


def test_clients_share_one_set_of_certificates_unless_they_ask_for_others(monkeypatch):
    made = []
    create = shortcuts._one_trust_store(lambda **told: made.append(told) or object())
    assert create(verify=True, cert=None, trust_env=True) is create(verify=True, cert=None, trust_env=True)
    context = httpx.create_ssl_context()
    create(verify=context, cert=None, trust_env=True)
    monkeypatch.setenv("SSL_CERT_FILE", "/of/the/test.pem")
    create(verify=True, cert=None, trust_env=True)
    assert [told["verify"] for told in made] == [True, context, True]
