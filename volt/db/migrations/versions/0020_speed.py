"""How fast the links of hosts are."""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"

_TABLES = ("hosts", "nodes")


def upgrade() -> None:
    for table in _TABLES:
        op.add_column(table, sa.Column("speed", sa.BigInteger))


def downgrade() -> None:
    for table in _TABLES:
        op.drop_column(table, "speed")
