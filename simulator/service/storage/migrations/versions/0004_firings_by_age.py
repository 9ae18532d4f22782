"""Firings of rules by age, so that old ones are found without reading all."""

from __future__ import annotations

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the index."""
    op.create_index("rule_firings_by_age", "rule_firings", ["fired_at"])
