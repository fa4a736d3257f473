"""Volt's tables and tokens, made by its own code in this process.

Each bed needs some, and a volt-manage takes more than a second to start.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from volt.db import upgrade as schema
from volt.db.engine import connect
from volt.db.tokens import Tokens

BUSY_TIMEOUT = 10.0  # seconds


def upgrade(url: str) -> None:
    """Bring a database to the newest schema."""
    with _opened(url) as engine:
        schema.upgrade(engine)


def token(url: str, role: str, host: str | None = None) -> str:
    """Return a new token, perhaps one that speaks for a host."""
    with _opened(url) as engine:
        ((_, secret),) = Tokens(engine).create(role, [host], datetime.now(UTC), None)
    return secret


@contextmanager
def _opened(url: str) -> Iterator[Any]:
    engine = connect(url, BUSY_TIMEOUT)
    try:
        yield engine
    finally:
        engine.dispose()
