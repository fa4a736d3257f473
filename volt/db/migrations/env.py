"""How alembic reaches the database: over the connection that volt.db.upgrade hands it."""

from alembic import context

# their tables belong to the schema
from volt.db import caps, demands, imports, peers, profiles, tokens, warmups  # noqa: F401
from volt.db.models import Base

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
