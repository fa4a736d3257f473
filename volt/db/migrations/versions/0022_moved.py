"""Since when hosts have another parent than before."""

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"


def upgrade() -> None:
    op.add_column("nodes", sa.Column("moved", sa.BigInteger, nullable=False, server_default="0"))


def downgrade() -> None:
    op.drop_column("nodes", "moved")
