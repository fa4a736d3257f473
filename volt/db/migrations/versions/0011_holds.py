"""Images that disks of hosts need, whether or not these hosts are there."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    op.create_table(
        "holds",
        sa.Column("image", sa.String(48), nullable=False),
        sa.Column("host", sa.String(48), nullable=False),
        sa.Column("disks", sa.Integer, nullable=False),
        sa.Column("since", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("image", "host", name="pk_holds"),
    )
    op.create_index("ix_holds_host", "holds", ["host"])


def downgrade() -> None:
    op.drop_table("holds")
