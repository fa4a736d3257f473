"""Images that hosts wait for, and who makes them."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    op.create_table(
        "imports",
        sa.Column("image", sa.String(48), nullable=False),
        sa.Column("importer", sa.String(48), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("done", sa.BigInteger, nullable=False),
        sa.Column("total", sa.BigInteger, nullable=False),
        sa.Column("detail", sa.String(255), nullable=False),
        sa.Column("seen", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("image", name="pk_imports"),
    )


def downgrade() -> None:
    op.drop_table("imports")
