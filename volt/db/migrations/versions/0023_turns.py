"""Who gives places to all hosts that wait, one at a time."""

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"


def upgrade() -> None:
    op.create_table(
        "turns",
        sa.Column("name", sa.String(48), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_turns"),
    )
    op.execute("INSERT INTO turns (name) VALUES ('places')")
    op.create_index("ix_placements_generation", "placements", ["generation"])


def downgrade() -> None:
    op.drop_index("ix_placements_generation", "placements")
    op.drop_table("turns")
