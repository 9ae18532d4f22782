"""Alembic's entry: runs the steps on the connection that :mod:`simulator.service.storage.migrate` hands over."""

from __future__ import annotations

from alembic import context

from simulator.service.storage.tables import METADATA

context.configure(connection=context.config.attributes["connection"], target_metadata=METADATA)
context.run_migrations()
