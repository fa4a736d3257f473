"""The hosts of other racks that a host feeds, under the name that they have elsewhere."""

from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    _rename("strangers", "foreign")


def downgrade() -> None:
    _rename("foreign", "strangers")


def _rename(old: str, new: str) -> None:
    # FOREIGN is a word of SQL's own.
    quote = op.get_bind().dialect.identifier_preparer.quote
    op.execute(f"ALTER TABLE nodes RENAME COLUMN {quote(old)} TO {quote(new)}")
