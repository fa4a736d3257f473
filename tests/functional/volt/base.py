"""What functional tests of Volt stand on: an empty database and a source that answers."""

import socket
import tempfile
from contextlib import ExitStack
from pathlib import Path

import testtools

from tests.functional.volt import databases
from volt import watch
from volt.app import create_app
from volt.db.changes import Changes
from volt.db.engine import connect
from volt.handlers import Service
from volt.reports import Prober, Reports
from volt.roster import Roster
from volt.rounds import Rounds
from volt.trees import Coordinator
from volt.watch import Watch


class Ground:
    """An upgraded database, a coordinator over it and a listening source port."""

    def __init__(self, cleanups: ExitStack, database: str = "sqlite") -> None:
        self.folder = Path(cleanups.enter_context(tempfile.TemporaryDirectory()))
        self.url = databases.upgraded(database, cleanups)
        self.engine = connect(self.url, busy_timeout=10)
        cleanups.callback(self.engine.dispose)
        self.coordinator = Coordinator(self.engine, source_timeout=2)
        self.watch = Watch(Changes(self.engine).following, told=lambda changes: None)
        rounds = Rounds("watch", self.watch.look, watch.INTERVAL)
        rounds.start()
        cleanups.callback(rounds.stop)
        self.roster = Roster(self.engine, self.coordinator)
        reports = Reports(self.roster, Prober())
        self.app = create_app(Service(self.coordinator, self.roster, 2.0, self.watch, reports))
        source = cleanups.enter_context(socket.create_server(("127.0.0.1", 0)))
        self.source_port = source.getsockname()[1]


class TestCase(testtools.TestCase):
    """A test on a ground of its own; ``database`` is the kind of its database."""

    database = "sqlite"

    def setUp(self):
        super().setUp()
        self.cleanups = ExitStack()
        self.addCleanup(self.cleanups.close)
        self.ground = Ground(self.cleanups, self.database)
