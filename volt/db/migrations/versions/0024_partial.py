"""Indexes for what few rows have, with only these rows, where the database has such.

A host's place in a tree is a row of ``nodes``; most are leaves, and have no room. Most placements
are in the trees, and few hosts have all of an image.
"""

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"

_OPEN = ("open", "level", "host")
_INDEXES = (
    ("nodes", ("image", "stripe", *_OPEN), "open"),
    ("nodes", ("image", "stripe", "rack", *_OPEN), "open"),
    ("placements", ("generation",), "generation = 0"),
    ("placements", ("image", "whole", "host"), "whole"),
)


def upgrade() -> None:
    for table, columns, rows in _INDEXES:
        _make(table, columns, sa.text(rows))


def downgrade() -> None:
    for table, columns, _ in _INDEXES:
        _make(table, columns, None)


def _make(table: str, columns: tuple[str, ...], rows: sa.TextClause | None) -> None:
    """Replace an index; others than PostgreSQL keep it as it is."""
    if op.get_context().dialect.name == "postgresql":
        name = "_".join(("ix", table, *columns))
        op.drop_index(name, table)
        op.create_index(name, table, list(columns), postgresql_where=rows)
