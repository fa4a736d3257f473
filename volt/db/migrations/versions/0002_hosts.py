"""Trees as nodes with a level, hosts, Volt's clock, events, shapes and secrets.

Places are not carried over: every host that is told it has none joins again by itself.
"""

import secrets

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

NODE_INDEXES = (
    ("image", "stripe", "parent"),
    ("image", "stripe", "inner", "level", "host"),
    ("image", "stripe", "open", "level", "host"),
    ("image", "stripe", "rack", "open", "level", "host"),
)
ADDED = (
    "shape",
    "foreign_children",
    "source_user",
    "source_secret",
    "secret",
    "inner",
    "at_source",
)


def upgrade() -> None:
    op.drop_table("edges")
    op.execute("DELETE FROM placements")
    _add_to_images()
    with op.batch_alter_table("placements") as table:
        table.drop_column("colour")
        table.drop_column("joined")
        table.add_column(sa.Column("told", sa.JSON))
        table.create_index("ix_placements_image_generation", ["image", "generation"])
    op.create_table(
        "nodes",
        sa.Column("image", sa.String(48), nullable=False),
        sa.Column("host", sa.String(48), nullable=False),
        sa.Column("stripe", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("rack", sa.String(48)),
        sa.Column("parent", sa.String(48)),
        sa.Column("standby", sa.String(48)),
        sa.Column("level", sa.Integer, nullable=False),
        sa.Column("inner", sa.Boolean, nullable=False),
        sa.Column("fed", sa.Integer, nullable=False),
        sa.Column("strangers", sa.Integer, nullable=False),
        sa.Column("accepting", sa.Boolean, nullable=False),
        sa.Column("open", sa.Boolean, nullable=False),
        sa.PrimaryKeyConstraint("image", "host", "stripe", name="pk_nodes"),
        sa.ForeignKeyConstraint(
            ["image", "host"],
            ["placements.image", "placements.host"],
            name="fk_nodes_image_host",
            ondelete="CASCADE",
        ),
    )
    for columns in NODE_INDEXES:
        op.create_index("_".join(("ix_nodes", *columns)), "nodes", list(columns))
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
        table.add_column(sa.Column("inner", sa.JSON))
        table.add_column(sa.Column("at_source", sa.JSON))
    names = ("name", "stripes", "secret", "inner", "at_source")
    images = sa.table(
        "images",
        *(sa.column(name) for name in names[:3]),
        sa.column("inner", sa.JSON),
        sa.column("at_source", sa.JSON),
    )
    connection = op.get_bind()
    for name, stripes in connection.execute(sa.select(images.c.name, images.c.stripes)).all():
        values = {"secret": secrets.token_hex(16)} | dict.fromkeys(names[3:], [0] * stripes)
        connection.execute(sa.update(images).where(images.c.name == name).values(values))
    with op.batch_alter_table("images") as table:
        table.alter_column("shape", existing_type=sa.String(16), server_default=None)
        table.alter_column("secret", existing_type=sa.String(255), server_default=None)
        table.alter_column("inner", existing_type=sa.JSON, nullable=False)
        table.alter_column("at_source", existing_type=sa.JSON, nullable=False)


def downgrade() -> None:
    for name in ("events", "clock", "hosts", "nodes"):
        op.drop_table(name)
    op.execute("DELETE FROM placements")
    with op.batch_alter_table("placements") as table:
        table.drop_column("told")
        table.add_column(sa.Column("colour", sa.Integer, nullable=False))
        table.add_column(sa.Column("joined", sa.BigInteger, nullable=False))
        table.drop_index("ix_placements_image_generation")
    with op.batch_alter_table("images") as table:
        for column in ADDED:
            table.drop_column(column)
    _create_edges()


def _create_edges() -> None:
    op.create_table(
        "edges",
        sa.Column("image", sa.String(48), nullable=False),
        sa.Column("host", sa.String(48), nullable=False),
        sa.Column("stripe", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("parent", sa.String(48)),
        sa.Column("standby", sa.String(48)),
        sa.PrimaryKeyConstraint("image", "host", "stripe", name="pk_edges"),
        *(
            sa.ForeignKeyConstraint(
                ["image", column],
                ["placements.image", "placements.host"],
                name=f"fk_edges_image_{column}",
                ondelete="CASCADE" if column == "host" else None,
            )
            for column in ("host", "parent", "standby")
        ),
    )
    for column in ("parent", "standby"):
        op.create_index(f"ix_edges_image_{column}", "edges", ["image", column])
