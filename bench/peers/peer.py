"""What a way to boot many VMs from one image has to do, and what all ways have in common."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from lab.deployment import SOURCE_DISK, Deployment
from lab.node import Node

FOLDER = "/var/tmp/peer"  # noqa: S108  # a node is nobody else's
INSIDE = ["python3", "/opt/src/bench/inside.py"]
LONGEST = 3600.0  # seconds for an image that crosses one link as often as there are nodes
T = TypeVar("T")


class Site:
    """Nodes, a node with the image's disk, and VirtMan's services."""

    def __init__(self, deployment: Deployment, storage: Node, nodes: Sequence[Node]) -> None:
        self.deployment = deployment
        self.storage = storage
        self.nodes = nodes
        self._agents: dict[str, dict[str, object]] = {}

    def have_agents(self, *, prefetch: bool) -> None:
        """Have agents that record a first boot and fetch ahead, or do neither."""
        wanted: dict[str, dict[str, object]] = {
            "profile": {"record": int(prefetch), "prefetch": prefetch}
        }
        if wanted == self._agents:
            return
        if self._agents:
            self.each(self.deployment.kill_agent)
        self._agents = wanted
        self.deployment.start_agents(self.nodes, wanted)

    def each(self, work: Callable[[Node], T]) -> list[T]:
        """Do something on all nodes at once."""
        with ThreadPoolExecutor(len(self.nodes)) as pool:
            return list(pool.map(work, self.nodes))


class Peer(ABC):
    """One way to boot; each node has one VM at a time.

    ``serve``; on each node ``create`` and ``destroy``, both perhaps again, and ``leave``; ``end``.
    """

    keeps_writes = True  # what a VM writes to its disk stays there, for this VM alone

    def __init__(self, site: Site) -> None:
        self.site = site

    @abstractmethod
    def serve(self) -> None:
        """Begin to serve the image."""

    @abstractmethod
    def create(self, node: Node) -> str:
        """Return the path of a disk for a VM, once that can boot."""

    @abstractmethod
    def destroy(self, node: Node) -> None:
        """Take a VM's disk away; what its node has of the image stays."""

    @abstractmethod
    def leave(self, node: Node) -> None:
        """Take away all that a node has of the image."""

    @abstractmethod
    def end(self) -> None:
        """Serve no more."""

    def fetch_ratio(self) -> float | None:
        """Return what nodes fetched ahead, over what VMs read of that; None if they do not."""
        return None


class Files(Peer):
    """VMs boot from a file, and write to a snapshot that QEMU makes of it."""

    keeps_writes = False
    disk = f"{FOLDER}/image"

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self._started: list[tuple[Node, int]] = []

    def destroy(self, node: Node) -> None:
        """Leave the file: what a VM wrote is in its snapshot."""

    def make(self, file: str, form: str) -> None:
        """Make a file of the image's disk where that is."""
        storage = self.site.storage
        storage.run(["mkdir", FOLDER])
        storage.run(["qemu-img", "convert", "-O", form, SOURCE_DISK, file], timeout=LONGEST)

    def spawn(self, node: Node, *argv: str) -> None:
        """Start a program that stays until the node leaves."""
        self._started.append((node, node.spawn(argv, log=f"{argv[0]}.log")))

    def stop(self, node: Node) -> None:
        """End what was started on a node, and remove its files."""
        for owner, pid in self._started:
            if owner is node:
                node.run(["kill", str(pid)], check=False)
        self._started = [one for one in self._started if one[0] is not node]
        node.run(["rm", "-rf", FOLDER])
