"""The quota of each account that has one of its own."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; the accounts that are there have the service's quota."""
    op.add_column("manufacturers", sa.Column("quota", sa.BigInteger(), nullable=True))
