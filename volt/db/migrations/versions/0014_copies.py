"""How many whole copies of an image there shall be, on which hosts, and how far they are."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    op.add_column(
        "placements", sa.Column("chosen", sa.Boolean, nullable=False, server_default=sa.false())
    )
    op.add_column(
        "placements", sa.Column("complete", sa.Integer, nullable=False, server_default="0")
    )
    op.create_index("ix_placements_image_whole_host", "placements", ["image", "whole", "host"])
    op.add_column(
        "nodes", sa.Column("whole", sa.Boolean, nullable=False, server_default=sa.false())
    )
    op.add_column("images", sa.Column("hydrate_copies", sa.Integer))


def downgrade() -> None:
    op.drop_column("images", "hydrate_copies")
    op.drop_column("nodes", "whole")
    op.drop_index("ix_placements_image_whole_host", "placements")
    op.drop_column("placements", "complete")
    op.drop_column("placements", "chosen")
