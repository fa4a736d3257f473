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
    op.add_column("hosts", sa.Column("needs", sa.String(32), nullable=False, server_default=""))


def downgrade() -> None:
    op.drop_column("hosts", "needs")
    op.drop_table("holds")
