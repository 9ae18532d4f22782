"""PostgreSQL as the service's storage: what differs from SQLite, and what must not."""

from __future__ import annotations

import importlib.util
import logging

import psycopg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext

from agent.errors import ConfigurationError
from simulator.service.config import ServiceConfig
from simulator.service.storage import postgresql as under_test
from simulator.service.storage.database import Database
from simulator.service.storage.tables import METADATA
from tests.service_running import running


@pytest.fixture
def url(postgresql):
    with postgresql.database() as url:
        yield url


def test_the_migrations_make_the_tables_that_the_code_uses(url):
    database = Database(url=url)
    with database.reading() as connection:
        assert compare_metadata(MigrationContext.configure(connection), METADATA) == []
    database.close()


def test_texts_compare_by_their_bytes_as_on_sqlite(url):
    Database(url=url).close()
    with psycopg.connect(url) as connection:
        rows = connection.execute(
            "SELECT DISTINCT collation_name FROM information_schema.columns"
            " WHERE table_schema = 'public' AND data_type = 'text' AND table_name <> 'alembic_version'"
        ).fetchall()
    assert rows == [("C",)]


def test_a_database_is_opened_again_and_a_newer_schema_is_refused_with_a_sentence(url):
    for _ in range(2):
        Database(url=url).close()
    with psycopg.connect(url) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    for _ in range(2):
        with pytest.raises(ConfigurationError, match="'9999'.*newer release.*upgrade"):
            Database(url=url)


def test_one_database_serves_one_service_at_a_time(url, monkeypatch):
    monkeypatch.setattr(under_test, "LOCK_S", 1)
    first = Database(url=url)
    with pytest.raises(ConfigurationError, match="used by another running service"):
        Database(url=url)
    first.close()
    Database(url=url).close()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda url: url.rpartition("/")[0] + "/nothing_here", "there is no such database.*createdb nothing_here"),
        (lambda _: "postgresql://tester:hunter2@127.0.0.1:1/x", "cannot be used.*refused.*is the server running"),
        (lambda _: "mysql://a/b", "must be a URL such as postgresql://"),
        (lambda _: "postgresql://a:no_port/b", "must be a URL such as postgresql://"),
    ],
)
def test_a_database_that_cannot_be_used_is_one_sentence_without_the_password(url, change, sentence):
    with pytest.raises(ConfigurationError, match=sentence) as caught:
        Database(url=change(url))
    (fault,) = caught.value.faults
    assert "\n" not in fault
    assert "hunter2" not in fault


def test_a_wrong_password_is_one_sentence(postgresql, url):
    rules = postgresql.folder / "data" / "pg_hba.conf"
    before = rules.read_text()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE ROLE guarded LOGIN PASSWORD 'right'")
        rules.write_text("host all guarded 127.0.0.1/32 scram-sha-256\n" + before)
        connection.execute("SELECT pg_reload_conf()")
        try:
            for given in (":hunter2", ""):
                with pytest.raises(ConfigurationError, match="refuses this user or password") as caught:
                    Database(url=url.replace("tester@", f"guarded{given}@"))
                assert "hunter2" not in str(caught.value)
        finally:
            rules.write_text(before)
            connection.execute("SELECT pg_reload_conf()")
            connection.execute("DROP ROLE guarded")


def test_a_missing_driver_names_the_extra(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(ConfigurationError, match=r"\.\[postgres\]"):
        Database(url="postgresql://127.0.0.1/x")


def test_a_password_is_not_shown_with_the_settings():
    assert "hunter2" not in repr(ServiceConfig(database="postgresql://a:hunter2@127.0.0.1/x"))


def test_folder_and_database_exclude_each_other(tmp_path):
    with pytest.raises(ConfigurationError, match="not both"):
        ServiceConfig(database="postgresql://127.0.0.1/x", data_dir=tmp_path)


def test_while_the_database_is_gone_everything_is_503_and_afterwards_it_goes_on(postgresql, url, caplog):
    caplog.set_level(logging.CRITICAL)
    with running(database=url) as bench:
        device_id = bench.device()
        assert bench.post_reading(device_id).status_code == 201
        postgresql.stop()
        try:
            for answer in (
                bench.post_reading(device_id),
                bench.poll(device_id),
                bench.http.get("/products"),
                bench.http.post("/products", json={"name": "lost"}),
                bench.http.get("/_emulator/health"),
            ):
                assert answer.status_code == 503
                assert answer.json()["error"] == "storage_unavailable"
        finally:
            postgresql.start()
        assert bench.post_reading(device_id).status_code == 201
        assert bench.poll(device_id).status_code == 200
        assert [product["name"] for product in bench.http.get("/products").json()["data"]] == ["Door controller"]
        assert len(bench.http.get("/sensor-data", params={"device_id": device_id}).json()["data"]) == 2


def test_a_restart_of_the_database_that_nobody_saw_costs_no_request(postgresql, url, caplog):
    caplog.set_level(logging.CRITICAL)
    with running(database=url) as bench:
        device_id = bench.device()
        for _ in range(2):
            assert bench.poll(device_id).status_code == 200
            postgresql.stop()
            postgresql.start()
            assert bench.post_reading(device_id).status_code == 201
            assert bench.poll(device_id).status_code == 200
