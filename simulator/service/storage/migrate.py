"""Makes the tables of a new database, and refuses one of another release."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection, inspect

from agent.errors import ConfigurationError
from simulator.service.storage.tables import METADATA

SCHEMA: Final = 8
"""Goes up with each change of the tables; a database carries it as its ``user_version``."""


def migrate(connection: Connection) -> None:
    """Make the tables where there are none.

    Raises:
        ConfigurationError: another release wrote this database.
    """
    with connection.begin():
        if not inspect(connection).get_table_names():
            METADATA.create_all(connection)
            connection.exec_driver_sql(f"PRAGMA user_version = {SCHEMA}")
            return
        found = connection.exec_driver_sql("PRAGMA user_version").scalar_one()
    if found != SCHEMA:
        raise ConfigurationError(
            [f"the database is of another release (schema {found}, this one has {SCHEMA}): use another folder"],
            "service storage",
        )
