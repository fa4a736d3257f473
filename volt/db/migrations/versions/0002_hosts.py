"""Hosts, Volt's clock, events, shapes and secrets.

Places are not carried over: every host that is told it has none joins again by itself.
"""

import secrets

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.execute("DELETE FROM edges")
    op.execute("DELETE FROM placements")
    _add_to_images()
    with op.batch_alter_table("placements") as table:
        table.alter_column("colour", existing_type=sa.Integer, nullable=True)
        table.create_index("ix_placements_image_generation", ["image", "generation"])
    op.create_table(
        "hosts",
        sa.Column("name", sa.String(48), nullable=False),
        sa.Column("rack", sa.String(48)),
        sa.Column("draining", sa.Boolean, nullable=False),
        sa.Column("overloaded", sa.Boolean, nullable=False),
        sa.Column("seen", sa.BigInteger, nullable=False),
        sa.Column("report", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_hosts"),
    )
    op.create_index("ix_hosts_seen", "hosts", ["seen"])
    op.create_table(
        "clock",
        sa.Column("name", sa.String(48), nullable=False),
        sa.Column("holder", sa.String(64), nullable=False),
        sa.Column("tick", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_clock"),
    )
    op.execute("INSERT INTO clock (name, holder, tick) VALUES ('volt', '', 0)")
    op.create_table(
        "events",
        sa.Column(
            "id",
            sa.BigInteger().with_variant(sa.Integer, "sqlite"),
            nullable=False,
            autoincrement=True,
        ),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("image", sa.String(48)),
        sa.Column("host", sa.String(48)),
        sa.Column("detail", sa.String(255), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_events"),
    )


def _add_to_images() -> None:
    with op.batch_alter_table("images") as table:
        table.add_column(sa.Column("shape", sa.String(16), nullable=False, server_default="forest"))
        table.add_column(sa.Column("foreign_children", sa.Integer))
        table.add_column(sa.Column("source_user", sa.String(64)))
        table.add_column(sa.Column("source_secret", sa.String(255)))
        table.add_column(sa.Column("secret", sa.String(255), nullable=False, server_default=""))
    images = sa.table("images", sa.column("name"), sa.column("secret"))
    connection = op.get_bind()
    for (name,) in connection.execute(sa.select(images.c.name)).all():
        secret = secrets.token_hex(16)
        connection.execute(sa.update(images).where(images.c.name == name).values(secret=secret))
    with op.batch_alter_table("images") as table:
        table.alter_column("shape", existing_type=sa.String(16), server_default=None)
        table.alter_column("secret", existing_type=sa.String(255), server_default=None)


def downgrade() -> None:
    op.drop_table("events")
    op.drop_table("clock")
    op.drop_table("hosts")
    op.execute("DELETE FROM edges")
    op.execute("DELETE FROM placements")
    with op.batch_alter_table("placements") as table:
        table.drop_index("ix_placements_image_generation")
        table.alter_column("colour", existing_type=sa.Integer, nullable=False)
    with op.batch_alter_table("images") as table:
        for column in ("shape", "foreign_children", "source_user", "source_secret", "secret"):
            table.drop_column(column)
