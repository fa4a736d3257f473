"""Hash trees of images, and who is said to send wrong bytes."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.mysql import MEDIUMBLOB

revision = "0004"
down_revision = "0003"

_HASHES = sa.LargeBinary().with_variant(MEDIUMBLOB(), "mysql", "mariadb")


def upgrade() -> None:
    with op.batch_alter_table("images") as table:
        table.add_column(sa.Column("root_hash", sa.String(64)))
        table.add_column(sa.Column("salt", sa.String(64)))
        table.add_column(sa.Column("upper_hashes", _HASHES))
    op.create_table(
        "accusations",
        sa.Column("host", sa.String(48), nullable=False),
        sa.Column("reporter", sa.String(48), nullable=False),
        sa.Column("tick", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("host", "reporter", name="pk_accusations"),
    )


def downgrade() -> None:
    op.drop_table("accusations")
    with op.batch_alter_table("images") as table:
        for column in ("upper_hashes", "salt", "root_hash"):
            table.drop_column(column)
