"""Hosts that have whole copies of images, and which of them stands for an image's source."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    op.add_column(
        "placements", sa.Column("whole", sa.Boolean, nullable=False, server_default=sa.false())
    )
    op.add_column("images", sa.Column("home", sa.String(48)))


def downgrade() -> None:
    op.drop_column("images", "home")
    op.drop_column("placements", "whole")
