"""Whether the database has the schema that this Volt needs, and how it gets it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, func, select

from volt.db.engine import connect, for_writing, retried
from volt.errors import DatabaseBusy, SchemaOutdated

_LOCK = 0x766F6C74  # "volt": what several upgrades of one database agree upon
_PATIENCE = 60  # seconds: upgrades are short


@retried
def upgrade(engine: Engine) -> None:
    """Bring the schema to the newest revision; do nothing if it is there.

    Raises SchemaOutdated if a newer Volt was here.
    """
    config = _config()
    with for_writing(engine).connect() as connection:
        connection.begin()
        with _turn(connection):
            _needed(_revision(connection))
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
            connection.commit()  # before the next one's turn


@contextmanager
def _turn(connection: Connection) -> Iterator[None]:
    """Let one upgrade work at a time: the machines of one Volt are often upgraded together.

    SQLite's transaction has the write lock already. MariaDB commits at each change of a
    table, so that only a lock of the session outlasts them.
    """
    match connection.dialect.name:
        case "postgresql":
            connection.execute(select(func.pg_advisory_xact_lock(_LOCK)))
            yield
        case "mysql" | "mariadb":
            if not connection.scalar(select(func.get_lock(f"volt-{_LOCK}", _PATIENCE))):
                raise DatabaseBusy("another volt-manage db upgrade is at work: try again later")
            try:
                yield
            finally:
                connection.execute(select(func.release_lock(f"volt-{_LOCK}")))
        case _:
            yield


def opened(url: str, busy_timeout: float) -> Engine:
    """Return an engine for a database at the newest schema; see ``volt.db.engine.connect``.

    Raises DatabaseInvalid, DatabaseUnreachable, SchemaOutdated.
    """
    engine = connect(url, busy_timeout)
    check(engine)
    return engine


@retried
def check(engine: Engine) -> None:
    """Raise SchemaOutdated unless the schema is at the newest revision."""
    with engine.connect() as connection:
        present = _revision(connection)
    needed = _needed(present)
    if present != needed:
        raise SchemaOutdated(
            f"the database is at schema revision {present}, this Volt needs {needed}: "
            "run volt-manage db upgrade"
        )


def _needed(present: str | None) -> str | None:
    """Return the revision that this Volt needs; raises SchemaOutdated at one it cannot reach."""
    script = ScriptDirectory.from_config(_config())
    if present not in {None, *(one.revision for one in script.walk_revisions())}:
        raise SchemaOutdated(
            f"the database is at schema revision {present}, which this Volt does not know: "
            "start the newer Volt that it is from, or restore a backup"
        )
    return script.get_current_head()


def _revision(connection: Connection) -> str | None:
    return MigrationContext.configure(connection).get_current_revision()


def _config() -> Config:
    config = Config()
    folder = str(Path(__file__).with_name("migrations"))
    config.set_main_option("script_location", folder.replace("%", "%%"))
    return config
