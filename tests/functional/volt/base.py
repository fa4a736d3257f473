"""What functional tests of Volt stand on: an empty database and a source that answers."""

import socket
import tempfile
from contextlib import ExitStack
from pathlib import Path

import testtools

from tests.functional.volt import databases
from volt.app import create_app
from volt.db.engine import connect
from volt.handlers import Service
from volt.roster import Roster
from volt.trees import Coordinator


class Ground:
    """An upgraded database, a coordinator over it and a listening source port."""

    def __init__(self, cleanups: ExitStack, database: str = "sqlite") -> None:
        self.folder = Path(cleanups.enter_context(tempfile.TemporaryDirectory()))
        self.url = databases.upgraded(database, cleanups)
        self.engine = connect(self.url, busy_timeout=10)
        cleanups.callback(self.engine.dispose)
        self.coordinator = Coordinator(self.engine, source_timeout=2)
        self.roster = Roster(self.engine, self.coordinator)
        self.app = create_app(Service(self.coordinator, self.roster, heartbeat_interval=2.0))
        source = cleanups.enter_context(socket.create_server(("127.0.0.1", 0)))
        self.source_port = source.getsockname()[1]


class TestCase(testtools.TestCase):
    """A test on a ground of its own; ``database`` is the kind of its database."""

    database = "sqlite"

    def setUp(self):
        super().setUp()
        cleanups = ExitStack()
        self.addCleanup(cleanups.close)
        self.ground = Ground(cleanups, self.database)
