"""Leaves that hosts of another rack feed, and the inner hosts of a rack in order."""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"

_COLUMNS = ["image", "stripe", "rack", "inner", "stray", "level", "host"]
_INDEX = "_".join(("ix_nodes", *_COLUMNS))


def upgrade() -> None:
    op.add_column(
        "nodes", sa.Column("stray", sa.Boolean, nullable=False, server_default=sa.false())
    )
    op.create_index(_INDEX, "nodes", _COLUMNS)


def downgrade() -> None:
    op.drop_index(_INDEX, "nodes")
    op.drop_column("nodes", "stray")
