"""A bed: nodes, host processes and their network, up together and down together.

with Bed("demo", link_rate="100mbit") as bed:
    storage = bed.start_node("storage", disks=[Disk(image, readonly=True)])
    nodes = bed.start_nodes(["node1", "node2"])
    nodes[0].run(["uname", "-r"]).stdout
"""

import compileall
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from socket import socket
from types import FrameType, TracebackType
from typing import Self

from lab import kernel, leftovers, processes
from lab.errors import BedExists, CommandFailed, CommandTimeout, LabError, NoSuchBed
from lab.forwarding import forward_command, listening
from lab.network import MAX_NODES, Endpoint, Network, bytes_per_second
from lab.node import Node
from lab.processes import Process
from lab.remote import Result
from lab.rootfs import TOP, ensure_image
from lab.state import BedRecord, Disk, NodeRecord, State, free_index
from lab.waiting import wait_until

NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?")


class Bed:
    """One bed, whether this process started it or another one did."""

    def __init__(
        self,
        name: str,
        link_rate: str | None = None,
        source: Path = TOP,
        addition: Path | None = None,
        poisoned: bool = False,
    ):
        """Nothing is started yet.

        :param addition: recipe of what its nodes have more
        :param poisoned: see ``BedRecord``
        """
        check_name(name)
        if link_rate is not None:
            bytes_per_second(link_rate)
        check_path(source)
        self.name = name
        self._link_rate = link_rate
        self._source = source
        self._addition = addition
        self._poisoned = poisoned
        self._state = State(name)
        self._network = Network(name)
        self._handler: object = None

    @classmethod
    def attach(cls, name: str) -> Self:
        """Return a bed that is up already; raise NoSuchBed if there is none."""
        record = State(name).read()
        return cls(name, record.link_rate, record.source)

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._handler = signal.signal(signal.SIGTERM, _exit)
        try:
            self.up()
        except BedExists:
            raise  # it is somebody else's: not ours to bring down
        except BaseException:
            self.down()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        left = self.down()
        if self._handler is not None:
            signal.signal(signal.SIGTERM, self._handler)  # type: ignore[arg-type]
        if left and error is None:
            raise LabError(f"bed {self.name} left behind: {'; '.join(left)}")

    def up(self) -> None:
        """Make the bed's folders and network, without nodes."""
        chosen = kernel.chosen()
        image = ensure_image(chosen.modules, self._addition)
        check_path(image)
        # A node's Python is slow to compile, and cannot write to the source tree.
        compileall.compile_dir(self._source / "virtman", quiet=2)
        if self._network.exists():
            raise BedExists(self.name)
        self._state.create(
            BedRecord(
                self.name, self._link_rate, image, self._source, self._poisoned, chosen.command
            )
        )
        self._network.up()
        words = [sys.executable, "-m", "lab.pulse", self.name]
        self.spawn(words, self._state.folder / "pulse.log", cwd=TOP, what="pulse")

    def down(self) -> list[str]:
        """End and remove all of the bed; return what is left, which should be nothing.

        Does nothing if there is no such bed. An interrupt waits until it is done.
        """
        with _no_interrupts():
            before = leftovers.Traces(self._network, self._state)
            with suppress(NoSuchBed):
                _end_all(self._state.read(), self._network)
            self._network.down()
            self._state.remove()
            return before.left()

    @property
    def folder(self) -> Path:
        """Where files of the bed may live on this machine; removed with it."""
        return self._state.disks

    @property
    def nodes(self) -> dict[str, Node]:
        """The bed's nodes by name, in the order of their addresses."""
        record = self._state.read()
        return {node.name: self._node(node.name) for node in record.nodes}

    def node(self, name: str) -> Node:
        """Return a node; raise NoSuchNode if there is none."""
        self._state.read().node(name)
        return self._node(name)

    def _node(self, name: str) -> Node:
        return Node(self._state, self._network, name)

    def start_node(
        self,
        name: str,
        memory: str = "448M",
        cache: str = "4G",
        disks: Sequence[Disk] = (),
        deadline: float = 120,
    ) -> Node:
        """Start a node with fresh disks and wait until it runs commands."""
        (node,) = self.start_nodes([name], memory, cache, disks, deadline)
        return node

    def start_nodes(
        self,
        names: Sequence[str],
        memory: str = "448M",
        cache: str = "4G",
        disks: Sequence[Disk] = (),
        deadline: float = 120,
    ) -> list[Node]:
        """Start nodes side by side, with addresses in this order, and wait for all."""
        nodes = [self._add_node(name, memory, cache, disks) for name in names]
        for node in nodes:
            node.boot()
        with ThreadPoolExecutor(max(1, len(nodes))) as pool:
            list(pool.map(lambda node: node.wait_up(deadline), nodes))
        return nodes

    def _add_node(self, name: str, memory: str, cache: str, disks: Sequence[Disk]) -> Node:
        """Record a node and make its link and disks."""
        check_name(name)
        images = tuple(Disk(disk.image.resolve(strict=True), disk.readonly) for disk in disks)
        for disk in images:
            check_path(disk.image)

        def add(bed: BedRecord) -> BedRecord:
            if any(node.name == name for node in bed.nodes):
                raise LabError(f"bed {self.name} has a node {name} already")
            return bed.with_node(
                NodeRecord(name, free_index(bed, MAX_NODES), memory, cache, images)
            )

        record = self._state.change(add)
        self._network.add_node(record.node(name).index, record.link_rate)
        node = self._node(name)
        node.make_disks()
        return node

    def spawn(
        self,
        argv: Sequence[str],
        log: Path,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        what: str | None = None,
    ) -> Process:
        """Start a process of this machine inside the bed; it ends with the bed.

        ``what`` is its name among the bed's; else it is that of the program.
        """
        command = self._network.command(list(argv))
        return self._record(processes.start(command, what or argv[0], Path(log), env, cwd))

    def process(self, what: str) -> Process | None:
        """Return the process of this name that was started last, if there is one."""
        found = [one for one in self._state.read().processes if one.what == what]
        return found[-1] if found else None

    def _record(self, process: Process) -> Process:
        self._state.change(lambda bed: bed.with_process(process))
        return process

    def run_in(
        self,
        argv: Sequence[str],
        timeout: float = 60,
        check: bool = True,
        input: bytes | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Result:
        """Run a process of this machine inside the bed and wait for its end."""
        command = self._network.command(list(argv))
        try:
            done = subprocess.run(
                command, input=input, capture_output=True, timeout=timeout, check=False, env=env
            )
        except subprocess.TimeoutExpired:
            raise CommandTimeout(f"{' '.join(argv)} did not end within {timeout:g} s") from None
        result = Result(done.returncode, done.stdout, done.stderr)
        if check and result.status:
            raise CommandFailed(
                f"bed {self.name}", list(argv), result.status, result.stdout, result.stderr
            )
        return result

    def inside(self) -> AbstractContextManager[None]:
        """Put this thread into the bed's network, for example for a request to Volt."""
        return self._network.inside()

    def connect(self, to: Endpoint, timeout: float = 5) -> socket:
        """Return a socket connected to an address inside the bed."""
        return self._network.connect(to, timeout)

    def forward(self, port: int, to: Endpoint) -> Process:
        """Let 127.0.0.1:`port` of this machine lead to an address inside the bed."""
        command = forward_command(port, to, self._network.path)
        log = self._state.disks / f"forward-{port}.log"
        process = self._record(processes.start(command, f"forward {port}", log))
        wait_until(lambda: listening(port) or not process.alive(), f"a listener on port {port}", 10)
        if not process.alive():
            raise LabError(f"port {port} cannot be forwarded: {log.read_text().strip()}")
        return process

    def kernel_logs(self) -> dict[str, str]:
        """Return what each node's console has shown."""
        return {name: node.kernel_log() for name, node in self.nodes.items()}


def check_name(name: str) -> None:
    """Raise unless a bed's or node's name fits host names, links and kernel parameters."""
    if not NAME.fullmatch(name):
        raise LabError(f"a name is lower-case letters, digits and dashes, not {name!r}")


def check_path(path: Path) -> None:
    """Raise unless a path can stand in a kernel parameter."""
    if re.search(r"[\s,:\"]", str(path)):
        raise LabError(f"a kernel parameter cannot hold the path {str(path)!r}")


def _end_all(record: BedRecord, network: Network) -> None:
    """End every recorded process: services are asked first, kernels are not."""
    kernels = {node.process for node in record.nodes}
    inode = network.inode()

    def end(process: Process) -> None:
        process.end(inode, grace=0 if process in kernels else 5)

    everything = record.everything()
    with ThreadPoolExecutor(max(1, len(everything))) as pool:
        list(pool.map(end, everything))


def _exit(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


@contextmanager
def _no_interrupts() -> Iterator[None]:
    """Hold back SIGINT and SIGTERM until the block is done."""
    held = {signal.SIGINT, signal.SIGTERM}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, held)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
