"""An image that hosts join, on each kind of database."""

from datetime import UTC, datetime

from tests.functional.volt import databases
from tests.functional.volt.base import TestCase
from volt.model.images import NewImage
from volt.placement.rules import Shape
from volt.transport import Portal

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def portal(number=0):
    return Portal(f"192.0.2.{number % 250}", 3260, "iqn.2003-01.org.example:h", 0)


class TreesCase(TestCase):
    scenarios = databases.SCENARIOS

    def setUp(self):
        super().setUp()
        self.images = self.ground.images
        self.placements = self.ground.placements
        self.create("x")

    def create(self, name, stripes=2, fanout=2, now=NOW):
        source = Portal("127.0.0.1", self.ground.source_port, "iqn.2003-01.org.example:s", 0)
        return self.images.create(NewImage(name, 512, Shape.FOREST, stripes, fanout, source), now)

    def join(self, *hosts, image="x"):
        for host in hosts:
            self.placements.join(image, host, portal())

    def generation(self, host):
        return self.placements.show("x", host).generation

    def told(self, host):
        """Parents and standbys of the host in words: one pair a stripe."""
        return [
            (feed.parent.host, feed.standby and (feed.standby.host or "source"))
            for feed in self.placements.show("x", host).stripes
        ]

    def check_trees(self, hosts, image="x", fanout=2):
        """Assert that every tree holds these hosts once, and no slot holds two."""
        for tree in self.images.trees(image).trees:
            assert sorted(node.host for node in tree.nodes) == sorted(hosts)
            depth = {None: 0} | {node.host: node.depth for node in tree.nodes}
            assert all(node.depth == depth[node.parent] + 1 for node in tree.nodes)
            parents = [node.parent for node in tree.nodes]
            assert parents.count(None) <= 1
            assert all(parents.count(host) <= fanout for host in hosts)
