"""Images that hold what a VM wrote over another image."""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    op.add_column("images", sa.Column("parent", sa.String(48)))
    op.add_column("images", sa.Column("disk_size", sa.BigInteger))
    op.add_column("images", sa.Column("maker", sa.String(48)))
    op.create_index("ix_images_parent", "images", ["parent"])


def downgrade() -> None:
    op.drop_index("ix_images_parent", "images")
    op.drop_column("images", "maker")
    op.drop_column("images", "disk_size")
    op.drop_column("images", "parent")
