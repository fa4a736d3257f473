"""Boot profiles of images, and which revisions there are."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.mysql import MEDIUMBLOB

revision = "0007"
down_revision = "0006"

_BLOB = sa.LargeBinary().with_variant(MEDIUMBLOB(), "mysql", "mariadb")


def upgrade() -> None:
    for name in ("profiles", "revisions"):
        op.add_column("images", sa.Column(name, sa.JSON, nullable=False, server_default="{}"))
    op.create_table(
        "profiles",
        sa.Column("image", sa.String(48), nullable=False),
        sa.Column("workload", sa.String(48), nullable=False),
        sa.Column("revision", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("tag", sa.String(64), nullable=False),
        sa.Column("size", sa.Integer, nullable=False),
        sa.Column("content", _BLOB, nullable=False),
        sa.Column("stored_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("host", sa.String(48)),
        sa.PrimaryKeyConstraint("image", "workload", "revision", name="pk_profiles"),
        sa.ForeignKeyConstraint(
            ["image"], ["images.name"], name="fk_profiles_image", ondelete="CASCADE"
        ),
    )


def downgrade() -> None:
    op.drop_table("profiles")
    for name in ("revisions", "profiles"):
        op.drop_column("images", name)
