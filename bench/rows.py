"""How many rows a database reads and writes for a request, as its own counters say."""

import asyncio
import time

from lab.databases import Mariadb, Postgresql, Server

_POSTGRESQL = (
    "SELECT sum(coalesce(idx_tup_fetch, 0) + seq_tup_read + n_tup_ins + n_tup_upd + n_tup_del) "
    "FROM pg_stat_user_tables"
)
_MARIADB = (
    "SELECT sum(variable_value) FROM information_schema.global_status WHERE variable_name IN "
    "('Handler_read_first', 'Handler_read_key', 'Handler_read_last', 'Handler_read_next', "
    "'Handler_read_prev', 'Handler_read_rnd', 'Handler_read_rnd_next', 'Handler_write', "
    "'Handler_update', 'Handler_delete')"
)


class RowCounter:
    """Counts between ``begin`` and ``end``, less what Volt touches when nothing is asked of it."""

    def __init__(self, server: Server, database: str) -> None:
        self._server, self._database = server, database
        # A session of PostgreSQL with nothing more to do reports what it did within 10 s.
        self._settle = 11.0 if isinstance(server, Postgresql) else 2.0
        self._statement = _MARIADB if isinstance(server, Mariadb) else _POSTGRESQL

    async def begin(self) -> None:
        """Count from here on; first take the measure of an idle Volt."""
        await asyncio.sleep(self._settle)
        first, began = self._read(), time.monotonic()
        await asyncio.sleep(self._settle)
        self._count, self._began = self._read(), time.monotonic()
        self._idle = (self._count - first) / (self._began - began)

    async def end(self) -> float:
        """Return the rows since ``begin``."""
        await asyncio.sleep(self._settle)
        count, ended = self._read(), time.monotonic()
        return max(0.0, count - self._count - self._idle * (ended - self._began))

    def _read(self) -> int:
        return int(self._server.query(self._statement, self._database)[0][0])
