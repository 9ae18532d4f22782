"""PostgreSQL: the same statements as on SQLite, over psycopg 3.

One writing connection holds an advisory lock for as long as it lives, so that a second service on the same database is
refused; readers see one snapshot per read. Texts compare by their bytes, as SQLite compares them: the order of a list
must not depend on a server's locale.
"""

from __future__ import annotations

import importlib.util
from typing import Any, Final

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url, text
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.pool import NullPool, QueuePool

from agent.errors import ConfigurationError
from simulator.service.failure_log import first_line

CONNECT_S: Final = 5
_INSTALL: Final = "pip install '.[postgres]' in a clone of device-agent"
LOCK_S: Final = 5
"""How long a predecessor's connection may take to go away: one that was killed is noticed within moments."""

_CONNECT: Final = {
    "connect_timeout": CONNECT_S,
    "client_encoding": "utf8",
    "application_name": "device-service",
    "tcp_user_timeout": 10_000,  # a peer that has vanished is an error in 10 s, not in two hours
}
_LOCK: Final = "SELECT pg_advisory_lock(hashtextextended('device-service ' || current_schema(), 0))"
_OTHER_COLLATION: Final = text(
    "SELECT table_name, column_name FROM information_schema.columns"
    " WHERE table_schema = current_schema() AND data_type = 'text' AND collation_name IS DISTINCT FROM 'C'"
    " ORDER BY table_name, ordinal_position"
)


def check_url(given: str) -> str | None:
    """What is wrong with a database URL, as a sentence; None for nothing."""
    try:
        url = make_url(given)
        known = url.drivername in {"postgresql", "postgres", "postgresql+psycopg"}
        _ = url.port
    except (ArgumentError, ValueError):
        known = False
    if not known:
        return "database must be a URL such as postgresql://user:password@host:5432/name; for SQLite give --data"
    return None


def engines(given: str, readers: int) -> tuple[Engine, Engine]:
    """The writer's engine and the readers'.

    Raises:
        ConfigurationError: the driver is not installed, or the URL is no such URL.
    """
    fault = check_url(given)
    if fault is not None:
        raise ConfigurationError([fault], "service storage")
    if importlib.util.find_spec("psycopg") is None:
        raise ConfigurationError(
            [f"PostgreSQL needs a driver that is not installed: {_INSTALL}"],
            "service storage",
        )
    url = make_url(given).set(drivername="postgresql+psycopg")
    try:
        writer = create_engine(url, poolclass=NullPool, connect_args=_CONNECT, isolation_level="READ COMMITTED")
        reader = create_engine(
            url,
            poolclass=QueuePool,
            pool_size=readers,
            max_overflow=readers,
            connect_args=_CONNECT,
            isolation_level="REPEATABLE READ",
        )
    except ImportError as exc:
        raise ConfigurationError(
            [f"the PostgreSQL driver cannot be loaded ({first_line(exc)}): {_INSTALL}"],
            "service storage",
        ) from None

    @event.listens_for(writer, "connect")
    def _connected(driver_connection: Any, _record: object) -> None:
        # Whichever way the connection came about: it writes only while it keeps other services out.
        before = driver_connection.autocommit
        driver_connection.autocommit = True
        try:
            driver_connection.execute("SET synchronous_commit = on")
            driver_connection.execute(f"SET lock_timeout = '{LOCK_S}s'")
            driver_connection.execute(_LOCK)
            driver_connection.execute("RESET lock_timeout")
        except BaseException:
            driver_connection.close()
            raise
        driver_connection.autocommit = before

    @event.listens_for(reader, "connect")
    def _reader_connected(driver_connection: Any, _record: object) -> None:
        driver_connection.read_only = True

    return writer, reader


def check_server(connection: Connection) -> None:
    """Refuse a database that cannot hold every text.

    Raises:
        ConfigurationError: its encoding is not UTF-8.
    """
    encoding = connection.execute(text("SHOW server_encoding")).scalar_one()
    if encoding != "UTF8":
        raise ConfigurationError(
            [f"the database's encoding is {encoding}: make one with createdb --encoding=UTF8 --template=template0"],
            "service storage",
        )


def compare_by_bytes(connection: Connection) -> None:
    """Give every text column the collation "C"; those that have it are not touched."""
    quote = connection.dialect.identifier_preparer.quote_identifier
    for table, column in connection.execute(_OTHER_COLLATION).all():
        connection.exec_driver_sql(f'ALTER TABLE {quote(table)} ALTER COLUMN {quote(column)} TYPE text COLLATE "C"')


def explain(exc: DBAPIError, url: URL) -> ConfigurationError:
    """Why the database cannot be used, in one line that names the fix; never with the password."""
    where = url.set(drivername="postgresql").render_as_string(hide_password=True)
    state = getattr(exc.orig, "sqlstate", None)
    said = first_line(exc)
    if state == "55P03":
        fault = f"{where} is used by another running service: stop that one, or give another database"
    elif state == "28P01" or "password authentication failed" in said or "no password supplied" in said:
        fault = f"{where} refuses this user or password: check both in --database"
    elif state == "3D000" or ("database" in said and "does not exist" in said):
        fault = f"{where}: there is no such database; make it with createdb {url.database or ''}".rstrip()
    elif state == "42501":
        fault = f"{where}: this user may not make tables there: GRANT CREATE ON SCHEMA public, or own the database"
    else:
        fault = f"{where} cannot be used: {said}; is the server running, and are host and port right?"
    return ConfigurationError([fault], "service storage")
