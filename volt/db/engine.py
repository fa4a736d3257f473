"""How Volt opens its database, and how its transactions begin."""

import math
import random
import time
from collections.abc import Callable
from enum import Enum, auto
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import (
    ArgumentError,
    DBAPIError,
    IntegrityError,
    InvalidatePoolError,
    OperationalError,
)
from sqlalchemy.exc import TimeoutError as PoolExhausted
from sqlalchemy.orm import Session
from sqlalchemy.pool import ConnectionPoolEntry

from volt import metrics
from volt.errors import DatabaseBusy, DatabaseInvalid, DatabaseUnreachable, Unavailable

# The one driver of each database: its name is what a plain URL means.
DRIVERS = {
    "postgresql": "postgresql+psycopg",
    "mysql": "mysql+pymysql",
    "mariadb": "mariadb+pymysql",
    "sqlite": "sqlite+pysqlite",
}
IDLE = 0.5  # seconds: transactions of busy workers use a connection sooner again
CONNECT_TIMEOUT = 5  # seconds: a server that is there answers at once
_BEGIN = "volt_begin"
_USED = "volt_used"
_BUSY = "the database is busy: try again in a moment"
P = ParamSpec("P")
R = TypeVar("R")


class _Fault(Enum):
    """Why a transaction that is right by itself did not come through."""

    RACE = auto()  # another one came first; repeat it at once
    WAIT = auto()  # others held a lock for longer than the busy timeout
    DOWN = auto()  # the server went away, or lets nobody in, or not us


# Each attempt at a lock waits for the busy timeout by itself.
ATTEMPTS = {_Fault.RACE: 10, _Fault.WAIT: 3, _Fault.DOWN: 3}
PAUSE = 0.02  # seconds: a little longer with each attempt, and never the same for two

# https://www.postgresql.org/docs/15/errcodes-appendix.html
_SQLSTATES = {
    "40001": _Fault.RACE,  # serialization_failure
    "40P01": _Fault.RACE,  # deadlock_detected
    "55P03": _Fault.WAIT,  # lock_not_available: lock_timeout passed
    "53300": _Fault.DOWN,  # too_many_connections
    "57P01": _Fault.DOWN,  # admin_shutdown
    "57P02": _Fault.DOWN,  # crash_shutdown
    "57P03": _Fault.DOWN,  # cannot_connect_now: it is starting
}
# https://mariadb.com/kb/en/mariadb-error-codes/
_ERRNOS = {
    1020: _Fault.RACE,  # ER_CHECKREAD: the row changed since it was read
    1213: _Fault.RACE,  # ER_LOCK_DEADLOCK
    1205: _Fault.WAIT,  # ER_LOCK_WAIT_TIMEOUT
    1040: _Fault.DOWN,  # ER_CON_COUNT_ERROR
    1044: _Fault.DOWN,  # ER_DBACCESS_DENIED_ERROR: not to this database
    1045: _Fault.DOWN,  # ER_ACCESS_DENIED_ERROR: another account or password
    1049: _Fault.DOWN,  # ER_BAD_DB_ERROR: there is no such database
    1053: _Fault.DOWN,  # ER_SERVER_SHUTDOWN
    1927: _Fault.DOWN,  # ER_CONNECTION_KILLED
    2003: _Fault.DOWN,  # CR_CONN_HOST_ERROR
    2006: _Fault.DOWN,  # CR_SERVER_GONE_ERROR
    2013: _Fault.DOWN,  # CR_SERVER_LOST
}


def connect(url: str, busy_timeout: float, connections: int = 10) -> Engine:
    """Return an engine of up to so many connections; none is made yet.

    A writer waits up to ``busy_timeout`` seconds for its turn. Errors, which are logged, do
    not show what was written: it may be secret. Raises DatabaseInvalid.
    """
    parsed = _parse(url)
    if parsed.get_backend_name() == "sqlite":
        return _connect_sqlite(parsed, busy_timeout)
    engine = create_engine(
        parsed,
        isolation_level="READ COMMITTED",
        hide_parameters=True,
        pool_size=connections,
        max_overflow=0,
        pool_timeout=busy_timeout,
        connect_args={"connect_timeout": CONNECT_TIMEOUT},
    )
    if parsed.get_backend_name() == "postgresql":
        # Planning or compiling a statement takes longer than running one of ours. So each plan is
        # kept until there are new statistics, and looks rows up: one that was made while a table
        # was small would else read all of it once it is large. Our tables are in memory: to read
        # all of one is not cheaper than to look some rows up. A server that waits for a lock does
        # not notice that its client died, unless it is told to look.
        limit = (
            f"SET lock_timeout = {round(busy_timeout * 1000)}; "
            "SET plan_cache_mode = force_generic_plan; SET jit = off; SET random_page_cost = 1.1; "
            "SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off; "
            "SET client_connection_check_interval = 1000"
        )
    else:
        limit = f"SET SESSION innodb_lock_wait_timeout = {max(1, round(busy_timeout))}"

    @event.listens_for(engine, "connect")
    def prepare(connection: Any, record: object) -> None:
        with connection.cursor() as cursor:
            cursor.execute(limit)
        connection.commit()

    _look_after(engine)
    return engine


