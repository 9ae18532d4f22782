"""Dashboards, product databases, and people who sign in."""

from __future__ import annotations

import json
import uuid

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_ROW_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Make the tables, and give each product that is there what a new one gets."""
    _make_databases()
    _make_people()
    _provision()


def _make_databases() -> None:
    op.create_table(
        "dashboards",
        sa.Column("product_seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("manufacturer_seq", sa.BigInteger(), nullable=False),
        sa.Column("dashboard", sa.Text(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("product_seq"),
    )
    op.create_table(
        "database_schemas",
        sa.Column("seq", _ROW_NUMBER, nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("manufacturer_seq", sa.BigInteger(), nullable=False),
        sa.Column("product_seq", sa.BigInteger(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("seq"),
        sa.UniqueConstraint("id"),
        sa.UniqueConstraint("product_seq", "name", name="database_schemas_name"),
    )
    op.create_index("database_schemas_of_product", "database_schemas", ["product_seq", "seq"])
    op.create_table(
        "database_tables",
        sa.Column("seq", _ROW_NUMBER, nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("manufacturer_seq", sa.BigInteger(), nullable=False),
        sa.Column("product_seq", sa.BigInteger(), nullable=False),
        sa.Column("schema_seq", sa.BigInteger(), nullable=True),
        sa.Column("table_name", sa.Text(), nullable=False),
        sa.Column("columns", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("seq"),
        sa.UniqueConstraint("id"),
        sa.UniqueConstraint("product_seq", "table_name", name="database_tables_name"),
    )
    op.create_index("database_tables_by_name", "database_tables", ["manufacturer_seq", "table_name"])
    op.create_table(
        "runtime_records",
        sa.Column("seq", _ROW_NUMBER, nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("manufacturer_seq", sa.BigInteger(), nullable=False),
        sa.Column("product_seq", sa.BigInteger(), nullable=False),
        sa.Column("table_seq", sa.BigInteger(), nullable=False),
        sa.Column("device_seq", sa.BigInteger(), nullable=False),
        sa.Column("data_payload", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("seq"),
        sa.UniqueConstraint("id"),
    )
    for of, column in (
        ("account", "manufacturer_seq"),
        ("product", "product_seq"),
        ("table", "table_seq"),
        ("device", "device_seq"),
    ):
        op.create_index(f"runtime_records_of_{of}", "runtime_records", [column, "seq"])
    op.create_table(
        "runtime_values",
        sa.Column("value_hash", sa.LargeBinary(), nullable=False),
        sa.Column("record_seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("manufacturer_seq", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("value_hash", "record_seq"),
    )
    op.create_index("runtime_values_of_record", "runtime_values", ["record_seq"])


def _make_people() -> None:
    op.create_table(
        "people",
        sa.Column("seq", _ROW_NUMBER, nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("manufacturer_seq", sa.BigInteger(), nullable=True),
        sa.Column("email", sa.Text(), nullable=False),
        sa.Column("password_hash", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("seq"),
        sa.UniqueConstraint("id"),
        sa.UniqueConstraint("email"),
    )
    op.create_table(
        "grants",
        sa.Column("seq", _ROW_NUMBER, nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("manufacturer_seq", sa.BigInteger(), nullable=False),
        sa.Column("person_seq", sa.BigInteger(), nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("seq"),
        sa.UniqueConstraint("id"),
    )
    op.create_table(
        "tokens",
        sa.Column("token_hash", sa.LargeBinary(), nullable=False),
        sa.Column("manufacturer_seq", sa.BigInteger(), nullable=False),
        sa.Column("grant_seq", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("token_hash"),
    )
    op.create_index("tokens_of_grant", "tokens", ["grant_seq"])
    op.create_index("tokens_by_end", "tokens", ["expires_at"])


# As it was with this step: later releases may give new products more, and bring a step of their own for old ones.
_COMMAND_RESULTS = [
    {"name": "command_id", "type": "string", "required": True, "default": None},
    {"name": "status", "type": "string", "required": True, "default": None},
    {"name": "result", "type": "json", "required": False, "default": None},
    {"name": "error", "type": "string", "required": False, "default": None},
    {"name": "started_at", "type": "datetime", "required": False, "default": None},
    {"name": "finished_at", "type": "datetime", "required": False, "default": None},
]


def _provision() -> None:
    products = sa.table("products", *map(sa.column, ("seq", "id", "manufacturer_seq", "created_at")))
    tables = sa.table(
        "database_tables",
        *map(sa.column, ("id", "manufacturer_seq", "product_seq", "table_name", "columns", "created_at")),
    )
    connection = op.get_bind()
    rows = [
        {
            "id": str(uuid.uuid5(uuid.NAMESPACE_OID, f"{product.id}/command_results")),
            "manufacturer_seq": product.manufacturer_seq,
            "product_seq": product.seq,
            "table_name": "command_results",
            "columns": json.dumps(_COMMAND_RESULTS),
            "created_at": product.created_at,
        }
        for product in connection.execute(sa.select(products))
    ]
    if rows:
        connection.execute(sa.insert(tables), rows)
