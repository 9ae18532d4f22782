"""All tables. Every row carries its account, and every look-up goes by it.

``seq`` columns are internal row numbers: they give the order and keep indexes small; ids on the wire are UUIDs. Times
are milliseconds since the epoch. JSON is stored as text, since the service never looks inside it in SQL.

References are checked in the one writing thread, inside the transaction, not by foreign keys: a removed device keeps
its row (``removed_at``), because its readings and commands still point at it.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    text,
)

METADATA: Final = MetaData()

# SQLite gives a row number by itself only to a column whose type is exactly INTEGER.
_ROW_NUMBER: Final = Integer()
_OPEN: Final = text("status IN ('queued', 'delivered', 'in_progress')")
_PRESENT: Final = text("removed_at IS NULL")
_HOLDING: Final = text("due_at IS NOT NULL")

manufacturers = Table(
    "manufacturers",
    METADATA,
    Column("seq", _ROW_NUMBER, primary_key=True),
    Column("id", Text, nullable=False, unique=True),
    Column("name", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("profile", Text),
    Column("quota", BigInteger),
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
    Index("commands_of_account", "manufacturer_seq", "seq"),
    Index("commands_by_time", "manufacturer_seq", "created_at"),
    Index("open_commands_of_device", "device_seq", "seq", sqlite_where=_OPEN),
    Index("open_commands_due", "expires_at", sqlite_where=_OPEN),
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

dashboards = Table(
    "dashboards",
    METADATA,
    Column("product_seq", BigInteger, primary_key=True, autoincrement=False),
    Column("manufacturer_seq", BigInteger, nullable=False),
    Column("dashboard", Text, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
)

database_schemas = Table(
    "database_schemas",
    METADATA,
    Column("seq", _ROW_NUMBER, primary_key=True),
    Column("id", Text, nullable=False, unique=True),
    Column("manufacturer_seq", BigInteger, nullable=False),
    Column("product_seq", BigInteger, nullable=False),
    Column("name", Text, nullable=False),
    Column("description", Text),
    Column("created_at", BigInteger, nullable=False),
    UniqueConstraint("product_seq", "name", name="database_schemas_name"),
    Index("database_schemas_of_product", "product_seq", "seq"),
)

# A runtime record names its table by product and table name alone, so the name is unique in the product. The table
# that comes with the product belongs to no schema.
database_tables = Table(
    "database_tables",
    METADATA,
    Column("seq", _ROW_NUMBER, primary_key=True),
    Column("id", Text, nullable=False, unique=True),
    Column("manufacturer_seq", BigInteger, nullable=False),
    Column("product_seq", BigInteger, nullable=False),
    Column("schema_seq", BigInteger),
    Column("table_name", Text, nullable=False),
    Column("columns", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    UniqueConstraint("product_seq", "table_name", name="database_tables_name"),
    Index("database_tables_by_name", "manufacturer_seq", "table_name"),
)

runtime_records = Table(
    "runtime_records",
    METADATA,
    Column("seq", _ROW_NUMBER, primary_key=True),
    Column("id", Text, nullable=False, unique=True),
    Column("manufacturer_seq", BigInteger, nullable=False),
    Column("product_seq", BigInteger, nullable=False),
    Column("table_seq", BigInteger, nullable=False),
    Column("device_seq", BigInteger, nullable=False),
    Column("data_payload", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    Index("runtime_records_of_account", "manufacturer_seq", "seq"),
    Index("runtime_records_of_product", "product_seq", "seq"),
    Index("runtime_records_of_table", "table_seq", "seq"),
    Index("runtime_records_of_device", "device_seq", "seq"),
)

# One row for each column of a record whose value can be filtered by: SHA-256 of column and value. So a filter is a
# look-up in an index on every database, however long the value is, and nobody's text becomes part of a JSON path.
runtime_values = Table(
    "runtime_values",
    METADATA,
    Column("value_hash", LargeBinary, primary_key=True),
    Column("record_seq", BigInteger, primary_key=True, autoincrement=False),
    Column("manufacturer_seq", BigInteger, nullable=False),
    Index("runtime_values_of_record", "record_seq"),
)

# People who sign in; a device's user (table users) need not be one of them. The account is empty for a person who
# is not a manufacturer.
people = Table(
    "people",
    METADATA,
    Column("seq", _ROW_NUMBER, primary_key=True),
    Column("id", Text, nullable=False, unique=True),
    Column("manufacturer_seq", BigInteger),
    Column("email", Text, nullable=False, unique=True),
    Column("password_hash", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
)

# Partner applications; ``secret_hash`` is null for a public one. Its account is the one that registered it.
partner_clients = Table(
    "partner_clients",
    METADATA,
    Column("seq", _ROW_NUMBER, primary_key=True),
    Column("client_id", Text, nullable=False, unique=True),
    Column("manufacturer_seq", BigInteger, nullable=False),
    Column("name", Text, nullable=False),
    Column("secret_hash", LargeBinary),
    Column("redirect_uris", Text, nullable=False),
    Column("scope", Text, nullable=False),
    Column("grant_types", Text, nullable=False),
    Column("description", Text),
    Column("home_url", Text),
    Column("logo_url", Text),
    Column("created_at", BigInteger, nullable=False),
)

# A code that was used stays as long as its grant: presented again, it ends that grant.
authorization_codes = Table(
    "authorization_codes",
    METADATA,
    Column("code_hash", LargeBinary, primary_key=True),
    Column("manufacturer_seq", BigInteger, nullable=False),
    Column("client_id", Text, nullable=False),
    Column("person_seq", BigInteger, nullable=False),
    Column("redirect_uri", Text, nullable=False),
    Column("scope", Text, nullable=False),
    Column("code_challenge", Text),
    Column("created_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger, nullable=False),
    Column("used_at", BigInteger),
    Column("grant_seq", BigInteger),
    Index("authorization_codes_by_end", "expires_at"),
    Index("authorization_codes_of_grant", "grant_seq"),
)

# What a person opened to a client, and for which scopes: all tokens that descend from one sign-in or one code belong
# to one grant, and end with it.
grants = Table(
    "grants",
    METADATA,
    Column("seq", _ROW_NUMBER, primary_key=True),
    Column("id", Text, nullable=False, unique=True),
    Column("manufacturer_seq", BigInteger, nullable=False),
    Column("person_seq", BigInteger, nullable=False),
    Column("client_id", Text, nullable=False, server_default="sign-in"),  # of rows from before there were clients
    Column("scope", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("ends_at", BigInteger, nullable=False, server_default="0"),
    Column("used_at", BigInteger),
    Column("revoked_at", BigInteger),
    Index("grants_of_person", "person_seq", "seq"),
    Index("grants_of_client", "client_id"),
)

# ``ended_at``: when a refresh token was rotated, or an access token replaced or revoked. ``issued_with``: the refresh
# token that an access token came with, and ends with. ``scope``: of an access token, which may be asked for with less
# than its grant holds.
tokens = Table(
    "tokens",
    METADATA,
    Column("token_hash", LargeBinary, primary_key=True),
    Column("manufacturer_seq", BigInteger, nullable=False),
    Column("grant_seq", BigInteger, nullable=False),
    Column("kind", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger, nullable=False),
    Column("ended_at", BigInteger),
    Column("issued_with", LargeBinary),
    Column("scope", Text),
    Index("tokens_of_grant", "grant_seq"),
    Index("tokens_by_end", "expires_at"),
)

rules = Table(
    "rules",
    METADATA,
    Column("seq", _ROW_NUMBER, primary_key=True),
    Column("id", Text, nullable=False, unique=True),
    Column("manufacturer_seq", BigInteger, nullable=False),
    Column("product_seq", BigInteger, nullable=False),
    Column("name", Text, nullable=False),
    Column("enabled", Boolean, nullable=False),
    Column("trigger", Text, nullable=False),
    Column("actions", Text, nullable=False),
    Column("last_fired_at", BigInteger),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    Index("rules_of_account", "manufacturer_seq", "seq"),
    Index("rules_of_product", "product_seq", "seq"),
)

# Where a rule stands with a device; ``due_at`` is when it fires if no further reading comes.
rule_states = Table(
    "rule_states",
    METADATA,
    Column("device_seq", BigInteger, primary_key=True, autoincrement=False),
    Column("rule_seq", BigInteger, primary_key=True, autoincrement=False),
    Column("manufacturer_seq", BigInteger, nullable=False),
    Column("phase", Text, nullable=False),
    Column("since_at", BigInteger),
    Column("observed_at", BigInteger, nullable=False),
    Column("due_at", BigInteger),
    Index("rule_states_of_rule", "rule_seq"),
    Index("rule_states_due", "due_at", sqlite_where=_HOLDING),
)

rule_firings = Table(
    "rule_firings",
    METADATA,
    Column("seq", _ROW_NUMBER, primary_key=True),
    Column("id", Text, nullable=False, unique=True),
    Column("manufacturer_seq", BigInteger, nullable=False),
    Column("rule_seq", BigInteger, nullable=False),
    Column("device_seq", BigInteger, nullable=False),
    Column("fired_at", BigInteger, nullable=False),
    Column("actions", Text, nullable=False),
    Index("rule_firings_of_rule", "rule_seq", "seq"),
    Index("rule_firings_by_age", "fired_at"),
)
