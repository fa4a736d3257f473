"""How Volt opens its database, and how its transactions begin."""

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.exc import OperationalError

from volt.errors import DatabaseBusy

ATTEMPTS = 3
_BEGIN = "volt_begin"
P = ParamSpec("P")
R = TypeVar("R")


def connect(url: str, busy_timeout: float) -> Engine:
    """Return an engine; a SQLite writer waits up to ``busy_timeout`` seconds for its turn."""
    if not url.startswith("sqlite"):
        return create_engine(url, pool_pre_ping=True)
    engine = create_engine(url, connect_args={"timeout": busy_timeout})

    @event.listens_for(engine, "connect")
    def prepare(connection: Any, record: object) -> None:
        # Left alone, sqlite3 begins transactions late and by itself: two readers that
        # then both write would fail at once instead of waiting.
        connection.isolation_level = None
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA foreign_keys = ON")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        connection.exec_driver_sql(connection.get_execution_options().get(_BEGIN, "BEGIN"))

    return engine


def for_writing(engine: Engine) -> Engine:
    """Return the engine with transactions that take SQLite's write lock as they begin."""
    return engine.execution_options(**{_BEGIN: "BEGIN IMMEDIATE"})


def retried(transaction: Callable[P, R]) -> Callable[P, R]:
    """Repeat a transaction that found the database locked; in the end raise DatabaseBusy.

    Each attempt waits for the busy timeout by itself.
    """

    @wraps(transaction)
    def attempt(*args: P.args, **kwargs: P.kwargs) -> R:
        for remaining in reversed(range(ATTEMPTS)):
            try:
                return transaction(*args, **kwargs)
            except OperationalError as err:
                if "locked" not in str(err.orig):
                    raise
                if not remaining:
                    raise DatabaseBusy("the database is busy: try again in a moment") from err
        raise AssertionError("the last attempt returns or raises")

    return attempt
