"""Rules, where they stand with each device, what they did; and commands by account, for events and analytics."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_ROW_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Make the tables and indexes."""
    op.create_index("commands_of_account", "commands", ["manufacturer_seq", "seq"])
    op.create_index("commands_by_time", "commands", ["manufacturer_seq", "created_at"])
    op.create_table(
        "rules",
        sa.Column("seq", _ROW_NUMBER, nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("manufacturer_seq", sa.BigInteger(), nullable=False),
        sa.Column("product_seq", sa.BigInteger(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("enabled", sa.Boolean(), nullable=False),
        sa.Column("trigger", sa.Text(), nullable=False),
        sa.Column("actions", sa.Text(), nullable=False),
        sa.Column("last_fired_at", sa.BigInteger(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("seq"),
        sa.UniqueConstraint("id"),
    )
    op.create_index("rules_of_account", "rules", ["manufacturer_seq", "seq"])
    op.create_index("rules_of_product", "rules", ["product_seq", "seq"])
    _make_states()
    op.create_table(
        "rule_firings",
        sa.Column("seq", _ROW_NUMBER, nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("manufacturer_seq", sa.BigInteger(), nullable=False),
        sa.Column("rule_seq", sa.BigInteger(), nullable=False),
        sa.Column("device_seq", sa.BigInteger(), nullable=False),
        sa.Column("fired_at", sa.BigInteger(), nullable=False),
        sa.Column("actions", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("seq"),
        sa.UniqueConstraint("id"),
    )
    op.create_index("rule_firings_of_rule", "rule_firings", ["rule_seq", "seq"])


def _make_states() -> None:
    op.create_table(
        "rule_states",
        sa.Column("device_seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("rule_seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("manufacturer_seq", sa.BigInteger(), nullable=False),
        sa.Column("phase", sa.Text(), nullable=False),
        sa.Column("since_at", sa.BigInteger(), nullable=True),
        sa.Column("observed_at", sa.BigInteger(), nullable=False),
        sa.Column("due_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("device_seq", "rule_seq"),
    )
    op.create_index("rule_states_of_rule", "rule_states", ["rule_seq"])
    holding = sa.text("due_at IS NOT NULL")
    op.create_index("rule_states_due", "rule_states", ["due_at"], sqlite_where=holding, postgresql_where=holding)
