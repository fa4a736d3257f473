"""What the agent's functional tests stand on: simulated kernels, and a real Volt over HTTP."""

from __future__ import annotations

import hashlib
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import cache
from io import BytesIO
from pathlib import Path

import fixtures
import testtools
from werkzeug.serving import WSGIRequestHandler, make_server

from lab.ports import free_port
from tests.functional.virtman.doubles.kernel import Kernel
from tests.functional.virtman.doubles.model import SSD
from tests.functional.virtman.doubles.process import Process
from tests.functional.virtman.doubles.simulated import SimulatedKernels
from tests.functional.volt.base import Ground
from virtman import server
from virtman.api.local import Api
from virtman.background.boots import Boots
from virtman.background.copying import Copying
from virtman.background.heartbeat import Heartbeat
from virtman.background.longpoll import Watch
from virtman.background.metrics import Figures
from virtman.background.nic import Card, Overload
from virtman.background.warmups import Warmups
from virtman.coordinator.auth import Access
from virtman.coordinator.client import VoltClient
from virtman.coordinator.interface import Shape
from virtman.coordinator.memory import Memory
from virtman.coordinator.offline import Remembering
from virtman.disk import merger
from virtman.disk.capacity import Limits, Space
from virtman.disk.disks import Stores
from virtman.disk.layers import Layers
from virtman.disk.merger import Merger
from virtman.disk.records import Records
from virtman.disk.space_guard import Supply
from virtman.disk.volumes.file import Folder
from virtman.disk.volumes.lvm import VolumeGroup
from virtman.image import following, whole
from virtman.image.boot import Options
from virtman.image.copies import Copies
from virtman.image.life import Times
from virtman.image.prefetch import How
from virtman.image.share import SharedCap
from virtman.migration import commits, journey, sender
from virtman.migration.checkpoints import Checkpoints
from virtman.migration.commits import Commits
from virtman.migration.incoming import Arrivals
from virtman.migration.outgoing import Moves
from virtman.migration.peer_client import Peers
from virtman.migration.peer_server import Listener, Remote
from virtman.migration.tls import Credentials
from virtman.model import hashtree
from virtman.model.address import Portal, Proof, source_at
from virtman.model.basis import Basis, Other, Run, encode
from virtman.model.hashtree import HashTree
from virtman.model.prefetch_order import Policy
from virtman.node import check
from virtman.node.agent import Agent
from virtman.node.images import Host, Images
from virtman.stack import mapped
from virtman.stack.builder import Stack
from virtman.stack.cache import backed, bcache
from volt.db.clock import ClockTable

MIB = 1024 * 1024
SIZE = 8 * MIB
RESERVE, AHEAD = 64 * MIB, MIB
LIMITS = Limits(1.0, 0, RESERVE, AHEAD, 0.8)
FOREVER = 3600.0
DEADLINE = 30.0
ENOUGH = 400  # steps: more than any act takes that is killed at each, or fails there
PATIENCE = 30.0  # seconds for an answer of Volt: nothing here is about a slow one


class _Quiet(WSGIRequestHandler):
    def log(self, type: str, message: str, *args: object) -> None:
        pass

    def run_wsgi(self) -> None:
        if self.server.silent:
            self.connection.shutdown(socket.SHUT_RDWR)
        else:
            super().run_wsgi()


