"""Hosts that have whole copies of images, who shall, and who stands for an image's source."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    op.add_column(
        "placements", sa.Column("whole", sa.Boolean, nullable=False, server_default=sa.false())
    )
    op.add_column("images", sa.Column("home", sa.String(48)))
    op.add_column("images", sa.Column("hydrate_after", sa.Integer))
    op.add_column("images", sa.Column("hydrate_rate", sa.BigInteger))


def downgrade() -> None:
    op.drop_column("images", "hydrate_rate")
    op.drop_column("images", "hydrate_after")
    op.drop_column("images", "home")
    op.drop_column("placements", "whole")