def _look_after(engine: Engine) -> None:
    """Have the engine ask connections that were idle for a while whether their server is there.

    Its own way is to ask each time, which takes a tenth of what a busy Volt does.
    """

    @event.listens_for(engine, "checkin")
    def remember(connection: Any, record: ConnectionPoolEntry) -> None:
        record.info[_USED] = time.monotonic()

    @event.listens_for(engine, "checkout")
    def ask(connection: Any, record: ConnectionPoolEntry, proxy: object) -> None:
        used = record.info.get(_USED, math.inf)  # it is new
        if time.monotonic() - used < IDLE:
            return
        try:
            engine.dialect.do_ping(connection)
        except engine.dialect.loaded_dbapi.Error as err:
            raise InvalidatePoolError from err


def _parse(url: str) -> URL:
    """Read a URL; what is wrong with it is said without its password."""
    try:
        parsed = make_url(url)
        driver = parsed.drivername
        wanted = DRIVERS[driver.partition("+")[0]]
    except (ArgumentError, ValueError, KeyError):
        raise DatabaseInvalid(
            "[database] connection is no URL that Volt knows: give one that begins with "
            "sqlite:///, postgresql:// or mysql://"
        ) from None  # what the parser says may quote the URL
    if driver not in (wanted, wanted.partition("+")[0]):
        raise DatabaseInvalid(
            f"[database] connection asks for driver {driver}, but Volt's is {wanted}: "
            f"begin the URL with {wanted}://"
        )
    return parsed.set(drivername=wanted)


def _connect_sqlite(url: URL, busy_timeout: float) -> Engine:
    engine = create_engine(url, hide_parameters=True, connect_args={"timeout": busy_timeout})

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


def for_reading(engine: Engine) -> Engine:
    """Return the engine with transactions whose queries all see the same moment.

    Else a host could be gone by the time its parents are looked up. SQLite's are so anyway.
    """
    if engine.dialect.name == "sqlite":
        return engine
    return engine.execution_options(isolation_level="REPEATABLE READ")


def hurry(session: Session) -> None:
    """Have the transaction's commit not wait for the disk, where the database can do that.

    For what is worth nothing without a later commit: once that one is on the disk, this one is.
    """
    connection = session.connection()
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql("SET LOCAL synchronous_commit TO off")


def retried(transaction: Callable[P, R]) -> Callable[P, R]:
    """Repeat a transaction that lost a race, waited too long or lost the server.

    In the end raise DatabaseBusy or DatabaseUnreachable; a constraint that stays broken is a
    fault of Volt's own and is raised as it is. A transaction whose commit was not answered
    may be done twice.
    """

    @wraps(transaction)
    def attempt(*args: P.args, **kwargs: P.kwargs) -> R:
        made = 0
        while True:
            made += 1
            try:
                return transaction(*args, **kwargs)
            except PoolExhausted as err:
                raise DatabaseBusy(_BUSY) from err
            except DBAPIError as err:
                fault = _fault(err)
                if fault is None or (made >= ATTEMPTS[fault] and isinstance(err, IntegrityError)):
                    raise
                if made >= ATTEMPTS[fault]:
                    raise _refusal(fault) from err
            metrics.DATABASE_RETRIES.inc()
            time.sleep(made * PAUSE * random.random())  # noqa: S311  # no secret is made of it

    return attempt


def _refusal(fault: _Fault) -> Unavailable:
    if fault is _Fault.DOWN:
        return DatabaseUnreachable(
            "the database does not answer or does not let Volt in: start it, or correct "
            "[database] connection"
        )
    return DatabaseBusy(_BUSY)


def _fault(error: DBAPIError) -> _Fault | None:
    """Return why it may come through if it is repeated; None if it will not."""
    if isinstance(error, IntegrityError):
        return _Fault.RACE  # such as two first heartbeats of one host
    if error.connection_invalidated:
        return _Fault.DOWN
    original = error.orig
    code = original.args[0] if original is not None and original.args else None
    if isinstance(code, int):
        return _ERRNOS.get(code)
    if (
        isinstance(error, OperationalError)
        and original is not None
        and hasattr(original, "sqlstate")
    ):
        # Without a state it was not the server that spoke: it could not be reached.
        return _SQLSTATES.get(original.sqlstate or "57P03")
    told = str(original)  # SQLite's errors have no number in their args
    if "unable to open" in told:
        return _Fault.DOWN
    return _Fault.WAIT if "locked" in told else None
