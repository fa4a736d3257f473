"""Placements have a bit for each of more stripes."""

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"


def upgrade() -> None:
    _change(sa.Integer(), sa.BigInteger())


def downgrade() -> None:
    _change(sa.BigInteger(), sa.Integer())


def _change(old: sa.Integer, new: sa.Integer) -> None:
    with op.batch_alter_table("placements") as table:
        table.alter_column("complete", existing_type=old, type_=new, existing_nullable=False)
