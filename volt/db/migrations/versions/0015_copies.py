"""How many whole copies of an image there shall be, and which hosts are chosen to have one."""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0013"


def upgrade() -> None:
    op.add_column(
        "placements", sa.Column("chosen", sa.Boolean, nullable=False, server_default=sa.false())
    )
    op.add_column("images", sa.Column("hydrate_copies", sa.Integer))


def downgrade() -> None:
    op.drop_column("images", "hydrate_copies")
    op.drop_column("placements", "chosen")
