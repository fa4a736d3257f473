"""What images have in common with others."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.mysql import MEDIUMBLOB

revision = "0017"
down_revision = "0016"


def upgrade() -> None:
    op.add_column("images", sa.Column("based_on", sa.JSON))
    op.add_column("images", sa.Column("shared", sa.BigInteger))
    blob = sa.LargeBinary().with_variant(MEDIUMBLOB(), "mysql", "mariadb")
    op.add_column("images", sa.Column("basis", blob))


def downgrade() -> None:
    op.drop_column("images", "basis")
    op.drop_column("images", "shared")
    op.drop_column("images", "based_on")
