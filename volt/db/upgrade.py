"""Whether the database has the schema that this Volt needs, and how it gets it."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine

from volt.errors import SchemaOutdated


def upgrade(engine: Engine) -> None:
    """Bring the schema to the newest revision; do nothing if it is there."""
    config = _config()
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "head")


def check(engine: Engine) -> None:
    """Raise SchemaOutdated unless the schema is at the newest revision."""
    with engine.connect() as connection:
        present = _revision(connection)
    needed = ScriptDirectory.from_config(_config()).get_current_head()
    if present != needed:
        raise SchemaOutdated(
            f"the database is at schema revision {present}, this Volt needs {needed}: "
            "run volt-manage db upgrade"
        )


def _revision(connection: Connection) -> str | None:
    return MigrationContext.configure(connection).get_current_revision()


def _config() -> Config:
    config = Config()
    folder = str(Path(__file__).with_name("migrations"))
    config.set_main_option("script_location", folder.replace("%", "%%"))
    return config
