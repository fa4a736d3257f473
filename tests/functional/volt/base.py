"""What functional tests of Volt stand on: an empty database and a source that answers."""

import socket
import tempfile
from contextlib import ExitStack
from pathlib import Path

import testtools

from volt.app import create_app
from volt.db import upgrade
from volt.db.engine import connect
from volt.handlers import Service
from volt.trees import Coordinator


class Ground:
    """An upgraded database, a coordinator over it and a listening source port."""

    def __init__(self, cleanups: ExitStack) -> None:
        self.folder = Path(cleanups.enter_context(tempfile.TemporaryDirectory()))
        self.url = f"sqlite:///{self.folder}/volt.sqlite"
        self.engine = connect(self.url, busy_timeout=10)
        cleanups.callback(self.engine.dispose)
        upgrade.upgrade(self.engine)
        self.coordinator = Coordinator(self.engine, source_timeout=2)
        self.app = create_app(Service(self.coordinator, heartbeat_interval=2.0))
        source = cleanups.enter_context(socket.create_server(("127.0.0.1", 0)))
        self.source_port = source.getsockname()[1]


class TestCase(testtools.TestCase):
    def setUp(self):
        super().setUp()
        cleanups = ExitStack()
        self.addCleanup(cleanups.close)
        self.ground = Ground(cleanups)