class Volt:
    """A Volt that answers on 127.0.0.1; it can be made to fall silent."""

    def __init__(self, cleanups: ExitStack) -> None:
        self.ground = Ground(cleanups)
        server = make_server("127.0.0.1", 0, self.ground.app, threaded=True, request_handler=_Quiet)
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        cleanups.callback(server.server_close)
        cleanups.callback(thread.join)
        cleanups.callback(server.shutdown)
        self._server = server
        self.silence(False)
        self.url = f"http://127.0.0.1:{server.server_port}"

    def silence(self, silent: bool = True) -> None:
        self._server.silent = silent

    def hosts(self, image: str) -> set[str]:
        """Hosts in the image's trees."""
        trees = self.ground.images.trees(image)
        return {node.host for tree in trees.trees for node in tree.nodes}

    def trees(self, image: str) -> object:
        return self.ground.images.trees(image)

    def renew_secret(self, image: str) -> tuple[str, str]:
        """Give an image's hosts another secret, and so new placements; return user and secret."""
        self.ground.images.rotate(image)
        chap = self.ground.placements.show(image, min(self.hosts(image))).chap
        return chap.user, chap.secret

    def let_time_pass(self) -> None:
        """Turn Volt's clock on by a minute."""
        clock = ClockTable(self.ground.engine)
        now = clock.read()
        clock.move(now, replace(now, tick=now.tick + 60))

    def silence_of(self, host: str) -> int:
        """Seconds since the host said a word."""
        return self.ground.hosts.show(host).silent

    def forget(self, image: str, host: str) -> None:
        self.ground.placements.remove(image, host)


