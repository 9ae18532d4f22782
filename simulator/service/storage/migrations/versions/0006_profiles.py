"""The profile of the server that each account is answered with."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; the accounts that are there are answered by the complete service."""
    op.add_column("manufacturers", sa.Column("profile", sa.Text(), nullable=True))
