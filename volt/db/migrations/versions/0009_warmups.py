"""Hosts that are asked to warm an image before VMs boot from it."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    op.create_table(
        "warmups",
        sa.Column("image", sa.String(48), nullable=False),
        sa.Column("host", sa.String(48), nullable=False),
        sa.Column("workload", sa.String(48), nullable=False),
        sa.Column("generation", sa.BigInteger, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("wanted", sa.BigInteger, nullable=False),
        sa.Column("there", sa.BigInteger, nullable=False),
        sa.Column("detail", sa.String(255), nullable=False),
        sa.Column("asked_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("image", "host", name="pk_warmups"),
        sa.ForeignKeyConstraint(
            ["image"], ["images.name"], name="fk_warmups_image", ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["host"], ["hosts.name"], name="fk_warmups_host", ondelete="CASCADE"
        ),
    )
    op.create_index("ix_warmups_host", "warmups", ["host"])


def downgrade() -> None:
    op.drop_table("warmups")
