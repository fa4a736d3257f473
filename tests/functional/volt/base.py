"""What functional tests of Volt stand on: an empty database and a source that answers."""

import socket
import tempfile
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import testtools
from werkzeug.test import Client

from tests.functional.volt import databases
from volt import conf
from volt.api.app import create_app
from volt.api.handlers import Service
from volt.auth import policies
from volt.auth.access import Access, StoredTokens
from volt.auth.ratelimit import Rates
from volt.background import waiters
from volt.background.periodic import Rounds
from volt.background.waiters import Watch
from volt.db.changes import Changes
from volt.db.engine import connect
from volt.db.peers import PeerRows
from volt.db.tokens import Tokens
from volt.registry.batches import Turns
from volt.registry.caps import Caps
from volt.registry.copies import Copies
from volt.registry.holds import Holds
from volt.registry.hosts import Hosts
from volt.registry.images import Images
from volt.registry.imports import Imports
from volt.registry.peers import Peers
from volt.registry.placements import Placements
from volt.registry.profiles import Profiles
from volt.registry.reports import Prober, Reports
from volt.registry.warmups import Warmups


class Ground:
    """An upgraded database, what Volt does over it and a listening source port."""

    def __init__(self, cleanups: ExitStack, database: str = "sqlite") -> None:
        self.folder = Path(cleanups.enter_context(tempfile.TemporaryDirectory()))
        self.url = databases.upgraded(database, cleanups)
        self.engine = connect(self.url, busy_timeout=10)
        cleanups.callback(self.engine.dispose)
        turns = Turns()
        self.images = Images(self.engine, turns, source_timeout=2)
        self.placements = Placements(self.engine, turns)
        self.watch = Watch(Changes(self.engine).following, told=lambda changes: None)
        rounds = Rounds("watch", self.watch.look, waiters.INTERVAL)
        rounds.start()
        cleanups.callback(rounds.stop)
        self.hosts = Hosts(self.engine, self.placements)
        self.reports = Reports(self.hosts, Prober())
        self.tokens = Tokens(self.engine)
        self.peers = Peers(PeerRows(self.engine), timedelta(hours=24))
        self.profiles = Profiles(self.engine, turns)
        self.warmups = Warmups(self.engine, turns)
        self.caps = Caps(self.engine)
        self.copies = Copies(self.engine, turns)
        self.holds = Holds(self.engine)
        self.imports = Imports(self.engine)
        self.operator = self.token("operator")
        self.app = self.serve()
        source = cleanups.enter_context(socket.create_server(("127.0.0.1", 0)))
        self.source_port = source.getsockname()[1]

    def token(self, role, host=None, expires_at=None):
        """Return a new token."""
        ((_, token),) = self.tokens.create(role, [host], datetime.now(UTC), expires_at)
        return token

    def serve(self, rates=None, policy="{}", fresh=5.0, interval=2.0):
        """Return an application; ``client`` speaks to it as an operator unless told who."""
        (self.folder / "policy.yaml").write_text(policy)
        beside = self.folder / "app.conf"
        beside.write_text("")
        enforcer = policies.load(conf.load([str(beside)]))
        rates = rates or Rates(1e6, 10**6)
        access = Access(StoredTokens(self.tokens, fresh), enforcer, rates)
        nouns = self.images, self.placements, self.hosts
        others = self.watch, self.reports, self.peers, self.profiles, self.warmups, self.caps
        service = Service(*nouns, interval, *others, self.holds, self.imports, self.copies)
        return create_app(service, access)

    def client(self, app=None):
        """Return a client of an application."""
        return _Client(app or self.app, self.operator)


class _Client(Client):
    def __init__(self, app, token):
        super().__init__(app)
        self.base = {"HTTP_AUTHORIZATION": f"Bearer {token}"}

    def open(self, *args, **kwargs):
        return super().open(*args, environ_base=self.base, **kwargs)


class TestCase(testtools.TestCase):
    """A test on a ground of its own; ``database`` is the kind of its database."""

    database = "sqlite"

    def setUp(self):
        super().setUp()
        self.cleanups = ExitStack()
        self.addCleanup(self.cleanups.close)
        self.ground = Ground(self.cleanups, self.database)
