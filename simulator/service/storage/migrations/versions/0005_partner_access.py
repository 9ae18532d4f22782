"""Partner applications, their codes, and what is known of grants and tokens beyond a sign-in."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

_ROW_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_LONGEST_MS = 90 * 86_400_000
"""How long a grant lives at most, as it was with this step."""


def upgrade() -> None:
    """Make the tables; the grants that are there are of people who signed in with a password."""
    op.create_table(
        "partner_clients",
        sa.Column("seq", _ROW_NUMBER, nullable=False),
        sa.Column("client_id", sa.Text(), nullable=False),
        sa.Column("manufacturer_seq", sa.BigInteger(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("secret_hash", sa.LargeBinary(), nullable=True),
        sa.Column("redirect_uris", sa.Text(), nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("grant_types", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), nullable=True),
        sa.Column("home_url", sa.Text(), nullable=True),
        sa.Column("logo_url", sa.Text(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("seq"),
        sa.UniqueConstraint("client_id"),
    )
    op.create_table(
        "authorization_codes",
        sa.Column("code_hash", sa.LargeBinary(), nullable=False),
        sa.Column("manufacturer_seq", sa.BigInteger(), nullable=False),
        sa.Column("client_id", sa.Text(), nullable=False),
        sa.Column("person_seq", sa.BigInteger(), nullable=False),
        sa.Column("redirect_uri", sa.Text(), nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("code_challenge", sa.Text(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.Column("used_at", sa.BigInteger(), nullable=True),
        sa.Column("grant_seq", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("code_hash"),
    )
    op.create_index("authorization_codes_by_end", "authorization_codes", ["expires_at"])
    op.create_index("authorization_codes_of_grant", "authorization_codes", ["grant_seq"])
    _extend_grants()
    op.add_column("tokens", sa.Column("ended_at", sa.BigInteger(), nullable=True))
    op.add_column("tokens", sa.Column("issued_with", sa.LargeBinary(), nullable=True))
    op.add_column("tokens", sa.Column("scope", sa.Text(), nullable=True))


def _extend_grants() -> None:
    op.add_column("grants", sa.Column("client_id", sa.Text(), nullable=False, server_default="sign-in"))
    op.add_column("grants", sa.Column("ends_at", sa.BigInteger(), nullable=False, server_default="0"))
    op.add_column("grants", sa.Column("used_at", sa.BigInteger(), nullable=True))
    op.add_column("grants", sa.Column("revoked_at", sa.BigInteger(), nullable=True))
    grants = sa.table("grants", sa.column("ends_at"), sa.column("created_at"))
    op.execute(sa.update(grants).values(ends_at=grants.c.created_at + _LONGEST_MS))
    op.create_index("grants_of_person", "grants", ["person_seq", "seq"])
    op.create_index("grants_of_client", "grants", ["client_id"])
