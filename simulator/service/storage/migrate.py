"""Brings a database's schema up to date at start; the steps are in ``migrations/versions``."""

from __future__ import annotations

import functools
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

from agent.errors import ConfigurationError


def migrate(connection: Connection) -> None:
    """Run the steps that this database has not seen yet, all in one transaction of the writer's own connection.

    Raises:
        ConfigurationError: a newer release wrote this database.
    """
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).with_name("migrations")))
    config.set_main_option("path_separator", "os")
    scripts = ScriptDirectory.from_config(config)
    with connection.begin():
        found = MigrationContext.configure(connection).get_current_revision()
        if found == scripts.get_current_head():
            return
        known = {script.revision for script in scripts.walk_revisions()}
        if found is not None and found not in known:
            raise ConfigurationError(
                [f"the database has schema {found!r} of a newer release: upgrade this one, or use another database"],
                "service storage",
            )
        config.attributes["connection"] = connection
        command.upgrade(config, "head")


@functools.cache
def schema_revision() -> str:
    """The schema that this release works with."""
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).with_name("migrations")))
    config.set_main_option("path_separator", "os")
    return ScriptDirectory.from_config(config).get_current_head() or ""
