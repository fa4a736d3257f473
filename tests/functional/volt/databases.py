"""Databases of all kinds for tests: one server of a kind for this process, many databases on it.

A server starts at the first use and dies with the process.
"""

import atexit
import itertools
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from lab.databases import Mariadb, Postgresql, Server
from volt.db import upgrade
from volt.db.engine import connect

KINDS = ("sqlite", "postgresql", "mariadb")
SCENARIOS = [(kind, {"database": kind}) for kind in KINDS]
_numbers = itertools.count()


@cache
def server(kind: str) -> Server:
    """Return this process's server of a kind."""
    started = {"postgresql": Postgresql, "mariadb": Mariadb}[kind](durable=False)
    atexit.register(started.stop)
    return started


def empty(kind: str, cleanups: ExitStack) -> str:
    """Return the URL of a new database without any table."""
    if kind == "sqlite":
        return f"sqlite:///{_folder(cleanups)}/volt.sqlite"
    return _made(kind, cleanups, None)


def upgraded(kind: str, cleanups: ExitStack) -> str:
    """Return the URL of a new database with the tables of the newest schema."""
    if kind == "postgresql":
        return _made(kind, cleanups, _template())  # ten times as fast as an upgrade
    url = empty(kind, cleanups)
    _upgrade(url)
    return url


def _made(kind: str, cleanups: ExitStack, template: str | None) -> str:
    name = f"volt{next(_numbers)}"
    url = server(kind).create(name, template)
    cleanups.callback(server(kind).drop, name)
    return url


@cache
def _template() -> str:
    _upgrade(server("postgresql").create("newest"))
    return "newest"


def _upgrade(url: str) -> None:
    engine = connect(url, busy_timeout=10)
    upgrade.upgrade(engine)
    engine.dispose()


def _folder(cleanups: ExitStack) -> Path:
    return Path(cleanups.enter_context(TemporaryDirectory()))
