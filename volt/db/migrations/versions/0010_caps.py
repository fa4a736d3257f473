"""Caps of what hosts fetch ahead of VMs, and the hosts that have shares of them."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    op.create_table(
        "caps",
        sa.Column("kind", sa.String(8), nullable=False),
        sa.Column("name", sa.String(48), nullable=False),
        sa.Column("rate", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("kind", "name", name="pk_caps"),
    )
    op.create_table(
        "takers",
        sa.Column("host", sa.String(48), nullable=False),
        sa.Column("image", sa.String(48), nullable=False),
        sa.Column("granted", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("host", "image", name="pk_takers"),
        sa.ForeignKeyConstraint(
            ["host"], ["hosts.name"], name="fk_takers_host", ondelete="CASCADE"
        ),
    )
    op.create_index("ix_takers_image", "takers", ["image"])
    op.add_column(
        "hosts", sa.Column("taking", sa.Boolean, nullable=False, server_default=sa.false())
    )


def downgrade() -> None:
    op.drop_column("hosts", "taking")
    op.drop_table("takers")
    op.drop_table("caps")
