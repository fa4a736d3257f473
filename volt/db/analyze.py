"""When the database is told to look at its tables again.

PostgreSQL plans queries by statistics that it takes at most once a minute. Thousands of hosts
may join within that time, and a plan for a small table reads all of a large one.
"""

import logging
from threading import Thread

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

LOG = logging.getLogger(__name__)

SMALLEST = 32
"""Hosts; for fewer any plan will do."""


class Statistics:
    """Has the database take statistics anew each time that a worker has placed four times as many.

    Other workers count for themselves.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._placed = 0

    def grow(self, placed: int) -> None:
        """Note that so many more hosts were placed; nobody's place depends on what comes of it."""
        before, self._placed = self._placed, self._placed + placed
        if is_due(before, self._placed) and self._engine.dialect.name == "postgresql":
            Thread(target=_analyze, args=(self._engine,), name="statistics", daemon=True).start()


def is_due(before: int, after: int) -> bool:
    """Tell whether so many placed hosts instead of so many call for another look."""
    return after >= SMALLEST and _fours(after) > _fours(before)


def _fours(number: int) -> int:
    return number.bit_length() // 2


def _analyze(engine: Engine) -> None:
    try:
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql("ANALYZE nodes, placements, hosts")
    except SQLAlchemyError as err:  # another worker may be at it
        LOG.debug("no new statistics: %s", err)
