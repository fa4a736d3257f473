"""Reports of hosts with many images, for which MariaDB's TEXT of 64 KiB is too short."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.mysql import MEDIUMTEXT

revision = "0008"
down_revision = "0007"

_SHORT = 2**16 - 1  # bytes


def upgrade() -> None:
    _change(sa.Text(), MEDIUMTEXT())


def downgrade() -> None:
    if _is_bounded():  # the next heartbeat brings the report again
        op.execute(f"UPDATE hosts SET report = '{{}}' WHERE LENGTH(report) > {_SHORT}")  # noqa: S608
    _change(MEDIUMTEXT(), sa.Text())


def _change(old: sa.types.TypeEngine[str], new: sa.types.TypeEngine[str]) -> None:
    if _is_bounded():
        op.alter_column("hosts", "report", existing_type=old, type_=new, existing_nullable=False)


def _is_bounded() -> bool:
    """Tell whether the database's TEXT has an end."""
    return op.get_bind().dialect.name in ("mysql", "mariadb")
