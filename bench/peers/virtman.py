"""VirtMan: a forest with and without what is fetched ahead, and other shapes of trees."""

import json
import time
from typing import Any

from bench.peers.peer import Peer, Site
from lab.deployment import CREATE_TIMEOUT, SOCKET
from lab.node import Node

# stripes, fan-out
SHAPES = {"forest": (2, 2), "tree": (1, 2), "star": (1, 0), "chain": (1, 1)}
FOREST = "forest"
LOOKED = 9.0
"""Seconds after which an agent has seen what VMs read last: it looks every eight, or sooner."""


class Trees(Peer):
    """An image's trees of one shape, without prefetch."""

    def __init__(self, site: Site, shape: str) -> None:
        super().__init__(site)
        self.image = shape

    def serve(self) -> None:
        """Make an image known that has this shape."""
        self.site.have_agents(prefetch=False)
        stripes, fanout = SHAPES[self.image]
        self.site.deployment.add_source(
            self.site.storage, self.image, stripes, fanout, shape=self.image
        )

    def create(self, node: Node) -> str:
        """Have the agent create a VM, asked as nova-compute does: no Python starts for that."""
        done = node.run(
            [
                *("curl", "--silent", "--show-error", "--fail-with-body", "--request", "PUT"),
                *("--unix-socket", SOCKET, "--json", json.dumps({"image": self.image})),
                f"http://agent/v1/instances/{vm(node)}",
            ],
            timeout=CREATE_TIMEOUT,
        )
        return str(json.loads(done.stdout)["device"])

    def destroy(self, node: Node) -> None:
        """Have the agent destroy it."""
        self.site.deployment.destroy(node, vm(node))

    def leave(self, node: Node) -> None:
        """Drop the image."""
        self.site.deployment.drop(node, self.image)

    def end(self) -> None:
        """Make the image unknown."""
        self.site.deployment.remove_source(self.site.storage, self.image)


class Forest(Trees):
    """Two trees as they come; the image stays known, with its profile.

    :param workload: by whose profile nodes fetch ahead; nothing if there is none
    """

    def __init__(self, site: Site, workload: str | None) -> None:
        super().__init__(site, FOREST)
        self._workload = workload

    def serve(self) -> None:
        """Have agents of the right kind, and the right profile."""
        self.site.have_agents(prefetch=self._workload is not None)
        if self._workload is not None:
            self.profile("import", self._workload)

    def end(self) -> None:
        """Leave all as it is."""

    def profile(self, verb: str, workload: str) -> None:
        """Export a workload's profile to a file, or have that as what boots read."""
        first = self.site.nodes[0]
        name = workload if verb == "export" else "boot"
        options = ["--workload", name, *self.site.deployment.volt_options(first)]
        file = f"/host/{workload}.profile"
        first.run(["virtman", "profile", verb, self.image, file, *options])

    def shown(self) -> dict[str, Any]:
        """Return what the command shows of the profile of boots."""
        first = self.site.nodes[0]
        options = ["--json", *self.site.deployment.volt_options(first)]
        found = first.run(["virtman", "profile", "show", self.image, *options])
        return dict(json.loads(found.stdout))

    def fetch_ratio(self) -> float | None:
        """Ask the agents, once they know; None if VMs read nothing that came ahead."""
        if self._workload is None:
            return None
        time.sleep(LOOKED)
        found = self.site.each(lambda node: self.site.deployment.ahead(node, self.image))
        ahead = [one for one in found if one]
        used = sum(one["used"] for one in ahead)
        return sum(one["fetched"] for one in ahead) / used if used else None


def vm(node: Node) -> str:
    """Return the name of a node's VM."""
    return f"vm-{node.name}"