class Node:
    """A node with a kernel that survives, and an agent that may be killed and started anew."""

    def __init__(self, bed: Bed, name: str, number: int, times: Times) -> None:
        self.bed = bed
        self.name = name
        self.times = times
        self.ip = f"192.0.2.{number}"
        self.kernel = Kernel(bed.network, name)
        self.folder = bed.folder / name
        self.kernel.disk = self.folder / "lvm"
        self.kernel.disk.mkdir(parents=True)
        self.access = bed.access(name, bed.volt.ground.token("host", name))
        self.port = free_port()
        self.start()

    def start(self) -> None:
        """Start an agent over what kernel and folder hold."""
        self.process = Process(self.kernel)
        self.records = Records(self.folder)
        self.records.prepare()
        self.backing = VolumeGroup("vg0") if self.bed.lvm else Folder(self.records.stores)
        images = self.folder / "images"
        images.mkdir(exist_ok=True)
        memory = Memory(self.folder / "volt")
        memory.prepare()
        volt = VoltClient(self.bed.volt.url, self.name, PATIENCE, self.access)
        coordinator = Remembering(volt, memory)
        stack = Stack(self.bed.driver, (SSD,), images)
        with self.process.here():
            stack.prepare()
        host = Host(self.name, self.ip, 3260)
        space = Space(self.records, self.backing, LIMITS)
        stores = Stores(stack, self.records, space)
        copies = Copies(self.folder / "copies", self.folder / "whole", space)
        copies.prepare()
        kept = Images(host, stack, coordinator, self.records, stores.origins, self.times, copies)
        self.agent = Agent(kept, stores)
        self.merger = Merger(stores)
        self.supply = Supply(stores)
        how = How(Policy.IN_ORDER, 4, SharedCap(0))
        self.heartbeat = Heartbeat(self.agent.images, Card(self.ip), Overload(1))
        self.boots = Boots(self.agent.images, Options(1, 65536, True, how), self.heartbeat.hasten)
        self.copying = Copying(self.agent.images, copies, SharedCap(0), self.heartbeat.hasten)
        self.warmups = Warmups(self.boots)
        self.watch = Watch(self.agent.images, self.heartbeat, self.warmups.ask, called=False)
        self.credentials = Credentials(coordinator, self.folder, "127.0.0.1", self.port)
        peers = Peers(coordinator, self.credentials, PATIENCE)
        self.moves = Moves(self.agent, peers, PATIENCE)
        self.arrivals = Arrivals(self.agent, peers)
        layers = Layers(self.folder / "layers", space)
        layers.prepare()
        self.commits = Commits(self.agent, layers)
        remote = Remote(self.moves, self.arrivals, self.commits)
        self.listener = Listener(remote, self.credentials)
        self.checkpoints = Checkpoints(self.commits, self.folder / "checkpoints")
        self.checkpoints.prepare()

    def api(self) -> Api:
        """Return the local API."""
        return Api(
            self.agent, self.moves, self.arrivals, self.boots, self.copying, self.checkpoints
        )

    def serve(self) -> None:
        """Go on with moves, and take other agents' calls."""
        with self.process.here():
            self.merger.start()
            self.listener.open()
            self.listener.start()
            self.moves.start()

    def die(self) -> None:
        """Have the process end here, with all its connections."""
        self.process.dead = True
        self.commits.stop()
        self.copying.stop()
        self.moves.stop()
        self.merger.stop()
        self.listener.stop()
        for one in list(self.agent.images._attachments.values()):
            one.stop()

    def migrate(self, vm: str, host: str, *, live: bool = False) -> object:
        with self.process.here():
            return self.moves.migrate(vm, host, live=live)

    def finish(self, vm: str) -> object:
        with self.process.here():
            return self.moves.finish(vm)

    def clone(self, vm: str, host: str, name: str) -> object:
        with self.process.here():
            return self.moves.clone(vm, host, name)

    def reboot(self) -> None:
        """Lose all that the kernel has, and start an agent."""
        self.kernel.forget()
        self.start()

    def create(self, vm: str, image: str = "debian", **words: object) -> object:
        with self.process.here():
            return self.agent.create(vm, image, **words)

    def destroy(self, vm: str) -> None:
        with self.process.here():
            self.agent.destroy(vm)

    def snapshot(self, vm: str, name: str) -> object:
        with self.process.here():
            return self.agent.snapshot(vm, name)

    def rollback(self, vm: str, name: str) -> None:
        with self.process.here():
            self.agent.rollback(vm, name)

    def delete_snapshot(self, name: str) -> None:
        with self.process.here():
            self.agent.delete_snapshot(name)

    def merge(self, vm: str) -> None:
        """Do all the merging that a VM's chain needs; the merger's own thread begins no more."""
        with self.process.here():
            self.merger.stop()
            self.merger.rounds.join()
            self.merger = Merger(self.merger.stores)
            self.merger.merge(vm)

    def look(self) -> None:
        """Look once whether VMs have room to write."""
        with self.process.here():
            self.supply.look()

    def chain(self, vm: str) -> list[str]:
        """Names of a VM's stores."""
        inventory = self.records.inventory()
        return [one.name for one in inventory.chain(inventory.instances[vm].store)]

    def drop(self, image: str = "debian") -> None:
        with self.process.here():
            self.agent.images.drop(image)

    def recover(self) -> Iterable[str]:
        with self.process.here():
            return self.agent.recover()

    def beat(self) -> None:
        """Send a heartbeat and wait until what it brought is done."""
        with self.process.here():
            self.heartbeat.beat()
        self.settle()

    def figures(self) -> Figures:
        """Return what Prometheus is to hear of the agent."""
        return Figures(self.agent.images, self.boots, self.copying)

    def samples(self) -> Mapping[tuple[str, ...], float]:
        """Return the values of all that now, by name and labels."""
        with self.process.here():
            families = list(self.figures().collect())
        return {
            (one.name, *one.labels.values()): one.value
            for family in families
            for one in family.samples
        }

    def settle(self) -> None:
        """Wait until the images' threads have nothing left to do."""
        for one in list(self.agent.images._attachments.values()):
            with self.process.here():
                one._worker.submit(lambda: None).result()

    def stop(self) -> None:
        self.commits.stop()
        self.copying.stop()
        self.moves.stop()
        self.merger.stop()
        self.listener.stop()
        for one in list(self.agent.images._attachments.values()):
            one.stop()

    def everywhere(self) -> tuple[object, ...]:
        """All that a refused request must leave as it was."""
        return (
            self.kernel.state(),
            self.records.all(),
            sorted(path.name for path in self.folder.rglob("*")),
            self.bed.volt.trees("debian"),
        )


