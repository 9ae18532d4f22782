"""All tables. Every row carries its account, and every look-up goes by it.

``seq`` columns are internal row numbers: they give the order and keep indexes small; ids on the wire are UUIDs. Times
are milliseconds since the epoch. JSON is stored as text, since the service never looks inside it in SQL.

References are checked in the one writing thread, inside the transaction, not by foreign keys: a removed device keeps
its row (``removed_at``), because its readings and commands still point at it.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import BigInteger, Column, Index, Integer, LargeBinary, MetaData, Table, Text, UniqueConstraint, text

METADATA: Final = MetaData()

# SQLite gives a row number by itself only to a column whose type is exactly INTEGER.
_ROW_NUMBER: Final = BigInteger().with_variant(Integer(), "sqlite")
_OPEN: Final = text("status IN ('queued', 'delivered', 'in_progress')")
_PRESENT: Final = text("removed_at IS NULL")

manufacturers = Table(
    "manufacturers",
    METADATA,
    Column("seq", _ROW_NUMBER, primary_key=True),
    Column("id", Text, nullable=False, unique=True),
    Column("name", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
)

api_keys = Table(
    "api_keys",
    METADATA,
    Column("api_key", Text, primary_key=True),
    Column("manufacturer_seq", BigInteger, nullable=False),
    Column("secret_hash", LargeBinary, nullable=False),
    Column("created_at", BigInteger, nullable=False),
)

users = Table(
    "users",
    METADATA,
    Column("seq", _ROW_NUMBER, primary_key=True),
    Column("manufacturer_seq", BigInteger, nullable=False),
    Column("id", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    UniqueConstraint("manufacturer_seq", "id", name="users_id"),
)

products = Table(
    "products",
    METADATA,
    Column("seq", _ROW_NUMBER, primary_key=True),
    Column("id", Text, nullable=False, unique=True),
    Column("manufacturer_seq", BigInteger, nullable=False),
    Column("definition", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    Index("products_of_account", "manufacturer_seq", "seq"),
)

devices = Table(
    "devices",
    METADATA,
    Column("seq", _ROW_NUMBER, primary_key=True),
    Column("id", Text, nullable=False, unique=True),
    Column("manufacturer_seq", BigInteger, nullable=False),
    Column("product_id", Text, nullable=False),
    Column("user_id", Text, nullable=False),
    Column("device_name", Text, nullable=False),
    Column("device_identifier", Text, nullable=False),
    Column("qr_info", Text),
    Column("firmware_version", Text),
    Column("metadata", Text),
    Column("last_seen_at", BigInteger),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    Column("removed_at", BigInteger),
    Index("devices_of_account", "manufacturer_seq", "seq"),
    Index("devices_of_user", "manufacturer_seq", "user_id", "seq"),
    Index(
        "devices_by_identifier",
        "manufacturer_seq",
        "product_id",
        "device_identifier",
        unique=True,
        sqlite_where=_PRESENT,
        postgresql_where=_PRESENT,
    ),
)

commands = Table(
    "commands",
    METADATA,
    Column("seq", _ROW_NUMBER, primary_key=True),
    Column("id", Text, nullable=False, unique=True),
    Column("manufacturer_seq", BigInteger, nullable=False),
    Column("device_seq", BigInteger, nullable=False),
    Column("command_payload", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("status_reason", Text),
    Column("result", Text),
    Column("created_at", BigInteger, nullable=False),
    Column("delivered_at", BigInteger),
    Column("completed_at", BigInteger),
    Column("expires_at", BigInteger, nullable=False),
    Index("commands_of_device", "device_seq", "seq"),
    Index("open_commands_of_device", "device_seq", "seq", sqlite_where=_OPEN, postgresql_where=_OPEN),
    Index("open_commands_due", "expires_at", sqlite_where=_OPEN, postgresql_where=_OPEN),
)

readings = Table(
    "readings",
    METADATA,
    Column("seq", _ROW_NUMBER, primary_key=True),
    Column("id", Text, nullable=False),
    Column("manufacturer_seq", BigInteger, nullable=False),
    Column("device_seq", BigInteger, nullable=False),
    Column("recorded_at", BigInteger, nullable=False),
    Column("received_at", BigInteger, nullable=False),
    Column("sensor_data", Text, nullable=False),
    Index("readings_of_device", "device_seq", "recorded_at", "seq"),
    Index("readings_of_account", "manufacturer_seq", "recorded_at", "seq"),
)

stored_answers = Table(
    "stored_answers",
    METADATA,
    Column("manufacturer_seq", BigInteger, primary_key=True),
    Column("idempotency_key", Text, primary_key=True),
    Column("fingerprint", LargeBinary, nullable=False),
    Column("status", Integer, nullable=False),
    Column("headers", Text, nullable=False),
    Column("body", LargeBinary, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Index("stored_answers_by_age", "created_at"),
)
