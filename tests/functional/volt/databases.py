"""Databases of all kinds for tests: one server of a kind for this process, many databases on it.

A server starts at the first use and dies with the process.
"""

import atexit
import itertools
import shutil
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from sqlalchemy import make_url

from lab import volt_database
from lab.databases import Mariadb, Postgresql, Server

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
    return _made(kind, cleanups)


def upgraded(kind: str, cleanups: ExitStack) -> str:
    """Return the URL of a new database with the tables of the newest schema.

    It is a copy of one that was upgraded, which takes a fraction of an upgrade.
    """
    if kind == "sqlite":
        url = empty(kind, cleanups)
        shutil.copyfile(_upgraded_file(), make_url(url).database)
        return url
    return _made(kind, cleanups, _upgraded_name(kind))


def _made(kind: str, cleanups: ExitStack, template: str | None = None) -> str:
    name = f"volt{next(_numbers)}"
    url = server(kind).create(name, template)
    cleanups.callback(server(kind).drop, name)
    return url


@cache
def _upgraded_file() -> str:
    cleanups = ExitStack()
    atexit.register(cleanups.close)
    url = empty("sqlite", cleanups)
    volt_database.upgrade(url)
    return make_url(url).database


@cache
def _upgraded_name(kind: str) -> str:
    volt_database.upgrade(server(kind).create("newest"))
    return "newest"


def _folder(cleanups: ExitStack) -> Path:
    return Path(cleanups.enter_context(TemporaryDirectory()))