@cache
def hashes(content: str = "debian") -> tuple[HashTree, bytes]:
    """Return the hash tree of an image and its upper levels.

    All images are zeros, so a salt stands for their content.
    """
    salt = hashlib.sha256(content.encode()).hexdigest()
    builder = hashtree.Builder(salt, BytesIO())
    builder.add_zeros(SIZE)
    return builder.end()


class Bed:
    """Nodes, a Volt and the source of image ``debian``.

    :ivar lvm: whether nodes keep exception stores in logical volumes
    """

    lvm = False

    def __init__(self, cleanups: ExitStack, network, driver: str = "bcache") -> None:
        self.network = network
        self.driver = driver
        self.folder = Path(cleanups.enter_context(tempfile.TemporaryDirectory()))
        self.volt = Volt(cleanups)
        self.nodes: list[Node] = []
        self.trees: dict[str, tuple[HashTree, bytes]] = {}
        cleanups.callback(lambda: [node.stop() for node in self.nodes])
        self.source = self._source("debian")
        self.register("debian")

    def register(
        self,
        image: str,
        fanout: int = 2,
        *,
        hashed: bool = True,
        target: str = "",
        lun: int = 0,
        runs: Mapping[str, Sequence[Run]] | None = None,
        shape: Shape | None = None,
    ) -> None:
        """Have the source serve another image.

        :param runs: what it has in common with others, in the order of the image
        :param target: name of the image whose target has this one too; empty for one of its own
        """
        where = replace(self._source(target or image), lun=lun)
        proof = Proof(target or image, "secret-of-the-source")
        luns = [SIZE, hashtree.leaves(SIZE)]
        self.network.add_source(where, luns, (proof.user, proof.secret))
        self.operator().register(
            image,
            SIZE,
            shape or Shape("forest", 2, fanout),
            where,
            proof,
            self._hashes(image) if hashed else None,
            basis=None if runs is None else self.basis(image, runs),
        )

    def basis(self, image: str, runs: Mapping[str, Sequence[Run]]) -> bytes:
        """Return what an image has in common with others."""
        others = tuple(Other(name, self._hashes(name)[0].root) for name in runs)
        every = sorted((run for found in runs.values() for run in found), key=lambda run: run.start)
        return encode(Basis(self._hashes(image)[0].root, others, tuple(every)))

    def fill(self, image: str, content: bytes) -> None:
        """Have the source serve an image that is not zeros; as long as all are."""
        leaves = BytesIO()
        builder = hashtree.Builder(hashtree.SALT, leaves)
        builder.add(content)
        self.trees[image] = builder.end()
        self.network.bytes[image] = content + leaves.getvalue()
        self.register(image)

    def _hashes(self, image: str) -> tuple[HashTree, bytes]:
        return self.trees.get(image) or hashes(self.network.contents.get(image, "debian"))

    def remake(self, image: str, content: str = "debian", *, hashed: bool = True) -> None:
        """Forget an image, whoever has it, and make it anew with other content."""
        self.delete(image)
        self.network.contents[image] = content
        self.register(image, hashed=hashed)

    def delete(self, image: str) -> None:
        """Forget an image, whoever has it."""
        for node in self.nodes:
            self.volt.forget(image, node.name)
            self.volt.ground.holds.release(image, node.name, by_itself=True)
        self.volt.ground.images.delete(image)

    def operator(self) -> VoltClient:
        """Return Volt as an operator asks it."""
        access = self.access("operator", self.volt.ground.operator)
        return VoltClient(self.volt.url, "any", PATIENCE, access)

    def access(self, name: str, token: str) -> Access:
        """Return how somebody with that token, in a file of that name, speaks to Volt."""
        file = self.folder / f"{name}.token"
        file.touch(0o600)
        file.write_text(token)
        return Access(str(file))

    def node(
        self,
        name: str = "a",
        keep: float = FOREVER,
        attach: float = 5,
        leave: float = 5,
        warm: float = 0,
    ) -> Node:
        node = Node(self, name, len(self.nodes) + 1, Times(keep, attach, leave, warm))
        self.nodes.append(node)
        return node

    def source_dies(self) -> None:
        self._source = self.network.targets.pop(self._key)

    def source_returns(self) -> None:
        self.network.targets[self._key] = self._source

    def _source(self, image: str) -> Portal:
        return source_at("storage", image, "127.0.0.1", self.volt.ground.source_port)

    @property
    def _key(self) -> tuple[str, int, str]:
        return self.source.ip, self.source.port, self.source.iqn


