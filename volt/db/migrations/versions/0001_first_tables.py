"""Images, placements and edges."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "images",
        sa.Column("name", sa.String(48), nullable=False),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.Column("stripes", sa.Integer, nullable=False),
        sa.Column("fanout", sa.Integer, nullable=False),
        *_portal(),
        sa.Column("generation", sa.BigInteger, nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_images"),
    )
    op.create_table(
        "placements",
        sa.Column("image", sa.String(48), nullable=False),
        sa.Column("host", sa.String(48), nullable=False),
        *_portal(),
        sa.Column("colour", sa.Integer, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("generation", sa.BigInteger, nullable=False),
        sa.Column("confirmed", sa.BigInteger, nullable=False),
        sa.Column("joined", sa.BigInteger, nullable=False),
        sa.Column("left", sa.BigInteger),
        sa.PrimaryKeyConstraint("image", "host", name="pk_placements"),
        sa.ForeignKeyConstraint(["image"], ["images.name"], name="fk_placements_image"),
    )
    op.create_index("ix_placements_host", "placements", ["host"])
    op.create_table(
        "edges",
        sa.Column("image", sa.String(48), nullable=False),
        sa.Column("host", sa.String(48), nullable=False),
        sa.Column("stripe", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("parent", sa.String(48)),
        sa.Column("standby", sa.String(48)),
        sa.PrimaryKeyConstraint("image", "host", "stripe", name="pk_edges"),
        _to_placement("host", ondelete="CASCADE"),
        _to_placement("parent"),
        _to_placement("standby"),
    )
    op.create_index("ix_edges_image_parent", "edges", ["image", "parent"])
    op.create_index("ix_edges_image_standby", "edges", ["image", "standby"])


def downgrade() -> None:
    op.drop_table("edges")
    op.drop_table("placements")
    op.drop_table("images")


def _portal() -> list[sa.Column[int] | sa.Column[str]]:
    return [
        sa.Column("ip", sa.String(45), nullable=False),
        sa.Column("port", sa.Integer, nullable=False),
        sa.Column("iqn", sa.String(223), nullable=False),
        sa.Column("lun", sa.Integer, nullable=False),
        sa.Column("offset", sa.BigInteger, nullable=False),
    ]


def _to_placement(column: str, ondelete: str | None = None) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(
        ["image", column],
        ["placements.image", "placements.host"],
        name=f"fk_edges_image_{column}",
        ondelete=ondelete,
    )
