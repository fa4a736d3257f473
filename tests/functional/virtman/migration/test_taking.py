"""A storage node takes layers from the nodes that made them: whole and right, or not at all."""

import fcntl
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256

import fixtures

from tests.functional.virtman.doubles.model import CHUNK
from tests.functional.virtman.migration.test_commits import CommitCase
from tests.functional.virtman.migration.test_exports import Storage
from virtman.errors import (
    ImageUnknown,
    InvalidRequest,
    LayerComing,
    LayerUnknown,
    LayerWrong,
    MoveGarbled,
    NoSpace,
    PeerUnreachable,
)
from virtman.migration import commits, taking
from virtman.migration.peer_client import Peer
from virtman.model import layer_format

NEVER = 1 << 60


class TakingTest(CommitCase):
    def setUp(self):
        super().setUp()
        self.storage = Storage(self)
        folder = self.useFixture(fixtures.TempDir()).path
        for module, name, stand_in in (
            (taking, "_FOLDER", self.bed.folder / folder),
            (taking, "PORTION", CHUNK),
            (taking, "_PATIENCE", 0),
            (commits, "PORTION", CHUNK),
        ):
            self.useFixture(fixtures.MockPatchObject(module, name, stand_in))
        self.asked = []
        self.dies_at = NEVER
        ask = Peer.layer

        def layer(peer, name, at, size):
            if at >= self.dies_at:
                raise PeerUnreachable("gone")
            self.asked.append(at)
            return ask(peer, name, at, size)

        self.useFixture(fixtures.MockPatchObject(Peer, "layer", layer))
        self.commit()
        self.length = self.file_of_a().stat().st_size

    def file_of_a(self):
        return self.a.commits.layers.file("web")

    def take(self, layer="web", **words):
        given = self.storage
        with given.process.here():
            return taking.take(layer, given.folder, given.where, given.volt, given.access, **words)

    def sums(self, layer):
        files = self.a.commits.layers.file(layer), self.storage.folder / f"{layer}.layer"
        return [sha256(file.read_bytes()).hexdigest() for file in files]

    def made_slowly(self, fails=None):
        """Have the next layer stop in the middle; return what lets it go on."""
        pieces, goes_on = layer_format.pieces, threading.Event()

        def slowly(*arguments):
            for number, piece in enumerate(pieces(*arguments)):
                if number == 3:
                    goes_on.wait(20)
                    if fails is not None:
                        raise fails
                yield piece

        self.useFixture(fixtures.MockPatchObject(layer_format, "pieces", slowly))
        self.useFixture(fixtures.MockPatchObject(commits, "_PATIENCE", 0.2))
        return goes_on

    def begun(self, layer):
        """Have a layer made, and taken meanwhile; return what becomes of that."""
        self.asked.clear()
        self.begin(layer)
        pool = ThreadPoolExecutor(1)
        self.addCleanup(pool.shutdown)
        found = pool.submit(self.take, layer, maker="a")
        part = self.storage.folder / f"{layer}.layer.part"
        self.await_(lambda: part.exists() and part.stat().st_size >= 3 * CHUNK, lambda: self.asked)
        self.assertRaises(ImageUnknown, self.known, layer)
        return found

    def assert_taken(self):
        self.assertEqual(["web.layer"], self.storage.files())
        content = (self.storage.folder / "web.layer").read_bytes()
        self.assertEqual(self.file_of_a().read_bytes(), content)
        self.assertEqual("", self.known().layer.maker)

    def test_it_is_the_source_from_then_on_and_the_node_may_remove_the_layer(self):
        self.b.create("vm2", "web")
        before = self.bed.volt.trees("web").generation
        self.assertEqual("a", self.known().layer.maker)
        portal = self.take().portal
        self.assert_taken()
        self.assertEqual(self.storage.where.ip, portal.ip)
        self.assertGreater(self.bed.volt.trees("web").generation, before)
        self.take()
        self.assertTrue(self.remove())
        self.assertFalse(self.file_of_a().exists())
        self.take()
        self.assertEqual(self.length, CHUNK * len(self.asked))
        self.a.create("vm3", "web")
        self.assertEqual("ab...f..", self.read(self.a, "vm3", image="web"))

    def test_it_is_based_on_what_has_the_same_blocks(self):
        self.assertEqual((), self.take().based_on)
        self.write(self.a, "vm1", c5="g")
        self.commit("web2")
        self.assertEqual(("web",), self.take("web2").based_on)
        self.b.create("vm2", "web")
        self.b.create("vm3", "web2")
        self.b.settle()
        self.assertEqual(("web",), self.b.agent.images.attached("web2").lenders)
        self.assertEqual("ab...g..", self.read(self.b, "vm3", image="web2"))
        self.assertEqual("ab...f..", self.read(self.b, "vm2", image="web"))

    def test_it_comes_while_it_is_made(self):
        goes_on = self.made_slowly()
        found = self.begun("web2")
        self.assertFalse(found.done())
        goes_on.set()
        self.assertEqual(self.storage.where.ip, found.result(20).portal.ip)
        self.assertEqual("kept", self.ended("web2").state)
        self.assertEqual("", self.known("web2").layer.maker)
        self.assertEqual(*self.sums("web2"))

    def test_one_that_is_given_up_does_not_come(self):
        goes_on = self.made_slowly(fails=NoSpace("full"))
        found = self.begun("web2")
        goes_on.set()
        self.assertRaises(LayerUnknown, found.result, 20)
        self.assertRaises(ImageUnknown, self.take, "web2")
        with fixtures.MockPatchObject(commits, "_PATIENCE", 0.2):
            self.assertRaises(LayerUnknown, self.take, "web3", maker="b")

    def test_of_a_node_whose_agent_dies_meanwhile_it_comes_from_the_next(self):
        self.useFixture(fixtures.MockPatchObject(taking, "_PATIENCE", 20))
        goes_on = self.made_slowly()
        found = self.begun("web2")
        self.a.process.dead = True
        goes_on.set()
        self.restart(self.a)
        found.result(20)
        self.assertEqual(*self.sums("web2"))
        self.assertEqual("", self.known("web2").layer.maker)

    def test_who_is_interrupted_waits_for_it_no_longer(self):
        goes_on = self.made_slowly()
        self.addCleanup(self.ended, "web2")
        self.addCleanup(goes_on.set)
        self.begin("web2")
        self.assertRaises(KeyboardInterrupt, self.take, "web2", maker="a", progress=self.interrupt)
        self.assertFalse(goes_on.is_set())
        self.assertRaises(ImageUnknown, self.known, "web2")

    def interrupt(self, done, size):
        if done:
            raise KeyboardInterrupt

    def test_one_that_was_made_anew_meanwhile_comes_once_more(self):
        goes_on = self.made_slowly()
        found = self.begun("web2")
        ask = Peer.layer

        def other(peer, name, at, size):
            content = ask(peer, name, at, size)
            return content if self.asked.count(at) > 1 else bytes(len(content))

        self.useFixture(fixtures.MockPatchObject(Peer, "layer", other))
        goes_on.set()
        found.result(20)
        self.assertEqual(*self.sums("web2"))

    def test_an_attempt_that_was_interrupted_is_gone_on_with(self):
        self.dies_at = 3 * CHUNK
        self.assertRaises(PeerUnreachable, self.take)
        self.assertEqual(["web.layer.part"], self.storage.files())
        self.assertEqual("a", self.known().layer.maker)
        self.dies_at = NEVER
        self.take()
        self.assertEqual(list(range(0, self.length, CHUNK)), self.asked)
        self.assert_taken()

    def test_what_the_power_took_of_it_is_fetched_once_more(self):
        self.dies_at = 3 * CHUNK
        self.assertRaises(PeerUnreachable, self.take)
        self.dies_at = NEVER
        with open(self.storage.folder / "web.layer.part", "r+b") as part:
            part.write(bytes(CHUNK))
        self.take()
        self.assert_taken()

    def test_a_layer_that_is_not_what_volt_knows_is_refused(self):
        with open(self.file_of_a(), "r+b") as file:
            file.seek(self.length - 1)
            file.write(b"r")
        self.assertRaises(LayerWrong, self.take)
        self.assertEqual([], self.storage.files())
        os.truncate(self.file_of_a(), self.length - CHUNK)
        self.assertRaises(MoveGarbled, self.take)
        self.assertEqual("a", self.known().layer.maker)

    def test_what_cannot_be_taken_is_refused(self):
        self.assertRaises(InvalidRequest, self.take, "debian")
        self.assertRaises(ImageUnknown, self.take, "none")
        part = self.storage.folder / "web.layer.part"
        with open(part, "wb") as other:
            fcntl.flock(other, fcntl.LOCK_EX)
            self.assertRaises(LayerComing, self.take)
        full = fixtures.MockPatchObject(os, "pwrite", self.full)
        with full:
            self.assertRaises(NoSpace, self.take)
        self.take()
        (self.storage.folder / "web.layer").unlink()
        self.assertRaises(LayerUnknown, self.take)

    def test_nodes_give_only_what_is_kept(self):
        with self.b.process.here():
            peer = self.b.moves.peers.peer("a")
            self.addCleanup(peer.close)
            self.assertRaises(LayerUnknown, peer.layer, "none", 0, CHUNK)
            self.assertRaises(MoveGarbled, peer.layer, "web", self.length, CHUNK)
            self.assertRaises(InvalidRequest, peer._answer, "GET", "/v1/layers/web?at=-1")
            self.assertRaises(InvalidRequest, peer._answer, "GET", "/v1/layers/web")