class Impatient(fixtures.Fixture):
    """Waits for what will not happen are short, and tries follow each other closely."""

    def _setUp(self) -> None:
        self.useFixture(fixtures.MockPatchObject(mapped, "_REMOVE_DEADLINE", 0.05))
        self.useFixture(fixtures.MockPatchObject(mapped, "_DETACH_DEADLINE", 0.5))
        self.useFixture(fixtures.MockPatchObject(backed, "DEADLINE", 0.3))
        self.useFixture(fixtures.MockPatchObject(bcache, "_DEADLINE", 0.3))
        self.useFixture(fixtures.MockPatchObject(bcache, "_FLUSH", 0.0))
        self.useFixture(fixtures.MockPatchObject(following, "RETRY", 0.01))
        self.useFixture(fixtures.MockPatchObject(whole, "_WORD", 0.0))
        self.useFixture(fixtures.MockPatchObject(merger, "_LOOK", 0.001))
        self.useFixture(fixtures.MockPatchObject(sender, "_LOOK", 0.001))
        self.useFixture(fixtures.MockPatchObject(sender, "_AGAIN", 0.01))
        self.useFixture(fixtures.MockPatchObject(journey, "_AGAIN", 0.01))
        self.useFixture(fixtures.MockPatchObject(journey, "_STILL_OPEN", 0.01))
        self.useFixture(fixtures.MockPatchObject(check, "_BETWEEN", 0.01))
        self.useFixture(fixtures.MockPatchObject(commits, "_AGAIN", 0.01))
        self.useFixture(fixtures.MockPatchObject(server, "_PATIENCE", 0.2))


class TestCase(testtools.TestCase):
    driver = "bcache"

    def setUp(self):
        super().setUp()
        self.log = self.useFixture(fixtures.FakeLogger())
        self.kernels = self.useFixture(SimulatedKernels())
        self.useFixture(Impatient())
        cleanups = ExitStack()
        self.addCleanup(cleanups.close)
        self.bed = Bed(cleanups, self.kernels.network, self.driver)
        self.addCleanup(self.no_kernel_was_harmed)

    def no_kernel_was_harmed(self):
        self.assertEqual([], [harm for node in self.bed.nodes for harm in node.kernel.harm])

    def await_(self, condition: Callable[[], bool], what: Callable[[], object] = str) -> None:
        end = time.monotonic() + DEADLINE
        while not condition():
            if time.monotonic() > end:
                self.fail(f"waited too long: {what()}")
            time.sleep(0.005)

    def assert_nothing_is_left(self, node: Node, after: object = None) -> None:
        def files():
            return [path for path in node.folder.rglob("*") if path.is_file()]

        self.await_(
            lambda: (
                node.kernel.is_clean()
                and node.name not in self.bed.volt.hosts("debian")
                and not files()
            ),
            lambda: (
                f"after {after}: {node.kernel.state()}, {self.bed.volt.trees('debian')}, {files()}"
            ),
        )
        self.assertEqual([], node.records.all())


class UsedCase(TestCase):
    """A node that has a VM."""

    def setUp(self):
        super().setUp()
        self.node = self.bed.node(keep=FOREVER)
        self.node.create("vm1")
        self.node.settle()
