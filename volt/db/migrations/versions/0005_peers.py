"""The authority of agents, and which hosts have its certificates."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.create_table(
        "authorities",
        sa.Column("name", sa.String(48), nullable=False),
        sa.Column("certificate", sa.Text, nullable=False),
        sa.Column("private_key", sa.Text, nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_authorities"),
    )
    op.create_table(
        "peers",
        sa.Column("host", sa.String(48), nullable=False),
        sa.Column("ip", sa.String(45), nullable=False),
        sa.Column("port", sa.BigInteger, nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("host", name="pk_peers"),
    )


def downgrade() -> None:
    op.drop_table("peers")
    op.drop_table("authorities")
