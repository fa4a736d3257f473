"""How a VM goes on from a layer that is a suspended image."""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"


def upgrade() -> None:
    op.add_column("images", sa.Column("suspended", sa.JSON))


def downgrade() -> None:
    op.drop_column("images", "suspended")
