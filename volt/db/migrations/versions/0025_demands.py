"""Which hosts have VMs that wait for what they read, and of which images."""

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"


def upgrade() -> None:
    op.create_table(
        "demands",
        sa.Column("host", sa.String(48), nullable=False),
        sa.Column("image", sa.String(48), nullable=False),
        sa.PrimaryKeyConstraint("host", "image", name="pk_demands"),
        sa.ForeignKeyConstraint(
            ["host"], ["hosts.name"], name="fk_demands_host", ondelete="CASCADE"
        ),
    )
    op.create_index("ix_demands_image", "demands", ["image"])
    op.add_column(
        "hosts", sa.Column("demanding", sa.Boolean, nullable=False, server_default=sa.false())
    )


def downgrade() -> None:
    op.drop_column("hosts", "demanding")
    op.drop_table("demands")
