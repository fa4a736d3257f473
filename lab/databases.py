"""Database servers of one's own: PostgreSQL and MariaDB from Debian's packages, thrown away after.

    with Postgresql() as server:
        url = server.create("volt")

A server listens on 127.0.0.1 alone, at a free port and with a password of its own. It keeps
its data in a temporary folder, and dies with the process that started it.
"""

import os
import re
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import psycopg
import pymysql

from lab import processes
from lab.errors import DatabaseLost
from lab.ports import ADDRESS, free_port
from lab.waiting import wait_until

ACCOUNT = "nobody"  # neither server runs as root
START = 60  # seconds: a machine that runs many tests starts servers slowly


class Server:
    """What both kinds of servers do alike."""

    kind = ""

    def __init__(self, durable: bool = True) -> None:
        """Start it; one that is not ``durable`` never waits for the disk."""
        self.password = secrets.token_hex(16)
        self.folder = Path(tempfile.mkdtemp(prefix=f"virtman-{self.kind}-"))
        self.log = self.folder / "log"
        try:
            if os.geteuid() == 0:
                shutil.chown(self.folder, ACCOUNT)
            self._initialize()
            self.port = free_port()
            self._words = _as_account(self._command(durable))
            self.start()
        except BaseException:
            self.stop()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start the server on the data that it has, and wait until it answers."""
        self._process = processes.start(self._words, self.kind, self.log, cwd=self.folder)
        wait_until(lambda: self._answers() or not self._process.alive(), self.kind, START)
        if not self._process.alive():
            raise DatabaseLost(f"{self.kind} ended: {self.log.read_text()[-4000:]}")

    def kill(self) -> None:
        """End the server without a word; its data stay."""
        members = self.processes()
        self._process.end()
        # PostgreSQL's sessions lead groups of their own, and end once the first one is gone.
        # It may have become a zombie just now: whoever looks whether it is alive collects it.
        wait_until(
            lambda: not self._process.alive() and not any(map(processes.stat_of, members)),
            f"{self.kind}'s end",
            10,
        )

    def stop(self) -> None:
        """End the server without a word, and remove its data."""
        if hasattr(self, "_process"):
            self.kill()
        shutil.rmtree(self.folder)

    def create(self, name: str, template: str | None = None) -> str:
        """Make an empty database, or a copy of another one; return its URL."""
        raise NotImplementedError

    def drop(self, name: str) -> None:
        """Remove a database that nobody uses any more."""
        raise NotImplementedError

    def processes(self) -> list[int]:
        """Return the server's processes: the one that was started, and those that it started."""
        pid = self._process.pid
        try:
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return []
        return [pid, *map(int, children.split())]

    def query(self, statement: str, database: str | None = None) -> list[tuple[Any, ...]]:
        """Return the rows of a statement that the server's administrator gives."""
        raise NotImplementedError

    def _answers(self) -> bool:
        try:
            return bool(self.query("SELECT 1"))
        except (psycopg.OperationalError, pymysql.err.OperationalError):
            return False

    def _initialize(self) -> None:
        raise NotImplementedError

    def _command(self, durable: bool) -> list[str | Path]:
        raise NotImplementedError

    def _run(self, *command: str | Path) -> None:
        """Run a command that prepares the data."""
        done = subprocess.run(
            [str(word) for word in _as_account(command)],
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise DatabaseLost(f"{command[0]}: {done.stdout[-2000:]}{done.stderr[-2000:]}")


class Postgresql(Server):
    """A PostgreSQL server; its time zone is not UTC, so that nobody relies on that."""

    kind = "postgresql"

    def create(self, name: str, template: str | None = None) -> str:
        """Make a database; nobody may be using the template."""
        self.query(f"CREATE DATABASE {name} TEMPLATE {template or 'template1'}")
        return f"postgresql://volt:{self.password}@{ADDRESS}:{self.port}/{name}"

    def drop(self, name: str) -> None:
        """Remove a database, ending what still uses it."""
        self.query(f"DROP DATABASE {name} WITH (FORCE)")

    def query(self, statement: str, database: str | None = None) -> list[tuple[Any, ...]]:
        """Run one statement outside a transaction."""
        with psycopg.connect(
            host=ADDRESS,
            port=self.port,
            user="volt",
            password=self.password,
            dbname=database or "postgres",
            autocommit=True,
        ) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def transactions_per_s(self, clients: Sequence[int], seconds: int) -> list[float]:
        """Return what pgbench reaches here with so many clients at once: short durable writes.

        :param clients: one number for each run
        """
        self.create("pgbench")
        where = ["-h", ADDRESS, "-p", str(self.port), "-U", "volt"]
        program = _newest("/usr/lib/postgresql/*/bin/pgbench")
        self._pgbench(program, *where, "-i", "-q", "-s", "10", "pgbench")
        load = ["-N", "-T", str(seconds), "-c"]
        said = [self._pgbench(program, *where, *load, str(one), "pgbench") for one in clients]
        self.drop("pgbench")
        return [float(re.findall(r"^tps = ([0-9.]+)", one, re.MULTILINE)[-1]) for one in said]

    def _pgbench(self, *command: str | Path) -> str:
        env = os.environ | {"PGPASSWORD": self.password}
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        if done.returncode:
            raise DatabaseLost(f"{command[0]}: {done.stderr[-2000:]}")
        return done.stdout

    def _initialize(self) -> None:
        secret = self.folder / "password"
        secret.write_text(self.password)
        secret.chmod(0o644)  # the folder is nobody else's to enter
        self._run(
            _newest("/usr/lib/postgresql/*/bin/initdb"),
            "--pgdata", self.folder / "data", "--username", "volt", "--pwfile", secret,
            "--auth", "scram-sha-256", "--encoding", "UTF8", "--locale", "C.UTF-8", "--no-sync",
        )  # fmt: skip

    def _command(self, durable: bool) -> list[str | Path]:
        settings = {
            "listen_addresses": ADDRESS,
            "port": self.port,
            "unix_socket_directories": self.folder,
            "timezone": "Asia/Kolkata",
        }
        if not durable:
            settings |= {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off"}
        words = [f"--{name.replace('_', '-')}={value}" for name, value in settings.items()]
        return [_newest("/usr/lib/postgresql/*/bin/postgres"), "-D", self.folder / "data", *words]


class Mariadb(Server):
    """A MariaDB server."""

    kind = "mariadb"

    def create(self, name: str, template: str | None = None) -> str:
        """Make a database; MariaDB has no copies of databases, but tells how tables are made."""
        self.query(f"CREATE DATABASE {name} CHARACTER SET utf8mb4")
        if template is not None:
            self._copy(template, name)
        return f"mysql://volt:{self.password}@{ADDRESS}:{self.port}/{name}"

    def drop(self, name: str) -> None:
        """Remove a database."""
        self.query(f"DROP DATABASE {name}")

    def query(self, statement: str, database: str | None = None) -> list[tuple[Any, ...]]:
        """Run one statement."""
        with self._connect(database) as connection, connection.cursor() as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall())

    def _connect(self, database: str | None) -> pymysql.Connection:
        return pymysql.connect(
            host=ADDRESS,
            port=self.port,
            user="volt",
            password=self.password,
            database=database,
            autocommit=True,
        )

    def _copy(self, template: str, name: str) -> None:
        with self._connect(name) as connection, connection.cursor() as cursor:
            # a table may refer to one that comes later
            cursor.execute("SET foreign_key_checks = 0")
            cursor.execute(f"SHOW TABLES FROM {template}")
            for (table,) in cursor.fetchall():
                cursor.execute(f"SHOW CREATE TABLE {template}.{table}")
                ((_, statement),) = cursor.fetchall()
                cursor.execute(statement)
                # names are our own
                cursor.execute(f"INSERT INTO {table} SELECT * FROM {template}.{table}")  # noqa: S608

    @property
    def _temporary(self) -> Path:
        """Where temporary tables are: a server that starts removes those of all who share that."""
        return self.folder / "tmp"

    def _initialize(self) -> None:
        self._run("mkdir", self._temporary)
        self._run(
            "mariadb-install-db", "--no-defaults", f"--datadir={self.folder / 'data'}",
            "--auth-root-authentication-method=normal", "--skip-test-db",
            f"--tmpdir={self._temporary}",
        )  # fmt: skip
        (self.folder / "first.sql").write_text(
            f"ALTER USER root@localhost IDENTIFIED BY '{self.password}';\n"
            f"CREATE USER volt@localhost IDENTIFIED BY '{self.password}';\n"
            "GRANT ALL ON *.* TO volt@localhost;\n"
        )

    def _command(self, durable: bool) -> list[str | Path]:
        settings = {
            "datadir": self.folder / "data",
            "tmpdir": self._temporary,
            "init-file": self.folder / "first.sql",
            "bind-address": ADDRESS,
            "port": self.port,
            "socket": self.folder / "socket",
            "pid-file": self.folder / "pid",
        }
        if not durable:
            settings |= {"innodb-flush-log-at-trx-commit": 0, "innodb-doublewrite": 0}
        words = [f"--{name}={value}" for name, value in settings.items()]
        return ["mariadbd", "--no-defaults", *words]


def _as_account(command: Sequence[str | Path]) -> list[str | Path]:
    """Return the command run by an ordinary account, and killed when its parent dies."""
    account = ["--reuid", ACCOUNT, "--regid", "nogroup", "--clear-groups"]
    return [*processes.MORTAL, *(account if os.geteuid() == 0 else []), *command]


def _newest(pattern: str) -> Path:
    """Return the last of the paths that match: Debian keeps versions side by side."""
    found = sorted(Path("/").glob(pattern.lstrip("/")))
    if not found:
        raise DatabaseLost(f"there is no {pattern}: install the packages of tools/packages.txt")
    return found[-1]
