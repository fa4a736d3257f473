"""When the database is told to look at its tables again.

PostgreSQL plans queries by statistics that it takes at most once a minute. Thousands of hosts
may join within that time, and a plan for a small table reads all of a large one.
"""

import logging
from threading import Thread

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

LOG = logging.getLogger(__name__)

SMALLEST = 64
"""Hosts; for fewer any plan will do."""


def is_due(before: int, after: int) -> bool:
    """Tell whether so many hosts instead of so many call for another look."""
    return after >= SMALLEST and after.bit_length() > before.bit_length()


def refresh(engine: Engine) -> None:
    """Have statistics taken anew where the database does not do so in time by itself.

    Returns at once: nobody's place depends on them.
    """
    if engine.dialect.name == "postgresql":
        Thread(target=_analyze, args=(engine,), name="statistics", daemon=True).start()


def _analyze(engine: Engine) -> None:
    try:
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql("ANALYZE nodes, placements, hosts")
    except SQLAlchemyError as err:  # another worker may be at it
        LOG.debug("no new statistics: %s", err)
