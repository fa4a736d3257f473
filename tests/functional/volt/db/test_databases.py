"""What holds for each kind of database: its schema, its faults, its URL."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from unittest import mock

import fixtures
import testtools
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, MetaData, Table, inspect, make_url, text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session
from testscenarios import load_tests_apply_scenarios as load_tests  # noqa: F401

from lab.databases import Postgresql
from lab.ports import free_port
from tests.functional.volt import databases
from volt import errors
from volt.db import upgrade
from volt.db.engine import connect, for_writing, retried
from volt.db.models import Base, ImageRow


class DatabaseCase(testtools.TestCase):
    scenarios = databases.SCENARIOS
    database = "sqlite"

    def setUp(self):
        super().setUp()
        self.cleanups = ExitStack()
        self.addCleanup(self.cleanups.close)

    def open(self, url, busy_timeout=10.0) -> Engine:
        engine = connect(url, busy_timeout)
        self.cleanups.callback(engine.dispose)
        return engine


class TestSchema(DatabaseCase):
    def setUp(self):
        super().setUp()
        self.url = databases.empty(self.database, self.cleanups)
        self.engine = self.open(self.url)

    def differences(self):
        with self.engine.connect() as connection:
            context = MigrationContext.configure(connection, opts={"compare_type": True})
            return compare_metadata(context, Base.metadata)

    def move(self, verb, revision):
        config = upgrade._config()
        with self.engine.begin() as connection:
            config.attributes["connection"] = connection
            verb(config, revision)

    def test_the_migrations_make_the_tables_of_the_models(self):
        upgrade.upgrade(self.engine)
        assert self.differences() == []

    def test_each_migration_goes_up_down_and_up_again(self):
        script = ScriptDirectory.from_config(upgrade._config())
        revisions = [one.revision for one in reversed(list(script.walk_revisions()))]
        for revision in revisions:
            self.move(command.upgrade, revision)
            self.move(command.downgrade, "-1")
            self.move(command.upgrade, revision)
        assert self.differences() == []
        self.move(command.downgrade, "base")
        assert inspect(self.engine).get_table_names() == ["alembic_version"]

    def test_images_from_before_there_were_profiles_have_none(self):
        self.move(command.upgrade, "0006")
        images = Table("images", MetaData(), autoload_with=self.engine)
        any_of = {int: 1, str: "[]", object: [], datetime: datetime.now(UTC)}
        row = {one.name: any_of[one.type.python_type] for one in images.c if not one.nullable}
        with self.engine.begin() as connection:
            connection.execute(images.insert().values(row | {"name": "x"}))
        upgrade.upgrade(self.engine)
        with Session(self.engine) as session:
            image = session.get(ImageRow, "x")
            assert (image.profiles, image.revisions) == ({}, {})

    def test_the_next_upgrade_has_its_turn_once_all_is_written(self):
        seen = []

        @contextmanager
        def turn(connection):
            with take(connection):
                yield
            # whoever waited for its turn may read now
            with self.engine.connect() as other:
                seen.append(upgrade._revision(other))

        take = upgrade._turn
        self.useFixture(fixtures.MockPatchObject(upgrade, "_turn", turn))
        upgrade.upgrade(self.engine)
        needed = ScriptDirectory.from_config(upgrade._config()).get_current_head()
        assert seen == [needed]

    def test_upgrades_at_the_same_time_take_turns(self):
        engines = [self.open(self.url) for _ in range(4)]
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(upgrade.upgrade, engines))
        upgrade.check(self.engine)
        assert self.differences() == []


class TestAccess(DatabaseCase):
    def test_who_is_not_let_in_is_told_so_without_the_password(self):
        url = make_url(databases.empty(self.database, self.cleanups))
        wrong = [url.set(database=f"{url.database}-none/volt")]
        if self.database != "sqlite":
            wrong.append(url.set(username="nobody", password="sesame"))
        for one in wrong:
            engine = self.open(one.render_as_string(hide_password=False))
            for verb in (upgrade.check, upgrade.upgrade):
                refusal = self.assertRaises(errors.DatabaseUnreachable, verb, engine)
                assert "correct [database] connection" in str(refusal)
                assert "sesame" not in f"{refusal} {refusal.__cause__}"


class TestTransactions(DatabaseCase):
    def setUp(self):
        super().setUp()
        self.url = databases.empty(self.database, self.cleanups)
        self.engine = for_writing(self.open(self.url))
        with self.engine.begin() as connection:
            connection.execute(text("CREATE TABLE counters (name INT PRIMARY KEY, value INT)"))
            connection.execute(text("INSERT INTO counters VALUES (1, 0), (2, 0)"))

    def add(self, *names):
        """Add one to these counters, in this order."""
        with self.engine.begin() as connection:
            for name in names:
                connection.execute(
                    text("UPDATE counters SET value = value + 1 WHERE name = :name"), {"name": name}
                )

    def values(self):
        with self.engine.connect() as connection:
            return list(connection.scalars(text("SELECT value FROM counters ORDER BY name")))

    def test_transactions_that_meet_head_on_all_come_through(self):
        ways = [(1, 2), (2, 1)] * 10
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda way: retried(self.add)(*way), ways))
        assert self.values() == [20, 20]

    def test_of_two_who_insert_one_row_the_second_finds_it(self):
        def count(name):
            with self.engine.begin() as connection:
                query = text("SELECT value FROM counters WHERE name = :name")
                if connection.scalar(query, {"name": name}) is None:
                    insert = text("INSERT INTO counters VALUES (:name, 0)")
                    connection.execute(insert, {"name": name})
            self.add(name)

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(retried(count), [3, 4, 5, 6] * 8))
        assert self.values() == [0, 0, 8, 8, 8, 8]

    def test_a_constraint_that_stays_broken_is_no_lost_race(self):
        def insert():
            with self.engine.begin() as connection:
                connection.execute(text("INSERT INTO counters VALUES (1, 0)"))

        self.assertRaises(IntegrityError, retried(insert))
        assert self.values() == [0, 0]

    def test_a_connection_that_was_ended_is_replaced(self):
        self.add(1)
        self.end_connections()
        retried(self.add)(1)
        assert self.values() == [2, 0]

    def test_one_that_was_idle_for_a_while_is_not_even_tried(self):
        self.add(1)
        self.end_connections()
        with mock.patch("volt.db.engine.IDLE", 0):
            self.add(1)
        assert self.values() == [2, 0]

    def end_connections(self):
        if self.database == "sqlite":
            self.skipTest("SQLite has no connection that a server could end")
        server = databases.server(self.database)
        if self.database == "postgresql":
            server.query(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                f"WHERE datname = '{self.engine.url.database}'"
            )
        else:
            mine = "SELECT id FROM information_schema.processlist WHERE db = "
            for (session,) in server.query(f"{mine} '{self.engine.url.database}'"):
                server.query(f"KILL {session}")


class TestUrls(testtools.TestCase):
    """What may stand in [database] connection."""

    def refusal(self, url):
        message = str(self.assertRaises(errors.DatabaseInvalid, connect, url, 1))
        assert "secret" not in message
        return message

    def test_a_plain_url_means_the_driver_that_volt_uses(self):
        for url, driver in (
            ("postgresql://volt:secret@db/volt", "postgresql+psycopg"),
            ("mysql://volt:secret@db/volt", "mysql+pymysql"),
            ("mariadb://volt:secret@db/volt", "mariadb+pymysql"),
            ("postgresql+psycopg://volt@db/volt", "postgresql+psycopg"),
        ):
            assert connect(url, 1).url.drivername == driver

    def test_another_driver_is_refused_by_name(self):
        message = self.refusal("postgresql+psycopg2://volt:secret@db/volt")
        assert "postgresql+psycopg://" in message

    def test_what_is_no_url_is_refused_without_being_quoted(self):
        for url in ("", "secret", "oracle://volt:secret@db/volt", "postgresql://v:secret@db:x/v"):
            self.refusal(url)

    def test_a_server_that_is_down_is_unreachable_and_the_password_is_not_told(self):
        for url in ("postgresql://volt:secret@127.0.0.1:1/v", "mysql://volt:secret@127.0.0.1:1/v"):
            engine = connect(url, 1)
            refusal = self.assertRaises(errors.DatabaseUnreachable, upgrade.check, engine)
            assert "secret" not in f"{refusal} {refusal.__cause__}"


class TestServer(testtools.TestCase):
    def test_a_stopped_server_leaves_neither_process_nor_folder(self):
        with Postgresql(durable=False) as server:
            assert server.processes()
        assert not server.processes()
        assert not server.folder.exists()

    def test_two_servers_are_never_given_one_port(self):
        ports = [free_port() for _ in range(500)]
        assert len(set(ports)) == len(ports)
